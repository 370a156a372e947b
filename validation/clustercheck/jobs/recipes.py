"""Ways to train one model on one GPU: float32, TF32, AMP, gradient accumulation and recomputation.

Each rank by itself, on the same parameters and the same batch in each recipe. Those that compute the same as
float32 are compared with its gradients: the first step's, before anything is updated. Peak memory is that of
whole steps; on a CPU Paddle counts the memory of tensors, too, but AMP and TF32 do not exist there.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from clustercheck.jobs import models, training, training_paddle
    from clustercheck.jobs.rank import World
else:  # on a node they are single files, not a package
    models, training, training_paddle = (
        importlib.import_module(f"{__package__}.{name}" if __package__ else name)
        for name in ("models", "training", "training_paddle")
    )

# By recipe: the precision of its products.
PRECISIONS = {
    "fp32": "fp32",
    "tf32": "tf32",
    "amp": "amp_fp16",
    "accumulation": "fp32",
    "recomputation": "fp32",
}
MICRO_BATCHES = 4
# Of float32's gradients, in the norm. Both compute the same sums in another order: 1.2e-7 was measured on a
# CPU; a micro-batch of four that is forgotten changes it by more than 1e-1.
TOLERANCE = 1e-4
# The same of TF32, which rounds what it multiplies to 2^-11, 5e-4: less is the rounding of float32 alone.
TF32_LEAST = 1e-5

join = training_paddle.join


def run(world: World, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments: ``on_gpu`` and ``on_cpu``, each with steps, warmup and models; seed.

    Each model has by its name its recipes, its batch, sizes (of `models`), length or side. ``not_done`` gives
    by model and recipe the reason why this device cannot run it.
    """
    nn: Any = importlib.import_module("frameworks.paddle").PaddleFramework(world)
    chosen, seed = arguments["on_gpu" if world.on_gpu else "on_cpu"], int(arguments.get("seed", 1))
    cases, not_done = [], {}
    for name, options in chosen["models"].items():
        exact: Any = None
        first_loss: float | None = None
        for recipe in options["recipes"]:
            if PRECISIONS[recipe] not in nn.precisions:
                because = f"{world.framework} on {world.device} does not support {PRECISIONS[recipe]}"
                not_done[f"{name} {recipe}"] = because
                world.barrier()  # others may support it
                continue
            case, gradients = Recipe(world, nn, name, recipe).measure(options, chosen, seed)
            if recipe == "fp32":
                exact = gradients
                first_loss = case["losses"][0]
            if exact is not None:
                case["gradient_difference"] = _distance(gradients, exact)
                case["loss_difference"] = _relative(case["losses"][0], first_loss)
            cases.append(case)
    bad = [f"{case['model']} by {case['recipe']}: {why}" for case in cases if (why := case_problem(case))]
    return {
        "cases": cases,
        "not_done": not_done,
        "ok": not bad,
        "because": "; ".join(bad),
    }


def case_problem(case: Mapping[str, Any]) -> str:
    """What is wrong with what a recipe computed; empty if nothing is."""
    losses = case["losses"]
    if any(loss is None for loss in losses):
        return "the loss is not a number"
    if not losses[-1] < losses[0]:
        return f"the loss did not fall: {losses[0]:.4f} to {losses[-1]:.4f}"
    same = PRECISIONS[case["recipe"]] == "fp32"
    compared = (
        ("gradient_difference", TOLERANCE, "gradients differ")
        if same
        else ("loss_difference", training.TOLERANCE, "first loss differs")
    )
    key, tolerance, what = compared
    if case[key] is None or not case[key] <= tolerance:
        return f"its {what} from float32's by {case[key]} (relative; {tolerance:.2g} is allowed)"
    return ""


class Recipe:
    """One model, trained by one recipe."""

    def __init__(self, world: World, nn: Any, name: str, recipe: str) -> None:
        self._world, self._nn, self._name, self._recipe = world, nn, name, recipe

    def measure(
        self, options: Mapping[str, Any], chosen: Mapping[str, Any], seed: int
    ) -> tuple[dict[str, Any], Any]:
        """What it reached, and the gradients of its first step as an array."""
        world, nn = self._world, self._nn
        self._set_phase("building the model")
        model = models.build(nn, self._name, options.get("sizes") or {}, seed)
        if self._recipe == "recomputation":
            model.layers = nn.recompute_each(model.layers)
        batch = [nn.tensor(each) for each in training.make_batch(self._name, options, seed + 1)]
        self._set_phase("computing gradients")
        first = self._backward(model, batch, lambda loss: loss.backward())
        gradients = nn.flat_gradients(model)
        update, scale = self._stepper(model)
        losses = [first]

        def step() -> None:
            losses.append(update(model, batch))

        steps, warmup = int(chosen["steps"]), max(1, int(chosen.get("warmup", 1)))
        for number in range(warmup):
            self._set_phase(f"warm-up step {number + 1} of {warmup}")
            step()
        nn.forget_peak_memory()
        self._set_phase("waiting for the others", collective=True)
        world.barrier()
        self._set_phase(f"training, {steps} steps")
        seconds = world.measure_time(step, steps)
        case = {
            "model": self._name,
            "recipe": self._recipe,
            "batch": int(options["batch"]),
            "steps": steps,
            "step_s": seconds,
            "unit": training.UNITS.get(self._name, "samples/s"),
            "peak_memory_bytes": nn.peak_tensor_bytes(),
            "losses": [_finite_or_none(float(nn.host(loss))) for loss in losses],
            "gradient_difference": None,
            "loss_difference": None,
            "loss_scale": scale(),
        }
        return case, gradients

    def _stepper(self, model: Any) -> tuple[Callable[[Any, Any], Any], Callable[[], float | None]]:
        """One whole step, which returns its loss; and the scale of the loss, None if it is not scaled."""
        if self._recipe == "amp":
            scaled, scale = self._nn.scaled_stepper(model, training.RATE)
            return lambda trained, batch: self._backward(trained, batch, scaled), scale
        apply = self._nn.stepper(model, training.RATE)

        def step(trained: Any, batch: Any) -> Any:
            loss = self._backward(trained, batch, lambda each: each.backward())
            apply()
            return loss

        return step, lambda: None

    def _backward(self, model: Any, batch: Any, backward: Callable[[Any], None]) -> Any:
        """The loss of the batch, after its backward pass: of micro-batches one after the other."""
        count = MICRO_BATCHES if self._recipe == "accumulation" else 1
        each = len(batch[0]) // count
        total: Any = 0.0
        for first in range(0, each * count, each):
            inputs, labels = (part[first : first + each] for part in batch)
            with self._nn.computing(PRECISIONS[self._recipe]):
                loss = self._nn.cross_entropy(model(inputs), labels) / count
            backward(loss)
            total = total + loss.detach()
        return total

    def _set_phase(self, what: str, *, collective: bool = False) -> None:
        self._world.set_phase(f"{self._name} by {self._recipe}: {what}", collective=collective)


def _distance(gradients: Any, exact: Any) -> float | None:
    numpy: Any = importlib.import_module("numpy")

    norm = float(numpy.linalg.norm(exact.astype("float64")))
    found = float(numpy.linalg.norm((gradients - exact).astype("float64")))
    return _finite_or_none(found / max(norm, math.ulp(1.0)))


def _relative(loss: float | None, exact: float | None) -> float | None:
    if loss is None or exact is None:
        return None
    return abs(loss - exact) / max(abs(exact), math.ulp(1.0))


def _finite_or_none(value: float) -> float | None:
    """JSON has no infinity and no NaN: they become None."""
    return value if math.isfinite(value) else None
