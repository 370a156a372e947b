"""Data-parallel training: equal parameters on all ranks, and the loss of a single process."""

from __future__ import annotations

import hashlib
import importlib
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from clustercheck.jobs.rank import World

FEATURES, HIDDEN, RATE = 64, 128, 0.05

# Both sides compute the same float32 sums in another order: 4.8e-7 was measured over 20 steps on 1, 2 and 4
# ranks. Twenty times that; a missing gradient changes the loss by more than 1e-3 in a few steps.
TOLERANCE = 1e-5


def shard(batch: int, ranks: int, rank: int) -> tuple[int, int, int]:
    """(whole, first, last): the batch rounded up to equal shards, and this rank's rows [first, last)."""
    each = -(-batch // ranks)
    return each * ranks, each * rank, each * (rank + 1)


def max_difference(left: Sequence[float], right: Sequence[float]) -> float:
    """The largest absolute difference; infinite if the lengths differ or a value is not a number."""
    if len(left) != len(right) or not left:
        return float("inf")
    differences = [abs(difference) for difference in map(operator.sub, left, right)]
    return max(differences) if all(d == d for d in differences) else float("inf")  # noqa: PLR0124 - NaN


def judge_training(
    losses: Sequence[float], reference: Sequence[float], spread: float, tolerance: float
) -> tuple[bool, str]:
    """Whether training is correct, and if not, why."""
    loss_difference = max_difference(losses, reference)
    if spread != 0.0:
        return False, f"the ranks' parameters differ by up to {spread:.3g}"
    if not loss_difference <= tolerance:
        return (
            False,
            f"the loss differs by {loss_difference:.3g} from a single process's (allowed: {tolerance:.3g})",
        )
    if not losses[-1] < losses[0]:
        return False, f"the loss did not fall: {losses[0]:.4f} to {losses[-1]:.4f}"
    return True, ""


def _model(paddle: Any, seed: int, hidden_layers: int) -> Any:
    numpy: Any = importlib.import_module("numpy")  # comes with the framework, only on nodes

    inner = [paddle.nn.Linear(HIDDEN, HIDDEN) for _ in range(hidden_layers - 1)]
    layers = [
        layer
        for linear in (paddle.nn.Linear(FEATURES, HIDDEN), *inner)
        for layer in (linear, paddle.nn.Tanh())
    ]
    model = paddle.nn.Sequential(*layers, paddle.nn.Linear(HIDDEN, 1))
    generator = numpy.random.RandomState(seed)
    for parameter in model.parameters():
        parameter.set_value((generator.standard_normal(tuple(parameter.shape)) * 0.1).astype("float32"))
    return model


def _optimiser(paddle: Any, model: Any) -> Any:
    return paddle.optimizer.Momentum(learning_rate=RATE, momentum=0.9, parameters=model.parameters())


def _train(
    paddle: Any,
    trained: tuple[Any, Any],
    data: tuple[Any, Any],
    steps: int,
    each_step: Callable[[int, Any], float],
) -> list[float]:
    model, optimiser = trained
    inputs, targets = data
    losses = []
    for step in range(steps):
        loss = paddle.nn.functional.mse_loss(model(inputs), targets)
        loss.backward()
        optimiser.step()
        optimiser.clear_grad()
        losses.append(each_step(step, loss.detach()))
    return losses


def run(world: World, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments: steps, seed, batch (of the whole group), tolerance."""
    return compare(world, arguments, lambda model, optimiser: (world.data_parallel(model), optimiser))


def compare(
    world: World,
    arguments: Mapping[str, Any],
    wrap: Callable[[Any, Any], tuple[Any, Any]],
    *,
    hidden_layers: int = 1,
) -> dict[str, Any]:
    """Train alone, then in parallel with model and optimiser wrapped by ``wrap``: both must agree."""
    numpy: Any = importlib.import_module("numpy")

    paddle: Any = importlib.import_module("paddle")
    steps, seed = int(arguments.get("steps", 20)), int(arguments.get("seed", 1))
    tolerance = float(arguments.get("tolerance", TOLERANCE))
    whole, first, last = shard(int(arguments.get("batch", 64)), world.size, world.rank)
    world.set_phase("making the batch")
    generator = numpy.random.RandomState(seed + 1)
    inputs = generator.standard_normal((whole, FEATURES)).astype("float32")
    targets = numpy.sin(inputs.sum(axis=1, keepdims=True) / 8).astype("float32")

    world.set_phase("training the reference alone")
    single = _model(paddle, seed, hidden_layers)
    reference = _train(
        paddle,
        (single, _optimiser(paddle, single)),
        (world.tensor(inputs), world.tensor(targets)),
        steps,
        lambda _, loss: float(loss),
    )

    def mean_over_ranks(step: int, loss: Any) -> float:
        world.set_phase(f"training step {step + 1} of {steps}", collective=True)
        tensor = loss.reshape([1]).clone()
        world.all_reduce(tensor)
        return float(tensor.item()) / world.size

    world.set_phase("wrapping the model", collective=True)
    model = _model(paddle, seed, hidden_layers)
    losses = _train(
        paddle,
        wrap(model, _optimiser(paddle, model)),
        (world.tensor(inputs[first:last]), world.tensor(targets[first:last])),
        steps,
        mean_over_ranks,
    )

    world.set_phase("comparing the parameters", collective=True)
    flat = paddle.concat([parameter.detach().flatten() for parameter in model.parameters()])
    highest, lowest = flat.clone(), flat.clone()
    world.all_reduce(highest, op="MAX")
    world.all_reduce(lowest, op="MIN")
    spread = float((highest - lowest).max())
    ok, because = judge_training(losses, reference, spread, tolerance)
    difference = max_difference(losses, reference)
    return {
        "losses": [_finite_or_none(loss) for loss in losses],
        "reference_losses": [_finite_or_none(loss) for loss in reference],
        "parameters_sha256": hashlib.sha256(numpy.ascontiguousarray(flat.numpy()).tobytes()).hexdigest(),
        "parameters_max_abs_difference": _finite_or_none(spread),
        "max_loss_difference": _finite_or_none(difference),
        "tolerance": tolerance,
        "batch": whole,
        "ok": ok,
        "because": because,
    }


def _finite_or_none(value: float) -> float | None:
    """JSON has no infinity and no NaN: they become None."""
    return value if value == value and abs(value) != float("inf") else None  # noqa: PLR0124 - NaN
