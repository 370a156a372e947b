"""Sharding stages 1 to 3 against data-parallel training: the same losses, equal parameters, less memory.

Stage 1 is Paddle's sharding optimiser (sharding.py), stages 2 and 3 its `group_sharded_parallel`, which
supports only GPUs: there the levels `os_g` and `p_g_os` (`os` is `os_g` in Paddle 3.3). All train a BERT with
Adam on the same data; the gradients of the ranks' own batches are averaged in each of them.
"""

from __future__ import annotations

import hashlib
import importlib
import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from clustercheck.jobs import data_parallel, models, sharding, training
    from clustercheck.jobs.rank import World
else:  # on a node they are single files, not a package
    data_parallel, models, sharding, training = (
        importlib.import_module(f"{__package__}.{name}" if __package__ else name)
        for name in ("data_parallel", "models", "sharding", "training")
    )

MODEL = "bert_base"
STAGES = (0, 1, 2, 3)  # 0: data-parallel
LEVELS = {2: "os_g", 3: "p_g_os"}
MAX_RANKS = 64  # each rank needs parameters of its own; a BERT-base has about 200
RATE = 1e-4
# Between float32 losses of one training: sums in another order, and Adam divides by their size.
TOLERANCE = 1e-4


def run(world: World, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments: ``on_gpu`` and ``on_cpu``, each with batch (per rank), length, sizes (of `models`), steps,
    segment_size (elements of the smallest parameter that stage 3 divides); seed.

    ``without`` is the reason why nothing was done, ``not_done`` by stage why that was not.
    """
    shards = sharding.count_shards(world.size)
    if shards < 2 or world.size > MAX_RANKS:
        because = f"{world.size} ranks: 2 to {MAX_RANKS} are compared, if they can be divided into shards"
        return {"ok": True, "because": "", "without": because, "stages": {}, "not_done": {}}
    nn: Any = importlib.import_module("frameworks.paddle").PaddleFramework(world)
    chosen, seed = arguments["on_gpu" if world.on_gpu else "on_cpu"], int(arguments.get("seed", 1))
    places = sharding.ShardingGroups(world, importlib.import_module("paddle"), shards)
    stages: dict[str, dict[str, Any]] = {}
    not_done = {}
    for stage in STAGES:
        if needs_gpu(stage) and not world.on_gpu:
            not_done[str(stage)] = f"Paddle's group_sharded_parallel does not support {world.device}"
            continue
        world.set_phase(f"stage {stage}: building the model")
        stages[str(stage)] = Stage(world, nn, places, stage).train(chosen, seed)
    plain = stages["0"]["losses"]
    for found in stages.values():
        difference = data_parallel.max_difference(
            [math.nan if loss is None else loss for loss in found["losses"]],
            [math.nan if loss is None else loss for loss in plain],
        )
        found["loss_difference"] = difference if math.isfinite(difference) else None
    bad = [f"stage {number}: {why}" for number, found in stages.items() if (why := stage_problem(found))]
    return {
        "ok": not bad,
        "because": "; ".join(bad),
        "without": "",
        "stages": stages,
        "not_done": not_done,
        "shards": {str(stage): shards if stage == 1 else world.size for stage in STAGES[1:]},
    }


def needs_gpu(stage: int) -> bool:
    """Whether Paddle has the stage for GPUs alone."""
    return stage in LEVELS


def stage_problem(found: Mapping[str, Any]) -> str:
    """What is wrong with what was trained at a stage; empty if nothing is."""
    losses = found["losses"]
    if any(loss is None for loss in losses):
        return "the loss is not a number"
    if found["parameters_spread"] != 0.0:
        return f"the ranks' parameters differ by up to {found['parameters_spread']}"
    if found["loss_difference"] is None or not found["loss_difference"] <= TOLERANCE:
        return (
            f"the loss differs by {found['loss_difference']} from data-parallel training's "
            f"({TOLERANCE:g} is allowed)"
        )
    if not losses[-1] < losses[0]:
        return f"the loss did not fall: {losses[0]:.4f} to {losses[-1]:.4f}"
    return ""


class Stage:
    """The training at one stage."""

    def __init__(self, world: World, nn: Any, places: sharding.ShardingGroups, stage: int) -> None:
        self._world, self._nn, self._places, self._stage = world, nn, places, stage
        self._paddle: Any = importlib.import_module("paddle")

    def train(self, chosen: Mapping[str, Any], seed: int) -> dict[str, Any]:
        """Losses as the mean over the ranks, peak memory of this rank, and how far the parameters spread."""
        world, nn = self._world, self._nn
        model = models.build(nn, MODEL, chosen.get("sizes") or {}, seed)
        inputs, labels = (
            nn.tensor(each) for each in training.make_batch(MODEL, chosen, seed + 1 + world.rank)
        )
        nn.forget_peak_memory()
        wrapped, step = self._wrap(model, int(chosen.get("segment_size", 2**20)))
        losses = []
        for number in range(int(chosen["steps"])):
            world.set_phase(f"stage {self._stage}: step {number + 1} of {chosen['steps']}", collective=True)
            with nn.computing("fp32"):
                loss = nn.cross_entropy(wrapped(inputs), labels)
            loss.backward()
            step()
            mean = loss.detach().reshape([1]).clone()
            world.all_reduce(mean)
            losses.append(float(mean.item()) / world.size)
        peak = nn.peak_tensor_bytes()
        world.set_phase(f"stage {self._stage}: comparing the parameters", collective=True)
        if hasattr(wrapped, "get_all_parameters"):
            wrapped.get_all_parameters()  # of stage 3, which keeps parts
        flat = nn.flat(model)
        highest, lowest = flat.clone(), flat.clone()
        world.all_reduce(highest, op="MAX")
        world.all_reduce(lowest, op="MIN")
        spread = float((highest - lowest).max())
        return {
            "losses": [loss if math.isfinite(loss) else None for loss in losses],
            "peak_memory_bytes": peak,
            "parameters": int(flat.size),
            "parameters_sha256": hashlib.sha256(nn.host(flat).tobytes()).hexdigest(),
            "parameters_spread": spread if math.isfinite(spread) else None,
        }

    def _wrap(self, model: Any, segment_size: int) -> tuple[Any, Callable[[], None]]:
        """The model as this stage trains it, and one update."""
        paddle = self._paddle
        optimiser: Any = paddle.optimizer.Adam(RATE, parameters=model.parameters())
        if self._stage == 0:
            model = self._world.data_parallel(model)
        elif self._stage == 1:
            optimiser = sharding.ShardedOptimizer(self._world, paddle, optimiser, self._places)
        else:
            sharded: Any = importlib.import_module("paddle.distributed.sharding")
            model, optimiser, _ = sharded.group_sharded_parallel(
                model, optimiser, LEVELS[self._stage], segment_size=segment_size
            )

        def step() -> None:
            optimiser.step()
            optimiser.clear_grad()

        return model, step
