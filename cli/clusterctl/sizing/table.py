"""A sizing as text for 80 columns."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from clusterctl.engine.wording import counted
from clusterctl.sizing import memory
from clusterctl.sizing.memory import GIB
from clusterctl.sizing.plan import LayoutOption, Sizing
from clusterctl.sizing.record import unsplit
from clusterctl.sizing.shape import ModelShape

WIDTH = 80
HEAD = ("parallelism", "weights", "grads", "optim", "activ", "total", "recomp", "days")
SOURCES_OF = {
    "states": "weights, gradients, optimizer states",
    "activations": "activations",
    "lora": "adapters",
    "operations": "operations",
}
MODELS_HEAD = ("model", "parameters", "layers", "hidden", "heads", "vocabulary", "sequence")


def amount(number: float) -> str:
    """6.5e9 as "6.5 billion"."""
    for size, word in ((1e12, "trillion"), (1e9, "billion"), (1e6, "million")):
        if number >= size:
            return f"{number / size:.3g} {word}"
    return f"{number:.3g}"


def render(sizing: Sizing) -> str:
    """The table with what was assumed, the choice, and what else would do."""
    above = [*_heading(sizing), "", *_activations(sizing), "", "Per GPU, GiB:"]
    below = ["", *_reasons(sizing.options), *_conclusion(sizing), "", *_sources(sizing)]
    lines = [*map(_wrapped, above), *_table(sizing.options), *map(_wrapped, below)]
    return "\n".join(lines) + "\n"


def _wrapped(line: str) -> str:
    if len(line) <= WIDTH:
        return line
    indent = "  " if line.startswith("- ") else ""
    return textwrap.fill(line, WIDTH, subsequent_indent=indent, break_on_hyphens=False)


def _heading(sizing: Sizing) -> Iterator[str]:
    shape, request, hardware = sizing.task.shape, sizing.task.request, sizing.hardware
    yield (
        f"{shape.name}: {amount(shape.parameters)} parameters, {counted(shape.layers, 'layer')}, hidden size "
        f"{shape.hidden}, {counted(shape.heads, 'head')} ({shape.source})"
    )
    yield (
        f"{request.precision} with {request.optimizer}, {request.bytes_per_parameter} bytes a parameter; "
        f"micro batch {request.micro_batch}, sequences of {request.sequence}"
    )
    nodes = -(-sizing.gpus // hardware.per_node)
    smallest = (
        "" if hardware.gpus else "; the smallest number that fits" if sizing.chosen else "; the most tried"
    )
    yield (
        f"{counted(sizing.gpus, 'GPU')} in {counted(nodes, 'node')}, {hardware.profile.name}: "
        f"{hardware.usable_bytes / GIB:.1f} of {hardware.profile.memory_gib} GiB usable{smallest}"
    )


def _activations(sizing: Sizing) -> Iterator[str]:
    found = ", ".join(f"{each / GIB:.1f} {way}" for way, each in unsplit(sizing).items())
    yield f"Activations of all layers without any split, GiB by recomputation: {found}."


def _table(options: tuple[LayoutOption, ...]) -> Iterator[str]:
    yield from _columns([HEAD, *(_row(option) for option in options)])


def models(shapes: Sequence[ModelShape]) -> str:
    """The public models with their sizes."""
    rows = [
        (s.name, amount(s.parameters), *map(str, (s.layers, s.hidden, s.heads, s.vocabulary, s.sequence)))
        for s in shapes
    ]
    return "\n".join(_columns([MODELS_HEAD, *rows])) + "\n"


def _columns(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    """The first to the left, figures to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for name, *cells in rows:
        others = (cell.rjust(width) for cell, width in zip(cells, widths[1:], strict=True))
        yield "  ".join((name.ljust(widths[0]), *others))


def _row(option: LayoutOption) -> tuple[str, ...]:
    needed = option.memory
    parts = (needed.weights, needed.gradients, needed.optimizer, needed.activations, needed.total)
    return (
        option.layout.short_name,
        *(_gib(part) for part in parts),
        option.recompute.replace("selective", "select"),
        "no" if option.days is None else duration(option.days),
    )


