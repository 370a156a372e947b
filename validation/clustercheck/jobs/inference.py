"""Latency of text detection and recognition, one request at a time: convolutions of the size of OCR.

A request's time is the host's, from the call until the device is done: what a service sees. All ranks run
in parallel, each by itself; models and inputs are the same on all, and so must the results be.
"""

from __future__ import annotations

import importlib
import math
import statistics
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from clustercheck.jobs import models, training
    from clustercheck.jobs.rank import World
else:  # on a node they are single files, not a package
    models, training = (
        importlib.import_module(f"{__package__}.{name}" if __package__ else name)
        for name in ("models", "training")
    )


def run(world: World, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments: ``on_gpu`` and ``on_cpu``, each with requests, warmup and models; seed.

    Each model has by its name a shape (of the input) and sizes (of `models`).
    """
    nn: Any = importlib.import_module("frameworks.paddle").PaddleFramework(world)
    chosen, seed = arguments["on_gpu" if world.on_gpu else "on_cpu"], int(arguments.get("seed", 1))
    cases = [_measure_model(world, nn, name, chosen, seed) for name in chosen["models"]]
    bad = [
        f"{case['model']} returned values that are not finite"
        for case in cases
        if case["output_mean"] is None
    ]
    return {"cases": cases, "ok": not bad, "because": "; ".join(bad)}


def _measure_model(world: World, nn: Any, name: str, chosen: Mapping[str, Any], seed: int) -> dict[str, Any]:
    numpy: Any = importlib.import_module("numpy")  # comes with the framework, only on nodes

    options = chosen["models"][name]
    world.set_phase(f"{name}: building the model")
    model = models.build(nn, name, options.get("sizes") or {}, seed)
    model.eval()
    shape = tuple(int(size) for size in options["shape"])
    picture = nn.tensor(numpy.random.default_rng(seed).standard_normal(shape, dtype="float32"))
    answers: list[Any] = []

    def request() -> None:
        answers[:] = [model(picture)]

    count = int(chosen["requests"])
    with nn.no_grad(), nn.computing("fp32"):
        for _ in range(max(1, int(chosen.get("warmup", 10)))):
            request()
        world.set_phase(f"{name}: waiting for the others", collective=True)
        world.barrier()
        world.set_phase(f"{name}: {count} requests")
        times = [world.measure_time(request) for _ in range(count)]
    answer = nn.host(answers[0])
    mean, deviation = float(answer.mean()), float(answer.std())
    return {
        "model": name,
        "shape": list(shape),
        "requests": count,
        "p50_s": statistics.median(times),
        "p99_s": training.percentile(times, 0.99),
        "max_s": max(times),
        "output_mean": mean if math.isfinite(mean) else None,
        "output_std": deviation if math.isfinite(deviation) else None,
    }
