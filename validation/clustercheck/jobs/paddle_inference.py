"""Latency by Paddle Inference, as a service has it: models that are exported, and loaded by a predictor.

The models of inference.py. A request copies its input to the device, runs and copies the answer back; it is
compared with what the same model answers without being exported. Each rank by itself, all in parallel.
"""

from __future__ import annotations

import importlib
import math
import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from clustercheck.jobs import models, training
    from clustercheck.jobs.rank import World
else:  # on a node they are single files, not a package
    models, training = (
        importlib.import_module(f"{__package__}.{name}" if __package__ else name)
        for name in ("models", "training")
    )

GPU_POOL_MB = 500  # to begin with
# Of the largest value: fused layers round otherwise. Five units of BF16, 2^-8, as in inference-latency.
TOLERANCE = 5 * 2**-8


def run(world: World, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments: ``on_gpu`` and ``on_cpu``, each with requests, warmup and models; seed.

    Each model has by its name a shape (of the input) and sizes (of `models`).
    """
    nn: Any = importlib.import_module("frameworks.paddle").PaddleFramework(world)
    chosen, seed = arguments["on_gpu" if world.on_gpu else "on_cpu"], int(arguments.get("seed", 1))
    cases = [_measure_model(world, nn, name, chosen, seed) for name in chosen["models"]]
    bad = [f"{case['model']}: {why}" for case in cases if (why := answer_problem(case))]
    return {"cases": cases, "ok": not bad, "because": "; ".join(bad)}


def answer_problem(case: Mapping[str, Any]) -> str:
    """What is wrong with what the predictor answers; empty if nothing is."""
    difference = case["difference"]
    if difference is None or not difference <= TOLERANCE:
        return (
            f"the predictor's answer differs by {difference} of its largest value from the model's before "
            f"its export ({TOLERANCE:.2g} is allowed)"
        )
    return ""


def _measure_model(world: World, nn: Any, name: str, chosen: Mapping[str, Any], seed: int) -> dict[str, Any]:
    numpy: Any = importlib.import_module("numpy")  # comes with the framework, only on nodes

    options, count = chosen["models"][name], int(chosen["requests"])
    world.set_phase(f"{name}: building the model")
    model = models.build(nn, name, options.get("sizes") or {}, seed)
    model.eval()
    shape = [int(size) for size in options["shape"]]
    picture = numpy.random.default_rng(seed).standard_normal(shape, dtype="float32")
    with nn.no_grad(), nn.computing("fp32"):
        expected = nn.host(model(nn.tensor(picture)))
    world.set_phase(f"{name}: exporting the model")
    predictor = make_predictor(world, _export(model, shape, Path(f"exported-{name}-{world.rank}").absolute()))
    given = predictor.get_input_handle(predictor.get_input_names()[0])
    answers: list[Any] = []

    def request() -> None:
        given.copy_from_cpu(picture)
        predictor.run()
        answers[:] = [predictor.get_output_handle(predictor.get_output_names()[0]).copy_to_cpu()]

    for _ in range(max(1, int(chosen.get("warmup", 10)))):
        request()
    world.set_phase(f"{name}: waiting for the others", collective=True)
    world.barrier()
    world.set_phase(f"{name}: {count} requests")
    times = [world.measure_time(request) for _ in range(count)]
    answer = answers[0]
    difference = float(abs(answer - expected).max()) / max(float(abs(expected).max()), math.ulp(1.0))
    mean, deviation = float(answer.mean()), float(answer.std())
    return {
        "model": name,
        "shape": shape,
        "requests": count,
        "p50_s": statistics.median(times),
        "p99_s": training.percentile(times, 0.99),
        "max_s": max(times),
        "output_mean": mean if math.isfinite(mean) else None,
        "output_std": deviation if math.isfinite(deviation) else None,
        "difference": difference if math.isfinite(difference) else None,
    }


def _export(model: Any, shape: list[int], base: Path) -> tuple[str, str]:
    """The files of the program and of its parameters."""
    paddle: Any = importlib.import_module("paddle")
    paddle.jit.save(model, str(base), input_spec=[paddle.static.InputSpec(shape=shape, dtype="float32")])
    programs = [base.with_name(f"{base.name}.{kind}") for kind in ("json", "pdmodel")]  # Paddle 3, 2
    program = next(path for path in programs if path.is_file())
    return str(program), str(base.with_name(f"{base.name}.pdiparams"))


def make_predictor(world: World, files: tuple[str, str]) -> Any:
    """A predictor on this rank's device."""
    inference: Any = importlib.import_module("paddle.inference")
    config = inference.Config(*files)
    config.disable_glog_info()
    if world.on_gpu:
        config.enable_use_gpu(GPU_POOL_MB, int(world.device.partition(":")[2]))
    else:
        config.disable_gpu()
        # The default in Paddle 3.3, whose oneDNN cannot run what upsamples.
        disable = getattr(config, "disable_onednn", None) or getattr(config, "disable_mkldnn", None)
        if disable is not None:
            disable()
    return inference.create_predictor(config)
