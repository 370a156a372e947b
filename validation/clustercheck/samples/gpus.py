"""What the programs for one GPU say on healthy A100-SXM4-80GB: values made up, near measured ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from clustercheck.launch.model import JobOutcome, RankOutcome, RankState

GPUS = 8
MODEL = "NVIDIA A100-SXM4-80GB"
FIGURES: dict[str, dict[str, tuple[float, str]]] = {
    "gpu_gemm": {
        "gemm_fp64": (18.9, "TFLOPS"),
        "gemm_fp32": (18.9, "TFLOPS"),
        "gemm_tf32": (132.0, "TFLOPS"),
        "gemm_fp16": (276.0, "TFLOPS"),
        "gemm_bf16": (268.0, "TFLOPS"),
    },
    "gpu_memory": {"device_copy": (1720.0, "GB/s"), "device_triad": (1760.0, "GB/s")},
    "gpu_pattern": {},
    "gpu_launch": {
        "kernel_launch_event": (6.1, "us"),
        "kernel_launch_wall": (14.0, "us"),
        "kernel_launch_stream": (4.8, "us"),
    },
    "gpu_transfer": {"host_to_device": (25.9, "GB/s"), "device_to_host": (26.0, "GB/s")},
    "gpu_peers": {"peer_to_peer": (270.0, "GB/s"), "peer_latency": (2.2, "us")},
    "gpu_exchange": {"peer_both_ways": (510.0, "GB/s")},
    "gpu_burn": {"burn_bf16": (255.0, "TFLOPS")},
}
JOBS = tuple(FIGURES)
WATCH = {
    "samples": 32,
    "because": "",
    "temperature_c": 64.0,
    "power_w": 398.0,
    "pcie_generation": 4.0,
    "pcie_width": 16.0,
    "pcie_generation_possible": 4.0,
    "pcie_width_possible": 16.0,
    "sm_clock_mhz_lowest": 1245.0,
    "reasons": ["sw_power_cap"],
    "uncorrected_before": 0,
    "uncorrected_after": 0,
}
PATTERNS = {
    "asked_bytes": 72 << 30,
    "tested_bytes": 72 << 30,
    "patterns": 69,
    "errors": 0,
    "first_errors": [],
    "bits_in_error": "0x00000000",
}


PROPERTIES = {
    "name": MODEL,
    "kind": "gpu",
    "memory_bytes": 80 << 30,
    "sm_count": 108,
    "l2_bytes": 40 << 20,
    "rates": {
        "sm_clock_khz": 1_410_000,
        "memory_clock_khz": 1_593_000,
        "memory_bus_bits": 5120,
        "compute_capability": 80,
    },
}


@dataclass(frozen=True)
class GpuBoard:
    """The GPUs of one node: how many, what each says of itself, and by program what it reaches.

    ``all_at_once_gbps`` is each way between two of them while all copy.
    """

    gpus: int = GPUS
    properties: Mapping[str, Any] = field(default_factory=lambda: PROPERTIES)
    figures: Mapping[str, Mapping[str, tuple[float, str]]] = field(default_factory=lambda: FIGURES)
    watch: Mapping[str, Any] = field(default_factory=lambda: WATCH)
    all_at_once_gbps: float = 262.0


HGX_A100 = GpuBoard()


def described(rank: int, gpu: int, address: str | None, board: GpuBoard = HGX_A100) -> dict[str, Any]:
    """What every rank says of itself and its GPU."""
    return {
        "rank": rank,
        "world": 1,
        "backend": "gpu",
        "device": f"gpu:{gpu}",
        "framework": "paddle 3.3.1",
        "timer": "CUDA events",
        "simulated": False,
        "properties": {**board.properties, "pci_address": address},
    }


def links(rank: int, addresses: Sequence[str | None], board: GpuBoard = HGX_A100) -> dict[str, Any]:
    """What copies to the node's other GPUs gave."""
    others = [str(address) for number, address in enumerate(addresses) if number != rank % board.gpus]
    gbps, latency_us = (value for value, _ in board.figures["gpu_peers"].values())
    return {
        other: {"gbps": gbps + number / 10, "latency_us": latency_us, "direct": True, "wrong_bytes": 0}
        for number, other in enumerate(others)
    }


def exchanges(rank: int, addresses: Sequence[str | None], board: GpuBoard = HGX_A100) -> dict[str, Any]:
    """What copies at the same time gave; the first GPU says what all of them reached together."""
    places = [str(address) for address in addresses]
    others = [place for number, place in enumerate(places) if number != rank % board.gpus]
    gbps = board.figures["gpu_exchange"]["peer_both_ways"][0]
    together = {
        place: {
            "gbps": {target: board.all_at_once_gbps + number / 10 for target in places if target != place},
            "wrong": {},
        }
        for number, place in enumerate(places)
    }
    return {
        "both_ways": {
            other: {"gbps": gbps + number / 10, "direct": True} for number, other in enumerate(others)
        },
        "together": {} if rank % board.gpus or not others else together,
    }


def rank_record(
    job: str, rank: int, addresses: Sequence[str | None] = (None,) * GPUS, board: GpuBoard = HGX_A100
) -> dict[str, Any]:
    """What a program says, a little otherwise on each GPU; copies between GPUs nothing of a single one."""
    factor = 1 + (rank * 5 % 7 - 3) / 1000
    wanted = {} if board.gpus == 1 and job in ("gpu_peers", "gpu_exchange") else board.figures[job]
    found = [
        {"metric": metric, "value": value * factor, "unit": unit, "method": "made up", "size": 8192}
        for metric, (value, unit) in wanted.items()
    ]
    verdict: dict[str, Any] = {"ok": True, "because": "", "figures": found}
    if job == "gpu_pattern":
        verdict["pattern_test"] = dict(PATTERNS)
    if job == "gpu_burn":
        verdict["burn"] = {"seconds": 60.2, "errors": 0, "windows": []}
    if job == "gpu_peers":
        verdict["peers"] = links(rank, addresses, board)
    if job == "gpu_exchange":
        verdict |= exchanges(rank, addresses, board)
    if job in ("gpu_burn", "gpu_transfer"):
        verdict["watch"] = dict(board.watch)
    return verdict


def programs(
    jobs: Sequence[str], rank: int, addresses: Sequence[str | None] = (None,) * GPUS
) -> dict[str, Any]:
    """What a rank says that ran several of them."""
    return {"ok": True, "because": "", "programs": {job: rank_record(job, rank, addresses) for job in jobs}}


def outcome(
    job: str, nodes: Sequence[str], addresses: Sequence[str] = (), board: GpuBoard = HGX_A100
) -> JobOutcome:
    """A job that succeeded on every GPU of these nodes."""
    places = [(node, gpu) for node in nodes for gpu in range(board.gpus)]
    ranks = tuple(
        RankOutcome(
            rank,
            node,
            RankState.OK,
            gpu=gpu,
            verdict={
                **described(rank, gpu, addresses[gpu] if addresses else None, board),
                **rank_record(job, rank, addresses or (None,) * board.gpus, board),
            },
            exit_code=0,
        )
        for rank, (node, gpu) in enumerate(places)
    )
    return JobOutcome(job, ranks, 20.0, facts={"backend": "gpu"})
