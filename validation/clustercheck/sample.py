"""A healthy cluster's evidence, written by hand: what self-tests plant faults in.

Three nodes of 8 x A100-SXM4-80GB with NVSwitch, driver 580, in the words of the programs that print them.
The elements are those of captures that NVIDIA publishes (k8s-test-infra, Apache-2.0); values are made up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from clustercheck import sample_gpus
from clustercheck.evidence import Evidence
from clustercheck.expect import profiles
from clustercheck.jobs.operation import FACTORS
from clustercheck.launch.model import JobOutcome, RankOutcome, RankState
from clustercheck.locate.rounds import round_robin
from clustercheck.model import ClusterSpec, NodeSpec
from clustercheck.node_evidence import NodeEvidence
from clustercheck.sample_dcgm import dcgm4_text
from clustercheck.sample_host import MOUNTS, host_parts
from clustercheck.sample_links import RDMA, link_parts, rdma_devices, rdma_ports, storage_nic
from clustercheck.sample_nccl import nccl_logs
from clustercheck.sample_nccl_tests import nccl_tests_verdict
from clustercheck.sample_rdma import rdma_write_verdict

PROFILE = "hgx-a100-80gb"
MODEL = "NVIDIA A100-SXM4-80GB"
DRIVER = "580.95.05"
REGISTRY = "registry01"
IMAGE = f"{REGISTRY}:5000/library/paddle@sha256:" + "0" * 64
BUSES = ("07", "0f", "47", "4e", "87", "90", "b7", "bd")
SWITCH_BUSES = ("c4", "c5", "c6", "c7", "c8", "c9")
NIC_MBPS = 25_000
PLACES = ("/", "/tmp", "/var/tmp", "/var/log", "/var/lib/clusterctl", "/var/lib/docker")  # noqa: S108 - names
NOON = 1_795_000_000.0


def program(stdout: str) -> dict[str, Any]:
    """A program that ended well with this output."""
    return {"argv": [], "rc": 0, "stdout": stdout, "stderr": "", "timed_out": False, "missing": False}


def uuid(node: int, gpu: int) -> str:
    """The identity of a GPU."""
    return f"GPU-{node:08x}-0000-0000-0000-{gpu:012x}"


def smi_xml(node: int, gpus: int = 8, driver: str = DRIVER) -> str:
    """What `nvidia-smi -q -x` prints."""
    entries = "".join(_gpu_xml(node, gpu) for gpu in range(gpus))
    return (
        '<?xml version="1.0" ?>\n<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v13.dtd">\n<nvidia_smi_log>\n'
        f"<timestamp>Fri Nov 20 10:00:00 2026</timestamp><driver_version>{driver}</driver_version>"
        f"<cuda_version>13.0</cuda_version><attached_gpus>{gpus}</attached_gpus>\n{entries}</nvidia_smi_log>\n"
    )


def _leaves(**values: object) -> str:
    return "".join(f"<{name}>{value}</{name}>" for name, value in values.items())


def _gpu_xml(node: int, gpu: int) -> str:
    address = f"00000000:{BUSES[gpu].upper()}:00.0"
    errors = _leaves(
        sram_correctable=0,
        sram_uncorrectable_parity=0,
        sram_uncorrectable_secded=0,
        dram_correctable=0,
        dram_uncorrectable=0,
    )
    remapped = _leaves(
        remapped_row_corr=0, remapped_row_unc=0, remapped_row_pending="No", remapped_row_failure="No"
    )
    reasons = _leaves(
        **{
            f"clocks_event_reason_{name}": "Active" if name == "gpu_idle" else "Not Active"
            for name in (
                "gpu_idle",
                "sw_power_cap",
                "hw_slowdown",
                "hw_thermal_slowdown",
                "hw_power_brake_slowdown",
                "sync_boost",
                "sw_thermal_slowdown",
            )
        }
    )
    link = (
        f"<pcie_gen>{_leaves(max_link_gen=4, current_link_gen=4)}</pcie_gen>"
        f"<link_widths>{_leaves(max_link_width='16x', current_link_width='16x')}</link_widths>"
    )
    return (
        f'<gpu id="{address}">'
        + _leaves(product_name=MODEL, product_architecture="Ampere", persistence_mode="Enabled")
        + f"<mig_mode>{_leaves(current_mig='Disabled', pending_mig='Disabled')}</mig_mode>"
        + _leaves(
            serial=f"16500{node:04d}{gpu:04d}",
            uuid=uuid(node, gpu),
            minor_number=gpu,
            vbios_version="92.00.45.00.03",
        )
        + f"<platformInfo>{_leaves(module_id=gpu + 1)}</platformInfo>"
        + _leaves(gpu_recovery_action="None")
        + f"<pci>{_leaves(pci_bus_id=address)}<pci_gpu_link_info>{link}</pci_gpu_link_info></pci>"
        + f"<clocks_event_reasons>{reasons}</clocks_event_reasons>"
        + f"<utilization>{_leaves(gpu_util='0 %')}</utilization>"
        + f"<fb_memory_usage>{_leaves(total='81920 MiB', used='0 MiB')}</fb_memory_usage>"
        + f"<ecc_mode>{_leaves(current_ecc='Enabled', pending_ecc='Enabled')}</ecc_mode>"
        + f"<ecc_errors><volatile>{errors}</volatile><aggregate>{errors}"
        + f"{_leaves(sram_threshold_exceeded='No')}</aggregate></ecc_errors>"
        + f"<retired_pages>{_leaves(pending_retirement='N/A')}</retired_pages>"
        + f"<remapped_rows>{remapped}</remapped_rows></gpu>\n"
    )


def nvlink_text(node: int, gpus: int = 8) -> str:
    """What `nvidia-smi nvlink -s` prints."""
    links = "".join(f"\t Link {link}: 25 GB/s\n" for link in range(12))
    return "".join(f"GPU {gpu}: {MODEL} (UUID: {uuid(node, gpu)})\n{links}" for gpu in range(gpus))


def gpu_list_text(node: int, gpus: int = 8) -> str:
    """What `nvidia-smi -L` prints."""
    return "".join(f"GPU {gpu}: {MODEL} (UUID: {uuid(node, gpu)})\n" for gpu in range(gpus))


def nvlink_errors_text(node: int, gpus: int = 8) -> str:
    """What `nvidia-smi nvlink -e` prints."""
    names = ("Replay", "Recovery", "CRC")
    links = "\n".join("".join(f"\t Link {link}: {name} Errors: 0\n" for name in names) for link in range(12))
    return "".join(f"GPU {gpu}: {MODEL} (UUID: {uuid(node, gpu)})\n{links}" for gpu in range(gpus))


def topology_text(gpus: int = 8, nics: int = len(RDMA)) -> str:
    """What `nvidia-smi topo -m` prints."""
    names = [f"GPU{gpu}" for gpu in range(gpus)]

    def near(gpu: int, nic: int) -> str:
        return "PXB" if nic == 2 * gpu // gpus else "SYS"

    rows = [
        "\t".join(
            [
                name,
                *(" X " if name == other else "NV12" for other in names),
                *(near(gpu, nic) for nic in range(nics)),
                "0-63",
                "0",
            ]
        )
        for gpu, name in enumerate(names)
    ]
    rows += [
        "\t".join(
            [
                f"NIC{nic}",
                *(near(gpu, nic) for gpu in range(gpus)),
                *(" X " if nic == other else "SYS" for other in range(nics)),
            ]
        )
        for nic in range(nics)
    ]
    head = "\t".join(["", *names, *(f"NIC{nic}" for nic in range(nics)), "CPU Affinity", "NUMA Affinity"])
    legend = [f"  NIC{nic}: {RDMA[nic][0]}" for nic in range(nics)]
    return "\n".join([head, *rows, "", "Legend:", "", "  X    = Self", "", "NIC Legend:", "", *legend, ""])


def peer_access(gpus: int = 8) -> dict[str, Any]:
    """What `nvidia-smi topo -p2p` prints for reading, writing and NVLink."""
    names = [f"GPU{gpu}" for gpu in range(gpus)]
    rows = [
        "\t".join([f" {name}", *("X" if name == other else "OK" for other in names), ""]) for name in names
    ]
    text = "\n".join(["\t".join([" ", *names, ""]), *rows, "", "Legend:", "", "  X    = Self", ""])
    return {way: program(text) for way in ("r", "w", "n")}


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
    listed = "".join(f"GPU {gpu}: {MODEL} (UUID: {uuid(node, gpu)})\n" for gpu in range(8))
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
            "os": {"ID": "debian", "VERSION_ID": "12", "PRETTY_NAME": "Debian GNU/Linux 12 (bookworm)"},
            "uptime_s": 3600.0,
        },
        "nvidia_smi": program(smi_xml(node)),
        "gpu_list": program(gpu_list_text(node)),
        "topology": program(topology_text()),
        "nvlink": program(nvlink_text(node)),
        "nvlink_errors": program(nvlink_errors_text(node)),
        "peer_access": peer_access(),
        "pci": pci_devices(),
        "module": {
            "proc": f"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {DRIVER}",
            "version": DRIVER,
        },
        "fabric_manager": {"unit": unit, "version": program(f"Fabric Manager version is : {DRIVER}\n")},
        "toolkit": program("NVIDIA Container Toolkit CLI version 1.18.1\ncommit: 0\n"),
        "docker": program('{"ServerVersion": "20.10.24", "CgroupDriver": "cgroupfs"}\n'),
        "container_gpus": program(listed),
        "container_gpus_as_user": program(listed),
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
        "memory": {"MemTotal": 1_000_000_000, "MemAvailable": 990_000_000},
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


def all_reduce_verdict(rank: int, world: int, sizes: Sequence[int], gbps: float = 2.0) -> dict[str, Any]:
    """What a rank of the all-reduce job says."""
    factor = 2 * (world - 1) / world if world > 1 else 1.0
    points = [
        {
            "bytes": size,
            "time_s_median": size * factor / (gbps * 1e9),
            "algbw_gbps": gbps / factor,
            "busbw_gbps": gbps,
            "correct": True,
            "max_abs_error": 0.0,
        }
        for size in sizes
    ]
    return {**described(rank, world), "points": points, "ok": True, "because": ""}


def collectives_verdict(rank: int, world: int, sizes: Sequence[int], gbps: float = 2.0) -> dict[str, Any]:
    """What a rank of the collectives job says, where its backend has them all."""
    factors = {name: factor(world) for name, factor in FACTORS.items() if name != "all_reduce"}
    points = [
        {
            "collective": name,
            "bytes": size,
            "time_s_median": size * factor / (gbps * 1e9),
            "algbw_gbps": gbps / (factor or 1.0),
            "busbw_gbps": gbps,
            "correct": True,
            "max_abs_error": 0.0,
        }
        for name, factor in factors.items()
        for size in sizes
    ]
    return {**described(rank, world), "points": points, "not_done": {}, "ok": True, "because": ""}


def described(rank: int, world: int) -> dict[str, Any]:
    """What every rank says of itself."""
    return {
        "rank": rank,
        "world": world,
        "backend": "gloo",
        "device": "cpu",
        "framework": "paddle 3.3.1",
        "interface": "eth0",
        "simulated": False,
    }


def pairs_verdict(
    rank: int, world: int, rounds: Sequence[Sequence[Sequence[int]]], gbps: float = 2.2
) -> dict[str, Any]:
    """What a rank of the pairs job says."""
    mine = [
        {
            "ranks": list(ranks),
            "round": number,
            "bytes": 16 << 20,
            "time_s_median": 0.01,
            "busbw_gbps": gbps,
            "correct": True,
        }
        for number, trials in enumerate(rounds)
        for ranks in trials
        if rank in ranks
    ]
    return {**described(rank, world), "trials": mine, "ok": True, "because": ""}


def data_parallel_verdict(rank: int, world: int) -> dict[str, Any]:
    """What a rank of the training job says."""
    losses = [0.5 * 0.9**step for step in range(20)]
    return {
        **described(rank, world),
        "losses": losses,
        "reference_losses": losses,
        "parameters_sha256": "a" * 64,
        "parameters_max_abs_difference": 0.0,
        "max_loss_difference": 4.8e-7,
        "tolerance": 1e-5,
        "ok": True,
        "because": "",
    }


def sharding_verdict(rank: int, world: int) -> dict[str, Any]:
    """What a rank of the sharded training says."""
    parts = {"own": 41_473 // world + 1, "all": 41_473}
    return {**data_parallel_verdict(rank, world), "shards": world, "copies": 1, "parameters": parts}


def training_verdict(rank: int, world: int) -> dict[str, Any]:
    """What a rank of the training jobs says: two models in float32."""
    cases = [
        {
            "model": model,
            "precision": "fp32",
            "batch": 8,
            "steps": 10,
            "step_s": 0.1,
            "samples_per_s": 80.0,
            "unit": unit,
            "peak_memory_bytes": None,
            "losses": [2.3 * 0.9**step for step in range(12)],
            "initial_sha256": "b" * 64,
            "parameters_sha256": "c" * 64,
            "parameters_spread": 0.0,
            "repeat_difference": 0.0,
            "fp32_difference": 0.0,
        }
        for model, unit in (("resnet50", "images/s"), ("bert_base", "sequences/s"))
    ]
    return {**described(rank, world), "cases": cases, "not_done": {}, "ok": True, "because": ""}


def inference_verdict(rank: int, world: int) -> dict[str, Any]:
    """What a rank of the inference job says."""
    cases = [
        {
            "model": model,
            "shape": [1, 3, 64, 64],
            "requests": 100,
            "p50_s": p50,
            "p99_s": 1.2 * p50,
            "max_s": 1.5 * p50,
            "output_mean": 0.45,
            "output_std": 0.05,
        }
        for model, p50 in (("ocr_det", 0.004), ("ocr_rec", 0.002))
    ]
    return {**described(rank, world), "cases": cases, "ok": True, "because": ""}


def job(name: str, nodes: Sequence[str], verdicts: Sequence[Mapping[str, Any]]) -> JobOutcome:
    """A job that ended well, one rank a node."""
    ranks = tuple(
        RankOutcome(rank, node, RankState.OK, verdict=verdict, exit_code=0)
        for rank, (node, verdict) in enumerate(zip(nodes, verdicts, strict=True))
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
                f"gpu{n:02d}", f"192.0.2.{n}", gpu_count=8, gpu_model=MODEL, profile=PROFILE, memory_gib=968
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
    return Evidence(
        spec=declared,
        nodes={
            name: NodeEvidence(name, probe_record(n), asked=(NOON, NOON + 1.6))
            for n, name in enumerate(names, start=1)
        },
        profiles={PROFILE: profiles.load(PROFILE)},
        jobs={
            "all_reduce": job(
                "all_reduce", names, [all_reduce_verdict(r, nodes, sizes) for r in range(nodes)]
            ),
            "nccl_transport": transport_job(names),
            "rdma_write": job("rdma_write", names, [rdma_write_verdict(r, names) for r in range(nodes)]),
            "nccl_tests": job("nccl_tests", names, [nccl_tests_verdict(r, names) for r in range(nodes)]),
            "collectives": job(
                "collectives", names, [collectives_verdict(r, nodes, sizes) for r in range(nodes)]
            ),
            "pairs": job("pairs", names, [pairs_verdict(r, nodes, rounds) for r in range(nodes)]),
            "data_parallel": job(
                "data_parallel", names, [data_parallel_verdict(r, nodes) for r in range(nodes)]
            ),
            "sharding": job("sharding", names, [sharding_verdict(r, nodes) for r in range(nodes)]),
            **{
                name: sample_gpus.outcome(name, names, [f"0000:{bus}:00.0" for bus in BUSES])
                for name in sample_gpus.JOBS
            },
            "inference": job("inference", names, [inference_verdict(r, nodes) for r in range(nodes)]),
            **_trainings(names),
        },
    )
