"""What has changed since the baseline: every quantity before and now, and where it changed most."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median

from clustercheck.model import Direction, Judged, JudgedPart, Part, Result, Verdict
from clustercheck.result.document import Document
from clusterctl.report.expectation import figures
from clusterctl.report.subjects import subject_name
from clusterctl.report.view import ORDER

UNCHANGED = 0.01  # a part of what it was


@dataclass(frozen=True)
class Single:
    """One figure of one subject, before and now, in its unit; ``change`` is a part of the first."""

    who: str
    check: str
    metric: str
    unit: str
    before: float
    now: float
    change: float
    verdict: Verdict


@dataclass(frozen=True)
class MetricChange:
    """One quantity: medians in its unit, changes as parts of the baseline.

    ``noise_limit`` is the largest change that may be noise, ``beyond`` how many subjects are worse than it.
    """

    check: str
    metric: str
    unit: str
    better: Direction
    before: float
    now: float
    middle: float
    lowest: float
    highest: float
    noise_limit: float
    worst: Single
    compared: int
    beyond: int

    @property
    def even(self) -> bool:
        """Whether no subject's figure has changed."""
        return not self.beyond and max(-self.lowest, self.highest) < UNCHANGED


@dataclass(frozen=True)
class Comparison:
    """With which run, what could not be compared with it, what differs from it, and what changed."""

    run: str
    finished: str
    not_compared: tuple[str, ...]
    differs: tuple[str, ...]
    changes: tuple[MetricChange, ...]


def comparison(document: Document) -> Comparison | None:
    """The comparison with the baseline; None if there was none."""
    about = document.environment.get("baseline")
    if not isinstance(about, Mapping):
        return None
    together: dict[tuple[str, str, str, Direction], list[tuple[Single, float]]] = {}
    for result, judged in figures(document):
        for part in judged.parts:
            before = _before(part, judged) if part.part is Part.BASELINE else None
            if before:
                figure = judged.figure
                key = (result.check, figure.metric, figure.unit, figure.better)
                single = _single(result, judged, part, before)
                together.setdefault(key, []).append((single, part.tolerance))
    changes = tuple(_change(*key, compared) for key, compared in together.items())
    return Comparison(
        str(about.get("run", "")),
        str(about.get("finished", "")),
        tuple(map(str, about.get("not_compared") or ())),
        tuple(map(str, about.get("differs") or ())),
        changes,
    )


def _before(part: JudgedPart, judged: Judged) -> float:
    """What it was: the limit has the tolerance taken off already."""
    kept = 1 + part.tolerance if judged.figure.better is Direction.LOWER else 1 - part.tolerance
    return part.limit / kept if kept > 0 else 0.0


def _single(result: Result, judged: Judged, part: JudgedPart, before: float) -> Single:
    figure = judged.figure
    return Single(
        subject_name(result.subject),
        result.check,
        figure.metric,
        figure.unit,
        before,
        figure.measured,
        figure.measured / before - 1,
        part.verdict,
    )


def _change(
    check: str, metric: str, unit: str, better: Direction, compared: list[tuple[Single, float]]
) -> MetricChange:
    singles = [single for single, _ in compared]
    changes = sorted(single.change for single in singles)
    sign = 1 if better is Direction.HIGHER else -1
    return MetricChange(
        check,
        metric,
        unit,
        better,
        median(single.before for single in singles),
        median(single.now for single in singles),
        median(changes),
        changes[0],
        changes[-1],
        max(tolerance for _, tolerance in compared),
        min(singles, key=lambda one: (ORDER[one.verdict], sign * one.change)),
        len(singles),
        sum(single.verdict is Verdict.FAIL for single in singles),
    )
