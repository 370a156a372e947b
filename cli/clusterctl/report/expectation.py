"""Every quantity that was measured, and the four limits it was held to: each judged by itself."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

from clusterctl.report.view import ORDER, Document, bytes_text, subject_name

SIZED = re.compile(r"(.*)_([0-9]{3,})")  # a collective's metric ends in its size in bytes
PARTS = ("ceiling", "floor", "baseline", "peers")
Figure = Mapping[str, Any]


@dataclass(frozen=True)
class Limits:
    """One of the four questions over all subjects of a quantity.

    ``lowest`` and ``highest`` are the limits in the quantity's unit, ``margin`` the narrowest, as a part of
    the limit, and ``who`` has it. ``grounds`` are the sources and methods, each once.
    """

    part: str
    lowest: float
    highest: float
    margin: float
    who: str
    verdict: str
    asked: int
    grounds: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Quantity:
    """A metric of a check over its subjects, in its unit.

    ``shares`` are parts of what physics allows, 0..1, each with the verdict on it; ``floor`` is the highest
    floor, likewise as a part, or None. ``limits`` are by part.
    """

    check: str
    metric: str
    unit: str
    better: str
    figures: tuple[float, ...]
    verdict: str
    methods: tuple[str, ...]
    shares: tuple[tuple[float, str], ...]
    floors: tuple[float, ...]
    limits: Mapping[str, Limits]

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
    def grounds(self) -> tuple[tuple[str, str, str], ...]:
        """(part, source, method) of each limit, each once."""
        return tuple((part, *ground) for part, one in self.limits.items() for ground in one.grounds)


def figures(document: Document) -> Iterator[tuple[Mapping[str, Any], Figure]]:
    """Every figure with the result that it is of."""
    for result in document.get("results") or []:
        for figure in result.get("figures") or ():
            yield result, figure


def quantities(document: Document) -> list[Quantity]:
    """Every quantity with figures, in the order of the document."""
    together: dict[tuple[str, str, str], list[tuple[Mapping[str, Any], Figure]]] = {}
    for result, figure in figures(document):
        key = (str(result["check"]), str(figure["metric"]), str(figure["unit"]))
        together.setdefault(key, []).append((result, figure))
    return [_quantity(*key, told) for key, told in together.items()]


def _quantity(check: str, metric: str, unit: str, told: list[tuple[Mapping[str, Any], Figure]]) -> Quantity:
    bounded = [figure for _, figure in told if figure.get("efficiency") is not None]
    asked: dict[str, list[tuple[Mapping[str, Any], Mapping[str, Any]]]] = {}
    for result, figure in told:
        for part in figure["parts"]:
            asked.setdefault(part["part"], []).append((result, part))
    return Quantity(
        check,
        metric,
        unit,
        str(told[0][1]["better"]),
        tuple(sorted(float(figure["measured"]) for _, figure in told)),
        _worst(figure["verdict"] for _, figure in told),
        tuple(dict.fromkeys(str(figure["method"]) for _, figure in told if figure["method"])),
        tuple(sorted((float(figure["efficiency"]), str(figure["verdict"])) for figure in bounded)),
        tuple(sorted({floor for figure in bounded if (floor := _floor(figure)) is not None})),
        {part: _limits(part, asked[part]) for part in PARTS if part in asked},
    )


def _limits(part: str, asked: list[tuple[Mapping[str, Any], Mapping[str, Any]]]) -> Limits:
    limits = [float(one["limit"]) for _, one in asked]
    narrowest, judged = min(asked, key=lambda each: float(each[1]["margin"]))
    return Limits(
        part,
        min(limits),
        max(limits),
        float(judged["margin"]),
        subject_name(narrowest["subject"]),
        _worst(one["verdict"] for _, one in asked),
        len(asked),
        tuple(dict.fromkeys((str(one["source"]), str(one["method"])) for _, one in asked)),
    )


def _worst(verdicts: Iterable[str]) -> str:
    return min(verdicts, key=lambda verdict: ORDER.get(verdict, 0))


def _floor(figure: Figure) -> float | None:
    """The floor as a part of what physics allows, 0..1; None where none was asked for."""
    measured, efficiency = float(figure["measured"]), float(figure["efficiency"])
    floor = next((float(part["limit"]) for part in figure["parts"] if part["part"] == "floor"), None)
    if floor is None or measured <= 0 or efficiency <= 0:
        return None
    return min(1.0, round(floor * efficiency / measured, 4))


def metric_name(metric: str) -> str:
    """A metric as people read it: ``busbw 64 MiB``."""
    sized = SIZED.fullmatch(metric)
    name = f"{sized[1]} {bytes_text(int(sized[2]))}" if sized else metric
    return name.replace("_", " ")


def bound(part: str, better: str) -> str:
    """How a limit is to be read: a ceiling is not to be passed, the others are to be reached."""
    return "≤" if (part == "ceiling") == (better == "higher") else "≥"
