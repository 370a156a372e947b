"""The time of each training step, and Paddle's profiler on the slowest of a few more: what that step did.

A BERT on synthetic data, each rank by itself. Steps are timed one by one, waiting for the device after each;
then the profiler records some. Of the slowest of these the longest events are kept, in Chrome's trace format.
"""

from __future__ import annotations

import importlib
import json
import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from clustercheck.jobs import models, training, training_paddle
    from clustercheck.jobs.rank import World
else:  # on a node they are single files, not a package
    models, training, training_paddle = (
        importlib.import_module(f"{__package__}.{name}" if __package__ else name)
        for name in ("models", "training", "training_paddle")
    )

MODEL = "bert_base"
MAX_EVENTS = 150  # the longest of the slowest step
MAX_NAME = 80
STEP = "ProfileStep"

join = training_paddle.join


def run(world: World, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments: ``on_gpu`` and ``on_cpu``, each with steps, warmup, traced (steps with the profiler), batch,
    length, precision and sizes (of `models`); seed. ``unable`` is the reason why there is no trace.
    """
    nn: Any = importlib.import_module("frameworks.paddle").PaddleFramework(world)
    chosen, seed = arguments["on_gpu" if world.on_gpu else "on_cpu"], int(arguments.get("seed", 1))
    step = _make_step(nn, chosen, seed)
    for number in range(max(1, int(chosen["warmup"]))):
        world.set_phase(f"warm-up step {number + 1}")
        step()
    world.set_phase("waiting for the others", collective=True)
    world.barrier()
    world.set_phase(f"timing {chosen['steps']} steps")
    times = [world.measure_time(step) for _ in range(int(chosen["steps"]))]
    world.set_phase("recording by Paddle's profiler")
    unable, trace = "", {}
    try:
        trace = record(world, step, int(chosen["traced"]), Path(f"trace-{world.rank}.json").absolute())
    except (OSError, RuntimeError, ValueError) as error:
        unable = f"{type(error).__name__}: {next(iter(str(error).strip().splitlines()), '')[:200]}"
    return {
        "batch": int(chosen["batch"]),
        "steps": len(times),
        "median_s": statistics.median(times),
        "slowest_s": max(times),
        "trace": trace,
        "unable": unable,
        "ok": True,
        "because": "",
    }


def _make_step(nn: Any, chosen: Mapping[str, Any], seed: int) -> Callable[[], None]:
    model = models.build(nn, MODEL, chosen.get("sizes") or {}, seed)
    inputs, labels = (nn.tensor(each) for each in training.make_batch(MODEL, chosen, seed + 1))
    precision = str(chosen["precision"])
    scale = training.LOSS_SCALE if precision == "amp_fp16" else 1.0
    apply = nn.stepper(model, training.RATE / scale)

    def step() -> None:
        with nn.computing(precision):
            loss = nn.cross_entropy(model(inputs), labels)
        (loss * scale).backward()
        apply()

    return step


def record(world: World, step: Callable[[], None], count: int, file: Path) -> dict[str, Any]:
    """The slowest of ``count`` steps as Paddle's profiler saw it. Raises ValueError where it saw none."""
    profiler: Any = importlib.import_module("paddle.profiler")
    targets = [profiler.ProfilerTarget.CPU]
    if world.on_gpu:
        targets.append(profiler.ProfilerTarget.GPU)
    recording = profiler.Profiler(
        targets=targets,
        scheduler=(1, count + 1),  # the first step starts it
        on_trace_ready=lambda profile: profile.export(str(file), format="json"),
    )
    recording.start()
    for _ in range(count + 2):
        step()
        world.synchronize()
        recording.step()
    recording.stop()
    return slowest_step(json.loads(file.read_text(encoding="utf-8"))["traceEvents"])


def slowest_step(events: Sequence[Any]) -> dict[str, Any]:
    """The longest events within the slowest step, from its start on. Raises ValueError if there is none."""
    spans = [event for event in events if isinstance(event, dict) and event.get("ph") == "X"]
    steps = [span for span in spans if str(span.get("name")).startswith(STEP)]
    if not steps:
        raise ValueError("the profiler recorded no step")
    slowest = max(steps, key=lambda span: float(span["dur"]))
    start, end = float(slowest["ts"]), float(slowest["ts"]) + float(slowest["dur"])
    within = [span for span in spans if start <= float(span["ts"]) <= end and span is not slowest]
    longest = sorted(within, key=lambda span: -float(span["dur"]))[:MAX_EVENTS]
    return {
        "traceEvents": [
            {
                "name": str(span.get("name")).partition("[")[0][:MAX_NAME],
                "cat": str(span.get("cat"))[:MAX_NAME],
                "ph": "X",
                "pid": str(span.get("pid"))[:MAX_NAME],
                "tid": str(span.get("tid"))[:MAX_NAME],
                "ts": round(float(span["ts"]) - start, 3),
                "dur": round(float(span["dur"]), 3),
            }
            for span in sorted(longest, key=lambda span: float(span["ts"]))
        ],
        "step_us": round(float(slowest["dur"]), 3),
        "steps": len(steps),
        "omitted": len(within) - len(longest),
    }