def _gib(part: float) -> str:
    return f"{part / GIB:.0f}" if part >= 1000 * GIB else f"{part / GIB:.1f}"


def duration(days: float) -> str:
    """Three figures at most."""
    return f"{days:.0f}" if days >= 100 else f"{days:.3g}"


def _reasons(options: tuple[LayoutOption, ...]) -> Iterator[str]:
    if any(option.why_not for option in options):
        yield "Why not:"
    for option in options:
        if option.why_not:
            yield f"- {option.layout.name}: {option.why_not}."


def _conclusion(sizing: Sizing) -> Iterator[str]:
    task, chosen = sizing.task, sizing.chosen
    if chosen is None:
        yield from _nothing_fits(sizing)
        return
    if chosen.days is not None:
        again = "" if chosen.recompute == memory.NONE else f", {chosen.recompute} recomputation"
        yield f"Choose: {chosen.layout.name}{again}. In Paddle: {chosen.layout.in_paddle}"
        yield (
            f"{amount(task.tokens)} tokens take {duration(chosen.days)} days at "
            f"{sizing.utilisation.part:.0%} of the peak ({sizing.utilisation.source}). "
            "Failures, evaluation and checkpoints come on top."
        )
    yield from sizing.assumptions
    if sizing.task.request.precision == "amp":
        yield (
            "amp (Paddle's level O1) keeps weights and states in fp32, and a copy of the weights in 16 bits: "
            "it saves memory of activations only."
        )


def _sources(sizing: Sizing) -> Iterator[str]:
    """The formulas of what the table has: of LoRA's adapters only where they are in it."""
    yield "Formulas:"
    for of, source in sizing.sources.items():
        if of != "lora" or (sizing.chosen is None and not _copies(sizing)):
            yield f"- {SOURCES_OF[of]}: {source}"


def _copies(sizing: Sizing) -> list[int]:
    """The copies of the layouts that memory allows."""
    usable = sizing.hardware.usable_bytes
    return [option.layout.data for option in sizing.options if option.memory.total <= usable]


def _nothing_fits(sizing: Sizing) -> Iterator[str]:
    shape, request = sizing.task.shape, sizing.task.request
    model = "This model" if shape.name == "model" else shape.name
    whole = shape.parameters * request.bytes_per_parameter
    have = sizing.gpus * sizing.hardware.usable_bytes
    here = f"{sizing.gpus} x {sizing.hardware.profile.name}"
    if copies := _copies(sizing):
        batch = counted(sizing.task.global_batch or 0, "sequence")
        yield f"{model} fits {here}, but no parallelism that fits can divide a global batch of {batch}."
        yield "What would do:"
        yield f"- a multiple of {min(copies) * request.micro_batch}: --global-batch"
        if sizing.least_gpus is not None:
            yield f"- training on {counted(sizing.least_gpus, 'such GPU')}: --gpus {sizing.least_gpus}"
        return
    yield (
        f"{model} does not train with {request.optimizer} on {here}: "
        f"{request.bytes_per_parameter} bytes x {amount(shape.parameters)} parameters are "
        f"{whole / 1e9:.0f} GB ({whole / GIB:.1f} GiB) before activations; {have / GIB:.1f} GiB are "
        f"usable{', but no parallelism divides all of it' if whole <= have else ''}."
    )
    yield "What would do:"
    if sizing.least_gpus is not None:
        yield f"- training on {counted(sizing.least_gpus, 'such GPU')}: --gpus {sizing.least_gpus}"
    else:
        yield "- a GPU with more memory, a smaller micro batch or shorter sequences"
    adapters, answers = memory.lora(shape, request), memory.inference(shape, request)
    yield f"- LoRA (rank 16, queries and values; full recomputation): {_against(adapters, sizing)}"
    yield f"- inference of {counted(request.micro_batch, 'sequence')}: {_against(answers, sizing)}"


def _against(needed: float, sizing: Sizing) -> str:
    fits = needed <= sizing.hardware.usable_bytes
    return f"{needed / GIB:.1f} GiB, {'fits one GPU' if fits else 'more than one GPU has'}"
