"""perftest's ib_write_bw out of and into GPU memory: each GPU by the adapter next to it, with itself.

One rank per node, no framework. Whether this ib_write_bw can use CUDA its help says: the options of what it
was built without are missing there. Memory is registered by nvidia_peermem where that is loaded, else by
DMA-BUF.
"""

from __future__ import annotations

import importlib
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from clustercheck.jobs import nccl_tests, rdma_write
else:  # on a node they are single files, not a package
    nccl_tests = importlib.import_module(f"{__package__}.nccl_tests" if __package__ else "nccl_tests")
    rdma_write = importlib.import_module(f"{__package__}.rdma_write" if __package__ else "rdma_write")

PEERMEM = (Path("/sys/module/nvidia_peermem"), Path("/sys/module/nv_peer_mem"))
CUDA, DMA_BUF = "--use_cuda", "--use_cuda_dmabuf"
ORDER = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}  # GPUs have nvidia-smi's numbers
HELP_S = 30.0
MAX_TIMEOUTS = 2

join = nccl_tests.join


def read_help() -> str:
    """What ib_write_bw says of its options."""
    try:
        done = subprocess.run(
            [rdma_write.PROGRAM, "--help"],
            capture_output=True, text=True, errors="replace", timeout=HELP_S, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout + done.stderr


def find_ways(helped: str, peermem: Sequence[Path] = PEERMEM) -> tuple[list[list[str]], str]:
    """The options after the GPU's number by which its memory can be registered; or the reason for none."""
    if f"{CUDA}=" not in helped:
        return [], "this ib_write_bw was built without CUDA"
    ways: list[list[str]] = [[]] if any(path.is_dir() for path in peermem) else []
    if DMA_BUF in helped:
        ways.append([DMA_BUF])
    return ways, "" if ways else "nvidia_peermem is not loaded, and this ib_write_bw cannot use DMA-BUF"


def run(world: nccl_tests.MeetingWorld, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments: pairs (by rank: gpu, device, port, gid), iterations, limit_each_s, limit_s.

    ``without`` is the reason why this node has no perftest, ``unable`` why its perftest cannot measure.
    """
    verdict: dict[str, Any] = {"ok": True, "because": "", "unable": "", "writes": []}
    verdict["without"] = rdma_write.explain_missing()
    if verdict["without"]:
        return verdict
    ways, verdict["unable"] = find_ways(read_help())
    for pair in arguments["pairs"][world.rank] if ways else ():
        world.set_phase(f"{rdma_write.PROGRAM} of GPU {pair['gpu']} by {pair['device']}")
        verdict["writes"].append(measure_gpu(pair, ways, arguments))
        if sum(each["exit_code"] is None for each in verdict["writes"]) >= MAX_TIMEOUTS:
            break  # the rest would take the job beyond its own limit
    return verdict


def measure_gpu(
    pair: Mapping[str, Any], ways: Sequence[Sequence[str]], arguments: Mapping[str, Any]
) -> dict[str, Any]:
    """The client's end by the first way that works; by the last one where none does."""
    iterations, limit_s = int(arguments["iterations"]), float(arguments["limit_each_s"])
    found: dict[str, Any] = {}
    for way in ways:
        port = {**pair, "memory": [f"{CUDA}={pair['gpu']}", *way]}
        found = rdma_write.write_to_itself(port, iterations, limit_s, ORDER)
        found |= {"gpu": pair["gpu"], "way": "DMA-BUF" if way else "nvidia_peermem"}
        if found["exit_code"] in (0, None):
            break
    return found
