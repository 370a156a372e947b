"""The probe's program: collects every part side by side and prints one line of JSON.

Options (one JSON object as first argument, all optional):
  image          training image by digest; without it the parts that need one say why they did not run
  gpu_arguments  what `docker run` needs to hand GPUs to a container
  parts          names of parts to collect; default: all of them (`parts_of`)
  holders_ignored
                 names of what holds GPUs and is not a job, besides those that are known
  ended_runs     ids of validations that are known to be over: what they left does not make a node busy
  dcgm           level of DCGM's diagnostic and its limit_s; without it none is run
  mounts         file systems to look at, each with path and user (who must be able to write, or empty)
  limit_s        limit of each command in seconds, default 30; the container part gets twice that

A command that cannot be killed is abandoned, not awaited: a process stuck in the driver must not take the
probe with it.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

from clustercheck.probe.bmc import bmc
from clustercheck.probe.busy import busy
from clustercheck.probe.containers import NOBODY, container_gpus, device_links
from clustercheck.probe.cpu import cpu
from clustercheck.probe.crashes import crashes
from clustercheck.probe.dcgm import dcgm
from clustercheck.probe.devices import pci
from clustercheck.probe.firmware import firmware, virtual
from clustercheck.probe.flow_control import flow_control
from clustercheck.probe.host import clock, host, memory
from clustercheck.probe.infiniband import infiniband
from clustercheck.probe.kernel_log import kernel_log
from clustercheck.probe.limits import limits
from clustercheck.probe.mounts import mounts
from clustercheck.probe.name_service import name_service
from clustercheck.probe.network import nics, rdma
from clustercheck.probe.nvlink_services import fabric_manager, imex
from clustercheck.probe.nvme import nvme
from clustercheck.probe.pages import huge_pages, memory_errors
from clustercheck.probe.pcie import pcie
from clustercheck.probe.processes import processes
from clustercheck.probe.programs import command, read
from clustercheck.probe.registry import registry
from clustercheck.probe.replays import pcie_replays
from clustercheck.probe.storage import shared_memory, storage

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

FORMAT = 1
DEFAULT_LIMIT_S = 30.0


def parts_of(options: dict[str, Any], limit_s: float) -> dict[str, Callable[[], Any]]:
    """How each part is collected; ``limit_s`` bounds each program that it calls."""
    image = str(options.get("image") or "")
    return {
        "host": host,
        "nvidia_smi": lambda: command(["nvidia-smi", "-q", "-x"], limit_s),
        "gpu_list": lambda: command(["nvidia-smi", "-L"], limit_s),
        "topology": lambda: command(["nvidia-smi", "topo", "-m"], limit_s),
        "nvlink": lambda: command(["nvidia-smi", "nvlink", "-s"], limit_s),
        "nvlink_errors": lambda: command(["nvidia-smi", "nvlink", "-e"], limit_s),
        "pcie_replays": lambda: pcie_replays(limit_s),
        "peer_access": lambda: {
            way: command(["nvidia-smi", "topo", "-p2p", way], limit_s) for way in ("r", "w", "n")
        },
        "pci": pci,
        "pcie": pcie,
        "module": lambda: {
            "proc": read("/proc/driver/nvidia/version"),
            "version": read("/sys/module/nvidia/version"),
        },
        "fabric_manager": lambda: fabric_manager(limit_s),
        "imex": lambda: imex(limit_s),
        "toolkit": lambda: command(["nvidia-ctk", "--version"], limit_s),
        "docker": lambda: command(["docker", "info", "--format", "{{json .}}"], limit_s),
        "containerd": lambda: command(["containerd", "--version"], limit_s),
        "container_gpus": lambda: container_gpus(options, limit_s),
        "container_gpus_as_user": lambda: container_gpus(options, limit_s, NOBODY),
        "device_links": device_links,
        "kernel_log": lambda: kernel_log(limit_s),
        "nics": nics,
        "rdma": rdma,
        "infiniband": infiniband,
        "flow_control": lambda: flow_control(limit_s),
        "memory": memory,
        "virtual": lambda: virtual(limit_s),
        "firmware": firmware,
        "cpu": cpu,
        "limits": limits,
        "huge_pages": huge_pages,
        "memory_errors": memory_errors,
        "storage": storage,
        "shared_memory": shared_memory,
        "mounts": lambda: mounts(options.get("mounts") or [], limit_s),
        "name_service": lambda: name_service(image),
        "registry": lambda: registry(image),
        "dcgm": lambda: dcgm(options, limit_s),
        "crashes": crashes,
        "processes": processes,
        "bmc": lambda: bmc(limit_s),
        "nvme": lambda: nvme(limit_s),
        "clock": lambda: clock(limit_s),
        "busy": lambda: busy(limit_s, options.get("ended_runs") or (), options.get("holders_ignored") or ()),
    }


def collect(options: dict[str, Any]) -> dict[str, Any]:
    """All asked-for parts, side by side. A part that raises says so in its place."""
    limit_s = float(options.get("limit_s") or DEFAULT_LIMIT_S)
    parts = parts_of(options, limit_s)
    wanted = [name for name in parts if name in (options.get("parts") or parts)]
    evidence: dict[str, Any] = {"probe": FORMAT, "errors": {}, "clock_began": time.time()}

    def one(name: str) -> None:
        try:
            evidence[name] = parts[name]()
        except Exception as error:  # noqa: BLE001 - one part must not take the others with it
            evidence["errors"][name] = f"{type(error).__name__}: {error}"

    began = time.monotonic()
    threads = [threading.Thread(target=one, args=(name,), daemon=True) for name in wanted]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.1, began + limit_s * 4 - time.monotonic()))
    for name, thread in zip(wanted, threads):
        if thread.is_alive():
            evidence["errors"][name] = f"not done within {limit_s * 4:g} s"
    return dict(evidence, duration_s=round(time.monotonic() - began, 3), clock_ended=time.time())


def main(arguments: Sequence[str]) -> None:
    """Print the evidence in any case."""
    try:
        options = json.loads(arguments[0]) if arguments else {}
        evidence = collect(options if isinstance(options, dict) else {})
    except Exception as error:  # noqa: BLE001 - the caller gets a record, not a traceback
        evidence = {"probe": FORMAT, "errors": {"probe": f"{type(error).__name__}: {error}"}}
    sys.stdout.write(json.dumps(evidence) + "\n")
    sys.stdout.flush()
    os._exit(0)  # a thread that waits for a stuck process would keep the interpreter alive
