"""What a rank of each job says on a healthy cluster: values made up, near what processors over gloo give."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from clustercheck.jobs.operation import FACTORS
from clustercheck.jobs.peer_ports import list_partners

PEERS = 32  # as in every suite


def peer_ports_verdict(rank: int, world: int) -> dict[str, Any]:
    """What a rank says of whom it could connect to, and who connected to it."""
    after, before = list_partners(rank, world, PEERS)
    return {
        "rank": rank,
        "world": world,
        "interface": "eth0",
        "simulated": False,
        "reached": {str(peer): "" for peer in after},
        "heard": sorted(before),
        "listened": [1_795_000_000.0, 1_795_000_001.5],
        "ok": True,
        "because": "",
    }


def run_check_verdict(rank: int, world: int, gpus: int = 8) -> dict[str, Any]:
    """What a rank says of Paddle's run_check, on so many GPUs."""
    together = f"PaddlePaddle works well on {gpus} GPUs.\n" if gpus > 1 else ""
    text = (
        "Running verify PaddlePaddle program ...\nPaddlePaddle works well on 1 GPU.\n"
        f"{together}"
        "PaddlePaddle is installed successfully! Let's start deep learning with PaddlePaddle now.\n"
    )
    check = {"exit_code": 0, "limit_s": 180.0, "text": text, "json": "", "command": "python -c ..."}
    return {
        "rank": rank,
        "world": world,
        "interface": "eth0",
        "simulated": False,
        "check": check,
        "ok": True,
        "because": "",
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
    """What a rank of the training jobs says on a CPU: two models in float32."""
    cases = [
        {
            "model": model,
            "precision": "fp32",
            "batch": 8,
            "steps": 10,
            "step_s": 0.2,
            "samples_per_s": 40.0,
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


def stream_verdict(rank: int, count: int) -> dict[str, Any]:
    """The triad of two sockets of 64 cores, a little otherwise on each node; figures made up."""
    numa = {
        str(place): {"cores": 64, "gbps": 118.0 + 0.2 * (rank % 8) + 0.1 * place, "wrong": 0, "failed": 0}
        for place in range(2)
    }
    return {
        "rank": rank, "world": count, "interface": "eth0", "simulated": False, "ok": True, "because": "",
        "without": "", "numa": numa, "array_bytes": 32 << 20, "errors": [], "numpy": "1.26.4",
    }  # fmt: skip
