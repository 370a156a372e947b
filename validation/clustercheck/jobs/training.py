"""Training of ResNet-50 and a BERT-base on synthetic data: speed, memory, and correctness.

The same batch in every step, so that the loss must fall. Parameters are float32; by precision products are in
float32, TF32, or cast to FP16 (with a fixed loss scale, since an adaptive scaler queries the device at every
step) or BF16. The timed part waits for the device only at its end: losses are read afterwards.
"""

from __future__ import annotations

import hashlib
import importlib
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from clustercheck.jobs import models
    from clustercheck.jobs.rank import World
else:  # on a node they are single files, not a package
    models = importlib.import_module(f"{__package__}.models" if __package__ else "models")

RATE = 0.01
LOSS_SCALE = 1024.0  # 2^10: dynamic scales settle near 2^15, where float16 (up to 65504) overflows
# Of the loss, between a precision and float32, and between two computations: five times BF16's 2^-8.
TOLERANCE = 5 * 2**-8
UNITS = {"resnet50": "images/s", "bert_base": "sequences/s"}


def make_batch(name: str, options: Mapping[str, Any], seed: int) -> tuple[Any, Any]:
    """Inputs and labels: images (3 x side x side) or words (length), and classes."""
    numpy: Any = importlib.import_module("numpy")  # comes with the framework, only on nodes

    generator, count = numpy.random.default_rng(seed), int(options["batch"])
    sizes = options.get("sizes") or {}
    if name == "bert_base":
        words = int(sizes.get("vocabulary", 30522))
        inputs = generator.integers(0, words, (count, int(options.get("length", 128))))
        return inputs, generator.integers(0, int(sizes.get("classes", 100)), (count,))
    side = int(options.get("side", 224))
    images = generator.standard_normal((count, 3, side, side), dtype="float32")
    return images, generator.integers(0, int(sizes.get("classes", 1000)), (count,))


def case_problem(case: Mapping[str, Any]) -> str:
    """What is wrong with a trained case; empty if nothing is."""
    losses = case["losses"]
    if any(loss is None for loss in losses):
        return "the loss is not a number"
    if not losses[-1] < losses[0]:
        return f"the loss did not fall: {losses[0]:.4f} to {losses[-1]:.4f}"
    if case["parameters_spread"] != 0.0:
        return f"the ranks' parameters differ by {case['parameters_spread']}"
    for key, what in (("repeat_difference", "a second computation"), ("fp32_difference", "float32's")):
        if case[key] is None or not case[key] <= TOLERANCE:
            return f"the first loss differs by {case[key]} (relative) from {what}"
    return ""


def run(world: World, nn: Any, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments: ``on_gpu`` and ``on_cpu``, each with precisions, steps, warmup and models; seed.

    Each model has by its name a batch (per rank), sizes (of `models`), length or side. ``not_done`` gives by
    case the reason why this device cannot run it.
    """
    chosen, seed = arguments["on_gpu" if world.on_gpu else "on_cpu"], int(arguments.get("seed", 1))
    cases, not_done = [], {}
    for name, options in chosen["models"].items():
        for precision in chosen["precisions"]:
            if precision not in nn.precisions:
                not_done[f"{name} {precision}"] = (
                    f"{world.framework} on {world.device} does not support {precision}"
                )
                continue
            cases.append(TrainingCase(world, nn, name, precision).train(options, chosen, seed))
    bad = [
        f"{case['model']} in {case['precision']}: {problem}"
        for case in cases
        if (problem := case_problem(case))
    ]
    return {"cases": cases, "not_done": not_done, "ok": not bad, "because": "; ".join(bad)}


class TrainingCase:
    """One model in one precision."""

    def __init__(self, world: World, nn: Any, name: str, precision: str) -> None:
        self._world, self._nn, self._name, self._precision = world, nn, name, precision

    def train(self, options: Mapping[str, Any], chosen: Mapping[str, Any], seed: int) -> dict[str, Any]:
        """Train it; returns the results, with the time of a step in seconds."""
        world, nn = self._world, self._nn
        self._set_phase("building the model")
        model = models.build(nn, self._name, options.get("sizes") or {}, seed)
        initial = self._hash(nn.flat(model))
        inputs, labels = (nn.tensor(each) for each in make_batch(self._name, options, seed + 1 + world.rank))
        nn.forget_peak_memory()
        first, again, exact = (self._loss_of(model, inputs, labels, p) for p in (self._precision, "", "fp32"))
        self._set_phase("wrapping the model", collective=True)
        parallel = world.data_parallel(model)
        scale = LOSS_SCALE if self._precision == "amp_fp16" else 1.0
        apply = nn.stepper(model, RATE / scale)  # the gradients are scaled too
        losses: list[Any] = []

        def step() -> None:
            with nn.computing(self._precision):
                loss = nn.cross_entropy(parallel(inputs), labels)
            (loss * scale).backward()
            apply()
            losses.append(loss.detach())

        steps, warmup = int(chosen["steps"]), max(1, int(chosen.get("warmup", 1)))
        for number in range(warmup):
            self._set_phase(f"warm-up step {number + 1} of {warmup}", collective=True)
            step()
        self._set_phase(f"training, {steps} steps", collective=True)
        world.barrier()
        seconds = world.measure_time(step, steps)
        peak = nn.peak_memory_bytes()
        self._set_phase("comparing the parameters", collective=True)
        flat = nn.flat(model)
        return {
            "model": self._name,
            "precision": self._precision,
            "batch": int(options["batch"]),
            "steps": steps,
            "step_s": seconds,
            "samples_per_s": int(options["batch"]) / seconds,
            "unit": UNITS.get(self._name, "samples/s"),
            "peak_memory_bytes": peak,
            "losses": [_finite_or_none(float(nn.host(loss))) for loss in losses],
            "initial_sha256": initial,
            "parameters_sha256": self._hash(flat),
            "parameters_spread": _finite_or_none(self._spread(flat)),
            "repeat_difference": _relative(first, again),
            "fp32_difference": _relative(first, exact),
        }

    def _loss_of(self, model: Any, inputs: Any, labels: Any, precision: str) -> float:
        nn = self._nn
        with nn.no_grad(), nn.computing(precision or self._precision):
            return float(nn.host(nn.cross_entropy(model(inputs), labels)))

    def _spread(self, flat: Any) -> float:
        highest, lowest = flat.clone(), flat.clone()
        self._world.all_reduce(highest, op="MAX")
        self._world.all_reduce(lowest, op="MIN")
        return float((highest - lowest).max())

    def _hash(self, flat: Any) -> str:
        return hashlib.sha256(self._nn.host(flat).tobytes()).hexdigest()

    def _set_phase(self, what: str, *, collective: bool = False) -> None:
        self._world.set_phase(f"{self._name} in {self._precision}: {what}", collective=collective)


def _relative(found: float, expected: float) -> float | None:
    return _finite_or_none(abs(found - expected) / max(abs(expected), math.ulp(1.0)))


def _finite_or_none(value: float) -> float | None:
    """JSON has no infinity and no NaN: they become None."""
    return value if math.isfinite(value) else None


def percentile(values: Sequence[float], part: float) -> float:
    """The smallest value that a part (0 to 1) of all values does not exceed: the nearest rank."""
    return sorted(values)[max(0, math.ceil(part * len(values)) - 1)]
