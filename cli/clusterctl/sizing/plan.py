"""Which layouts fit a model on GPUs, why the others do not, and how long training takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from clusterctl.sizing import memory, throughput
from clusterctl.sizing.hardware import GpuPool, numbers
from clusterctl.sizing.layout import Layout, steps
from clusterctl.sizing.memory import FULL, GIB, RECOMPUTE, Memory, TrainingRequest
from clusterctl.sizing.shape import ModelShape
from clusterctl.sizing.throughput import Utilisation

MAX_GPUS = 16384  # as many as the largest published training used
# Enough micro batches that a pipeline's stages wait an eighth of the time.
MICRO_BATCHES_PER_STAGE = 8


@dataclass(frozen=True)
class Task:
    """What is to be trained. ``global_batch`` None: one micro batch a copy, with a pipeline eight a stage."""

    shape: ModelShape
    request: TrainingRequest
    tokens: float
    global_batch: int | None = None
    recompute: Sequence[str] = RECOMPUTE


@dataclass(frozen=True)
class LayoutOption:
    """A layout with what it needs. ``why_not`` is empty where it fits; then it has ``days``."""

    layout: Layout
    recompute: str
    memory: Memory
    why_not: str
    days: float | None = None
    micro_batches: int | None = None


@dataclass(frozen=True)
class Sizing:
    """Options by kind, the simplest first. ``chosen`` is None if none fits. ``least_gpus`` is the smallest
    number of such GPUs that fits, None if none does."""

    task: Task
    hardware: GpuPool
    gpus: int
    utilisation: Utilisation
    options: tuple[LayoutOption, ...]
    chosen: LayoutOption | None
    least_gpus: int | None

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What the days of the chosen layout assume of the links between its GPUs, as sentences."""
        if self.chosen is None or self.chosen.layout.gpus == 1:
            return ()
        gpus, reached = self.chosen.layout.gpus, self.utilisation
        found = ["Days count no time for communication beyond what that part of the peak includes."]
        is_published = reached.origin in ("published", "assumed")
        if is_published and not self.hardware.linked:
            found.append("Without NVLink expect less: published figures are of GPUs with it.")
        if gpus <= self.hardware.per_node:
            return tuple(found)
        if is_published:
            # 400 Gbit/s RoCE for each H100 of Llama 3 (section 3.3.1); 8 x 200 Gbit/s InfiniBand in the
            # DGX A100 of Megatron and of NVIDIA's examples.
            found.append(
                "Across nodes expect less without an InfiniBand or RoCE adapter of 200 Gbit/s for each GPU: "
                "published figures are of nodes with them."
            )
        elif reached.gpus is not None and reached.gpus < gpus:
            found.append(f"Across nodes expect less than what {reached.gpus} GPUs reached.")
        return tuple(found)

    @property
    def sources(self) -> dict[str, str]:
        """Whose formulas the figures come from, by what they are of."""
        return {
            "states": memory.STATES_SOURCE,
            "activations": memory.ACTIVATIONS_SOURCE,
            "lora": memory.LORA_SOURCE,
            "operations": throughput.OPERATIONS_SOURCE,
        }


def size(task: Task, hardware: GpuPool, utilisation: Utilisation) -> Sizing:
    """The options on the GPUs that there are, or on the smallest number that fits."""
    flops = hardware.peak_flops(task.request.precision) * utilisation.part
    least = _least(task, hardware, flops)
    gpus = hardware.gpus or least or numbers(hardware.per_node, MAX_GPUS)[-1]
    options = options_on(gpus, task, hardware, flops)
    return Sizing(task, hardware, gpus, utilisation, options, choose(options, linked=hardware.linked), least)


def choose(options: Sequence[LayoutOption], *, linked: bool) -> LayoutOption | None:
    """The simplest that fits. Full recomputation costs a third of the time, and tensor splits without NVLink
    cost more: these come last."""

    def cost(option: LayoutOption) -> tuple[bool, bool]:
        return option.layout.tensor > 1 and not linked, option.recompute == FULL

    return min((option for option in options if not option.why_not), key=cost, default=None)


def _least(task: Task, hardware: GpuPool, flops: float) -> int | None:
    for number in numbers(hardware.per_node, MAX_GPUS):
        if choose(options_on(number, task, hardware, flops), linked=hardware.linked):
            return number
    return None


def options_on(gpus: int, task: Task, hardware: GpuPool, flops: float) -> tuple[LayoutOption, ...]:
    """One option of each kind: the first of its layouts that fits, else the one that comes nearest."""
    found = []
    for layouts in steps(gpus, hardware.per_node, task.shape, linked=hardware.linked):
        ordered = [
            _option(layout, recompute, task, hardware, flops)
            for full in (False, True)
            for layout in layouts
            for recompute in task.recompute
            if (recompute == FULL) is full
        ]
        nearest = min(ordered, key=lambda option: option.memory.total)
        found.append(next((option for option in ordered if not option.why_not), nearest))
    return tuple(found)


def _option(layout: Layout, recompute: str, task: Task, hardware: GpuPool, flops: float) -> LayoutOption:
    micro_batches = _micro_batches(layout, task)
    needed = memory.on_fullest_gpu(task.shape, task.request, layout, recompute, micro_batches)
    why_not = _why_not(needed, hardware.usable_bytes)
    if not why_not and micro_batches is None:
        why_not = f"the global batch is no multiple of {layout.data} copies x {task.request.micro_batch}"
    if why_not or micro_batches is None:
        return LayoutOption(layout, recompute, needed, why_not)
    work = throughput.executed(task.shape, task.request.sequence, recompute)
    waits = throughput.waiting(layout.pipeline, micro_batches)
    takes = throughput.days(task.tokens, work, layout.gpus, flops, waits)
    return LayoutOption(layout, recompute, needed, "", takes, micro_batches)


def _micro_batches(layout: Layout, task: Task) -> int | None:
    """Of one copy in a step; None where the global batch cannot be divided among the copies."""
    if task.global_batch is None:
        return MICRO_BATCHES_PER_STAGE * layout.pipeline if layout.pipeline > 1 else 1
    number, left = divmod(task.global_batch, layout.data * task.request.micro_batch)
    return number if number and not left else None


def _why_not(needed: Memory, usable: float) -> str:
    if needed.total <= usable:
        return ""
    limit = f"{usable / GIB:.1f} GiB are usable"
    parts = {"weights": needed.weights, "gradients": needed.gradients, "optimizer states": needed.optimizer}
    largest = max(parts, key=lambda name: parts[name])
    if parts[largest] > usable:
        return f"the {largest} alone need {parts[largest] / GIB:.1f} GiB, {limit}"
    if needed.states > usable:
        return f"weights, gradients and optimizer states need {needed.states / GIB:.1f} GiB, {limit}"
    return f"with activations it needs {needed.total / GIB:.1f} GiB, {limit}"
