"""Every quantity that was measured, and the four limits it was judged against, each by itself."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from statistics import median

from clustercheck.model import Direction, Judged, JudgedPart, Part, Result, Subject, Verdict
from clustercheck.result.document import Document
from clusterctl.report.subjects import subject_name
from clusterctl.report.view import ORDER, bytes_text

SIZED = re.compile(r"(.*)_([0-9]{3,})")  # a collective's metric ends in its size in bytes


@dataclass(frozen=True)
class ExpectedLimits:
    """One of the four questions over all subjects of a quantity.

    ``lowest`` and ``highest`` are the limits in the quantity's unit, ``margin`` the narrowest, as a part of
    the limit, and ``who`` has it. ``grounds`` are the sources and methods, each once.
    """

    part: Part
    lowest: float
    highest: float
    margin: float
    who: str
    verdict: Verdict
    asked: int
    grounds: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Quantity:
    """A metric of a check over its subjects, in its unit.

    ``shares`` are parts of the peak that physics allows, 0..1, each with the verdict on it; ``floors`` are
    such parts, too.
    """

    check: str
    metric: str
    unit: str
    better: Direction
    figures: tuple[float, ...]
    verdict: Verdict
    methods: tuple[str, ...]
    shares: tuple[tuple[float, Verdict], ...]
    floors: tuple[float, ...]
    limits: Mapping[Part, ExpectedLimits]

    @property
    def lowest(self) -> float:
        """The lowest of the figures."""
        return self.figures[0]

    @property
    def middle(self) -> float:
        """Their median."""
        return median(self.figures)

    @property
    def highest(self) -> float:
        """The highest of the figures."""
        return self.figures[-1]

    @property
    def grounds(self) -> tuple[tuple[Part, str, str], ...]:
        """(part, source, method) of each limit, each once."""
        return tuple((part, *ground) for part, one in self.limits.items() for ground in one.grounds)


def figures(document: Document) -> Iterator[tuple[Result, Judged]]:
    """Every figure with the result that it belongs to."""
    for result in document.results:
        for judged in result.figures:
            yield result, judged


def quantities(document: Document) -> list[Quantity]:
    """Every quantity with figures, in the order of the document."""
    together: dict[tuple[str, str, str], list[tuple[Subject, Judged]]] = {}
    for result, judged in figures(document):
        key = (result.check, judged.figure.metric, judged.figure.unit)
        together.setdefault(key, []).append((result.subject, judged))
    return [_quantity(*key, measured) for key, measured in together.items()]


def _quantity(check: str, metric: str, unit: str, measured: list[tuple[Subject, Judged]]) -> Quantity:
    verdicts: set[Verdict] = set()
    shares: list[tuple[float, Verdict]] = []
    floors: set[float] = set()
    asked: dict[Part, list[tuple[Subject, JudgedPart]]] = {}
    for subject, judged in measured:
        verdict, efficiency = judged.verdict, judged.figure.efficiency
        verdicts.add(verdict)
        for part in judged.parts:
            asked.setdefault(part.part, []).append((subject, part))
        if efficiency is not None:
            shares.append((efficiency, verdict))
            floors.update(_floor(judged, efficiency))
    return Quantity(
        check,
        metric,
        unit,
        measured[0][1].figure.better,
        tuple(sorted(judged.figure.measured for _, judged in measured)),
        _worst(verdicts),
        tuple(dict.fromkeys(judged.figure.method for _, judged in measured if judged.figure.method)),
        tuple(sorted(shares)),
        tuple(sorted(floors)),
        {part: _limits(part, asked[part]) for part in Part if part in asked},
    )


def _limits(part: Part, asked: list[tuple[Subject, JudgedPart]]) -> ExpectedLimits:
    limits = [float(one.limit) for _, one in asked]
    narrowest, judged = min(asked, key=lambda each: each[1].margin)
    return ExpectedLimits(
        part,
        min(limits),
        max(limits),
        judged.margin,
        subject_name(narrowest),
        _worst({one.verdict for _, one in asked}),
        len(asked),
        tuple(dict.fromkeys((one.source, one.method) for _, one in asked)),
    )


def _worst(verdicts: Iterable[Verdict]) -> Verdict:
    return min(verdicts, key=lambda verdict: ORDER[verdict])


def _floor(judged: Judged, efficiency: float) -> Iterator[float]:
    """The floor as a part of the peak that physics allows, 0..1."""
    measured = judged.figure.measured
    if measured <= 0 or efficiency <= 0:
        return
    for part in judged.parts:
        if part.part is Part.FLOOR:
            yield min(1.0, round(part.limit * efficiency / measured, 4))


def metric_name(metric: str) -> str:
    """A metric as people read it: ``busbw 64 MiB``."""
    sized = SIZED.fullmatch(metric)
    name = f"{sized[1]} {bytes_text(int(sized[2]))}" if sized else metric
    return name.replace("_", " ")


def bound(part: Part, better: Direction) -> str:
    """The sign of a limit: at most for a ceiling, at least for the others; of latencies the reverse."""
    return "≤" if (part is Part.CEILING) == (better is Direction.HIGHER) else "≥"
