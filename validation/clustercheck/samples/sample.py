"""A healthy cluster's evidence, written by hand: what self-tests plant faults in.

Three nodes of 8 x A100-SXM4-80GB with NVSwitch, driver 580. What the programs print, and what the jobs say,
is in the modules next to this one (`sample_smi`, `sample_verdicts` and others).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from clustercheck.evidence.cluster import Evidence
from clustercheck.evidence.node import NodeEvidence
from clustercheck.expect import profiles
from clustercheck.launch.model import JobOutcome, RankOutcome, RankState
from clustercheck.locate.rounds import round_robin
from clustercheck.samples import gpus
from clustercheck.samples.dcgm import dcgm4_text
from clustercheck.samples.fio import storage_verdict
from clustercheck.samples.host import MOUNTS, host_parts
from clustercheck.samples.links import link_parts, rdma_devices, rdma_ports, storage_nic
from clustercheck.samples.machine import machine_parts
from clustercheck.samples.nccl import nccl_logs
from clustercheck.samples.nccl_loopback import loopback_verdict
from clustercheck.samples.nccl_tests import nccl_tests_verdict
from clustercheck.samples.rdma import gpudirect_verdict, rdma_write_verdict
from clustercheck.samples.recipes import (
    gpu_job,
    launch_verdict,
    loading_verdict,
    predictor_verdict,
    recipes_verdict,
    stages_verdict,
    step_verdict,
)
from clustercheck.samples.smi import (
    BUSES,
    DRIVER,
    MODEL,
    gpu_list_text,
    nvlink_errors_text,
    nvlink_text,
    peer_access_text,
    replay_counts,
    smi_xml,
    topology_text,
)
from clustercheck.samples.verdicts import (
    all_reduce_verdict,
    collectives_verdict,
    data_parallel_verdict,
    inference_verdict,
    pairs_verdict,
    peer_ports_verdict,
    run_check_verdict,
    sharding_verdict,
    stream_verdict,
    training_verdict,
)
from clustercheck.spec import ClusterSpec, NodeSpec

PROFILE = "hgx-a100-80gb"
REGISTRY = "registry01"
IMAGE = f"{REGISTRY}:5000/library/paddle@sha256:" + "0" * 64
SWITCH_BUSES = ("c4", "c5", "c6", "c7", "c8", "c9")
NIC_MBPS = 25_000
PLACES = ("/", "/tmp", "/var/tmp", "/var/log", "/var/lib/clusterctl", "/var/lib/docker")  # noqa: S108 - names
NOON = 1_795_000_000.0


def program(stdout: str) -> dict[str, Any]:
    """A program that succeeded with this output."""
    return {"argv": [], "rc": 0, "stdout": stdout, "stderr": "", "timed_out": False, "missing": False}


def pci_devices() -> list[dict[str, Any]]:
    """The bus as sysfs shows it: 8 GPUs, 6 NVSwitches and 3 RDMA adapters."""
    gpus = [("0x030200", "0x20b2", bus, "16.0 GT/s PCIe", "16") for bus in BUSES]
    switches = [("0x068000", "0x1af1", bus, "8.0 GT/s PCIe", "2") for bus in SWITCH_BUSES]
    nvidia = [
        {
            "address": f"0000:{bus}:00.0",
            "vendor": "0x10de",
            "class": kind,
            "device": device,
            "link_speed": speed,
            "link_width": width,
            "max_link_speed": speed,
            "max_link_width": width,
            "numa_node": "0",
            "driver": "nvidia",
            "answers": True,
        }
        for kind, device, bus, speed, width in gpus + switches
    ]
    return nvidia + rdma_devices()


def room(path: str) -> dict[str, Any]:
    """A file system with room."""
    return {
        "path": path,
        "size_bytes": 500_000_000_000,
        "free_bytes": 400_000_000_000,
        "inodes": 30_000_000,
        "inodes_free": 29_000_000,
        "read_only": False,
    }


def probe_record(node: int) -> dict[str, Any]:
    """The record of a healthy node."""
    unit = {
        "rc": 0,
        "LoadState": "loaded",
        "ActiveState": "active",
        "SubState": "running",
        "Result": "success",
    }
    return {
        "probe": 1,
        "errors": {},
        "duration_s": 1.0,
        "host": {
            "hostname": f"gpu{node:02d}",
            "boot_id": f"{node:032x}",
            "kernel": "6.1.0-40-amd64",
            "architecture": "x86_64",
            "os": {"ID": "debian", "VERSION_ID": "12", "PRETTY_NAME": "Debian GNU/Linux 12 (bookworm)"},
            "uptime_s": 3600.0,
            "cpus": 256,
            "product": "GPU server 8",
            "bios": "1.3.8",
        },
        "nvidia_smi": program(smi_xml(node)),
        "gpu_list": program(gpu_list_text(node)),
        "topology": program(topology_text()),
        "nvlink": program(nvlink_text(node)),
        "nvlink_errors": program(nvlink_errors_text(node)),
        "pcie_replays": {**program(""), "counts": replay_counts()},
        "peer_access": {way: program(peer_access_text()) for way in ("r", "w", "n")},
        "pci": pci_devices(),
        "module": {
            "proc": f"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {DRIVER}",
            "version": DRIVER,
        },
        "fabric_manager": {"unit": unit, "version": program(f"Fabric Manager version is : {DRIVER}\n")},
        "toolkit": program("NVIDIA Container Toolkit CLI version 1.18.1\ncommit: 0\n"),
        "docker": program('{"ServerVersion": "20.10.24", "CgroupDriver": "cgroupfs"}\n'),
        "containerd": program(
            "containerd github.com/containerd/containerd 1.6.20~ds1 1.6.20~ds1-1+deb12u3\n"
        ),
        "container_gpus": program(gpu_list_text(node)),
        "container_gpus_as_user": program(gpu_list_text(node)),
        "kernel_log": {
            "source": "journal",
            "rc": 0,
            "lines": 900,
            "first": "2026-11-20T09:00:00.000000+0000 gpu01 kernel: Linux version 6.",
            "from_boot": True,
            "kept": [],
            "dropped": 0,
        },
        "nics": [
            {
                "name": "eth0",
                "speed_mbps": NIC_MBPS,
                "state": "up",
                "mtu": 1500,
                "mac": "02:00:00:00:00:01",
                "addresses": [f"192.0.2.{node}/24"],
                "default_route": True,
                "physical": True,
            },
            storage_nic(node),
        ],
        "rdma": rdma_ports(),
        "dcgm": {"version": program("version: 4.2.3\n"), "level": "2", "diag": program(dcgm4_text(8))},
        **link_parts(node),
        **host_parts(),
        **machine_parts(NOON),
        "memory": {
            "MemTotal": 1_000_000_000,
            "MemAvailable": 990_000_000,
            "SwapTotal": 0,
            "HugePages_Total": 0,
        },
        "storage": [room(path) for path in PLACES],
        "shared_memory": room("/dev/shm"),  # noqa: S108 - a name
        "name_service": {
            "name": REGISTRY,
            "addresses": ["192.0.2.200"],
            "because": "",
            "servers": [{"address": f"192.0.2.{n}", "rcode": 0, "because": ""} for n in (201, 202)],
        },
        "registry": {"host": REGISTRY, "port": 5000, "status": 200, "stage": "http", "because": ""},
        "clock": {"time": NOON, "synchronised": True},
        "clock_began": NOON + 0.4,
        "clock_ended": NOON + 1.4,
        "busy": {"reasons": [], "unknown": []},
    }


def job(name: str, nodes: Sequence[str], verdicts: Sequence[Mapping[str, Any]]) -> JobOutcome:
    """A job that succeeded, one rank per node."""
    ranks = tuple(
        RankOutcome(rank, node, RankState.OK, verdict=verdict, exit_code=0)
        for rank, (node, verdict) in enumerate(zip(nodes, verdicts))
    )
    return JobOutcome(name, ranks, 5.0)


def transport_job(names: Sequence[str]) -> JobOutcome:
    """The all-reduce over NCCL, a rank a GPU, with what NCCL said of its transports."""
    logs = nccl_logs(names)
    ranks = tuple(
        RankOutcome(
            rank,
            names[rank // 8],
            RankState.OK,
            gpu=rank % 8,
            verdict={**all_reduce_verdict(rank, len(logs), (1 << 30,)), "backend": "nccl"},
            exit_code=0,
            nccl_log=log,
        )
        for rank, log in enumerate(logs)
    )
    facts = {"backend": "nccl", "interfaces": dict.fromkeys(names, "eth0")}
    return JobOutcome("nccl_transport", ranks, 5.0, facts=facts)


def spec(nodes: int = 3) -> ClusterSpec:
    """What the operator of this cluster declared."""
    return ClusterSpec(
        name="sample",
        nodes=tuple(
            NodeSpec(
                f"gpu{n:02d}",
                f"192.0.2.{n}",
                gpu_count=8,
                gpu_model=MODEL,
                profile=PROFILE,
                memory_gib=968,
                nvme=2,
            )
            for n in range(1, nodes + 1)
        ),
        driver_version=DRIVER,
        driver_branch="580",
        image=IMAGE,
        mounts=MOUNTS,
    )


def _trainings(names: Sequence[str]) -> dict[str, JobOutcome]:
    whole = [training_verdict(rank, len(names)) for rank in range(len(names))]
    made = {}
    for name in ("training_paddle", "training_torch"):
        made[name] = job(name, names, whole)
        made[f"{name}_one"] = job(f"{name}_one", names[:1], [training_verdict(0, 1)])
    return made


def healthy(nodes: int = 3, pair_rounds: int | None = None) -> Evidence:
    """Everything as it should be. Of many nodes only so many rounds of pairs: all are their square."""
    declared = spec(nodes)
    names = [node.name for node in declared.nodes]
    sizes = (8, 1 << 20, 16 << 20, 64 << 20)
    rounds = round_robin(nodes, pair_rounds)
    looked_at = {
        name: NodeEvidence(name, probe_record(n), asked=(NOON, NOON + 1.6))
        for n, name in enumerate(names, start=1)
    }
    return Evidence(
        spec=declared,
        nodes=looked_at,
        later=looked_at,
        profiles={PROFILE: profiles.load(PROFILE)},
        jobs={
            "peer_ports": job("peer_ports", names, [peer_ports_verdict(r, nodes) for r in range(nodes)]),
            "all_reduce": job(
                "all_reduce", names, [all_reduce_verdict(r, nodes, sizes) for r in range(nodes)]
            ),
            "nccl_transport": transport_job(names),
            "rdma_write": job(
                "rdma_write", names, [rdma_write_verdict(r, names, pair_rounds) for r in range(nodes)]
            ),
            "nccl_tests": job("nccl_tests", names, [nccl_tests_verdict(r, names) for r in range(nodes)]),
            "storage_io": job("storage_io", names, [storage_verdict(r, names) for r in range(nodes)]),
            "cpu_stream": job("cpu_stream", names, [stream_verdict(r, nodes) for r in range(nodes)]),
            "gpudirect_write": job(
                "gpudirect_write", names, [gpudirect_verdict(r, names) for r in range(nodes)]
            ),
            "nccl_loopback": job("nccl_loopback", names, [loopback_verdict(r, names) for r in range(nodes)]),
            "collectives": job(
                "collectives", names, [collectives_verdict(r, nodes, sizes) for r in range(nodes)]
            ),
            "pairs": job("pairs", names, [pairs_verdict(r, nodes, rounds) for r in range(nodes)]),
            "data_parallel": job(
                "data_parallel", names, [data_parallel_verdict(r, nodes) for r in range(nodes)]
            ),
            "run_check": job("run_check", names, [run_check_verdict(r, nodes) for r in range(nodes)]),
            "sharding": job("sharding", names, [sharding_verdict(r, nodes) for r in range(nodes)]),
            **{name: gpus.outcome(name, names, [f"0000:{bus}:00.0" for bus in BUSES]) for name in gpus.JOBS},
            "inference": job("inference", names, [inference_verdict(r, nodes) for r in range(nodes)]),
            **_trainings(names),
            "recipes": gpu_job("recipes", names, recipes_verdict),
            "paddle_launch": job("paddle_launch", names, [launch_verdict(r, nodes) for r in range(nodes)]),
            "paddle_inference": gpu_job("paddle_inference", names, predictor_verdict),
            "step_trace": gpu_job("step_trace", names, step_verdict),
            "sharding_stages": gpu_job("sharding_stages", names, stages_verdict),
            "data_loading": gpu_job("data_loading", names, loading_verdict),
        },
    )
