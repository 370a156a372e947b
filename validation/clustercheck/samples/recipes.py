"""What ways to train give on healthy A100-SXM4-80GB: values made up, near the formulas' and others'."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from clustercheck.launch.model import JobOutcome, RankOutcome, RankState
from clustercheck.samples.verdicts import inference_verdict

GPUS = 8
# By model: batch, seconds of a step in float32 without TF32, peak memory in bytes.
FP32 = {"resnet50": (128, 0.32, 12_400_000_000), "bert_base": (32, 0.24, 4_700_000_000)}
# By model and recipe: speed and memory, as parts of float32's.
RECIPES = {
    "resnet50": {"tf32": (1.7, 1.0), "amp": (2.6, 0.55)},
    "bert_base": {
        "tf32": (3.1, 1.0),
        "amp": (4.4, 0.78),
        "accumulation": (0.97, 0.47),
        "recomputation": (0.75, 0.4),
    },
}


def gpu_job(
    name: str, names: Sequence[str], verdict: Callable[[int, int], Mapping[str, Any]], gpus: int = GPUS
) -> JobOutcome:
    """A job over NCCL that succeeded, a rank a GPU."""
    count = gpus * len(names)
    ranks = tuple(
        RankOutcome(
            rank,
            names[rank // gpus],
            RankState.OK,
            gpu=rank % gpus,
            verdict={**verdict(rank, count), **described(rank, count, gpus)},
            exit_code=0,
        )
        for rank in range(count)
    )
    return JobOutcome(name, ranks, 5.0, facts={"backend": "nccl"})


def described(rank: int, world: int, gpus: int = GPUS) -> dict[str, Any]:
    """What every rank on a GPU says of itself."""
    return {
        "rank": rank,
        "world": world,
        "backend": "nccl",
        "device": f"gpu:{rank % gpus}",
        "framework": "paddle 3.3.1",
        "interface": "eth0",
        "simulated": False,
        "ok": True,
        "because": "",
    }


def recipes_verdict(
    rank: int, _world: int, recipes: Mapping[str, Mapping[str, tuple[float, float]]] = RECIPES
) -> dict[str, Any]:
    """What a rank says of all recipes, a little otherwise on each GPU."""
    factor = 1 + (rank * 5 % 7 - 3) / 1000
    cases = []
    for model, (batch, step_s, peak) in FP32.items():
        for recipe, (speed, memory) in {"fp32": (1.0, 1.0), **recipes[model]}.items():
            rounded = {"tf32": 2e-4, "amp": 8e-4}.get(recipe, 0.0)
            cases.append(
                {
                    "model": model,
                    "recipe": recipe,
                    "batch": batch,
                    "steps": 30,
                    "step_s": step_s / speed * (factor if recipe == "fp32" else 1.0),
                    "unit": "images/s" if model == "resnet50" else "sequences/s",
                    "peak_memory_bytes": int(peak * memory),
                    "losses": [(2.3 + rounded) * 0.95**step for step in range(12)],
                    "gradient_difference": {"fp32": 0.0, "tf32": 4e-4, "amp": 2e-3}.get(recipe, 2e-7),
                    "loss_difference": rounded / 2.3,
                    "loss_scale": 32768.0 if recipe == "amp" else None,
                }
            )
    return {"cases": cases, "not_done": {}}


def loading_verdict(rank: int, _world: int) -> dict[str, Any]:
    """What a rank says of training from files: of memory and of one declared path."""
    step_s = 0.128 * (1 + (rank * 5 % 7 - 3) / 1000)
    came = {"unable": "", "samples": 4096, "wrong": 0, "missing": 0, "twice": 0}
    loading = {
        "/dev/shm": {**came, "step_s": step_s / 0.985, "wait_part": 0.02},  # noqa: S108 - a name
        "/mnt/clusterctl-storage-0": {**came, "step_s": step_s / 0.97, "wait_part": 0.04},
        "/mnt/clusterctl-storage-1": {**came, "step_s": step_s / 0.98, "wait_part": 0.03},
    }
    return {"synthetic_step_s": step_s, "batch": 128, "workers": 8, "loading": loading}


def stages_verdict(_rank: int, world: int, gpus: int = GPUS) -> dict[str, Any]:
    """What a rank says of sharding stages: ZeRO's formulas for a BERT-base, and 1 GB of activations."""
    parameters, activations = 110_000_000, 1_000_000_000
    states = {"0": 16.0, "1": 8 + 8 / gpus, "2": 4 + 12 / world, "3": 16 / world}
    stages = {
        stage: {
            "losses": [2.3 * 0.99**step for step in range(8)],
            "peak_memory_bytes": int(each * parameters + activations),
            "parameters": parameters,
            "parameters_sha256": "d" * 64,
            "parameters_spread": 0.0,
            "loss_difference": 0.0 if stage == "0" else 3e-7,
        }
        for stage, each in states.items()
    }
    return {"without": "", "stages": stages, "not_done": {}, "shards": {"1": gpus, "2": world, "3": world}}


LAUNCHED_SHARE, LAUNCHED_EPOCHS = 5, 2


def launch_verdict(rank: int, nodes: int, gpus: int = GPUS) -> dict[str, Any]:
    """What a node's rank says of a plain script: the samples divided among the processes, one a GPU."""
    world = gpus * nodes
    whole = LAUNCHED_SHARE * world
    samples = whole - (world > 1)  # one is trained on twice, as in jobs/paddle_launch.py
    trainers = [
        {
            "rank": place,
            "world": world,
            "device": f"gpu:{place % gpus}",
            "seen": [
                [(number + epoch) % samples for number in range(place, whole, world)]
                for epoch in range(LAUNCHED_EPOCHS)
            ],
            "losses": [0.5, 0.3],
            "parameters_sha256": "e" * 64,
        }
        for place in range(rank * gpus, (rank + 1) * gpus)
    ]
    launched = {
        "exit_code": 0,
        "limit_s": 120.0,
        "text": "",
        "log": "",
        "json": "",
        "command": "python -m ...",
    }
    return {
        "rank": rank, "world": nodes, "interface": "eth0", "simulated": False, "ok": True, "because": "",
        "launched": launched, "trainers": trainers, "processes": gpus, "all_processes": world,
        "samples": samples, "epochs": LAUNCHED_EPOCHS,
    }  # fmt: skip


def predictor_verdict(rank: int, world: int) -> dict[str, Any]:
    """What a rank says of Paddle Inference, a little otherwise on each GPU."""
    factor = 1 + (rank * 5 % 7 - 3) / 1000
    cases = inference_verdict(rank, world)["cases"]
    return {"cases": [{**case, "p50_s": case["p50_s"] * factor, "difference": 1e-6} for case in cases]}


def step_verdict(rank: int, _world: int) -> dict[str, Any]:
    """What a rank says of its steps, a little otherwise on each GPU."""
    median_s = 0.055 * (1 + (rank * 5 % 7 - 3) / 1000)
    place = {"ph": "X", "pid": "1", "tid": "stream 7"}
    events = [{**place, "name": f"kernel {n}", "cat": "Kernel", "ts": 10.0 * n, "dur": 9.0} for n in range(3)]
    trace = {"traceEvents": events, "step_us": 1e6 * median_s, "steps": 5, "omitted": 900}
    return {
        "batch": 32, "steps": 50, "median_s": median_s, "slowest_s": 1.2 * median_s, "trace": trace,
        "unable": "",
    }  # fmt: skip
