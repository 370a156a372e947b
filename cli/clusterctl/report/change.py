"""What has changed since the baseline: every quantity then and now, and who changed most."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

from clusterctl.report.expectation import figures
from clusterctl.report.view import ORDER, Document, subject_name

UNCHANGED = 0.01  # a part of what it was


@dataclass(frozen=True)
class Single:
    """One figure of one subject, then and now, in its unit; ``change`` is a part of then."""

    who: str
    check: str
    metric: str
    unit: str
    then: float
    now: float
    change: float
    verdict: str


@dataclass(frozen=True)
class Change:
    """One quantity: medians in its unit, changes as parts of then; ``worst`` is the one to look at.

    ``allowed`` is the change that may be noise, ``beyond`` how many are worse than that.
    """

    check: str
    metric: str
    unit: str
    better: str
    then: float
    now: float
    middle: float
    lowest: float
    highest: float
    allowed: float
    worst: Single
    compared: int
    beyond: int

    @property
    def even(self) -> bool:
        """Whether no subject's figure is another than it was."""
        return not self.beyond and max(-self.lowest, self.highest) < UNCHANGED


@dataclass(frozen=True)
class Comparison:
    """With which run, what of it could not be compared, what else is another now, and what changed."""

    run: str
    finished: str
    not_compared: tuple[str, ...]
    differs: tuple[str, ...]
    changes: tuple[Change, ...]


def comparison(document: Document) -> Comparison | None:
    """The comparison with the baseline; None where there was none."""
    about = (document.get("environment") or {}).get("baseline")
    if not isinstance(about, Mapping):
        return None
    together: dict[tuple[str, str, str, str], list[tuple[Single, float]]] = {}
    for result, figure in figures(document):
        for part in figure["parts"]:
            then = _then(part, figure) if part["part"] == "baseline" else None
            if then:
                single = _single(result, figure, part, then)
                key = (single.check, single.metric, single.unit, str(figure["better"]))
                together.setdefault(key, []).append((single, float(part["tolerance"])))
    changes = tuple(_change(*key, told) for key, told in together.items())
    return Comparison(
        str(about.get("run", "")),
        str(about.get("finished", "")),
        tuple(map(str, about.get("not_compared") or ())),
        tuple(map(str, about.get("differs") or ())),
        changes,
    )


def _then(part: Mapping[str, Any], figure: Mapping[str, Any]) -> float:
    """What it was: the limit has the tolerance taken off already."""
    tolerance = float(part["tolerance"])
    kept = 1 + tolerance if figure["better"] == "lower" else 1 - tolerance
    return float(part["limit"]) / kept if kept > 0 else 0.0


def _single(
    result: Mapping[str, Any], figure: Mapping[str, Any], part: Mapping[str, Any], then: float
) -> Single:
    now = float(figure["measured"])
    return Single(
        subject_name(result["subject"]),
        str(result["check"]),
        str(figure["metric"]),
        str(figure["unit"]),
        then,
        now,
        now / then - 1,
        str(part["verdict"]),
    )


def _change(check: str, metric: str, unit: str, better: str, told: list[tuple[Single, float]]) -> Change:
    singles = [single for single, _ in told]
    changes = sorted(single.change for single in singles)
    sign = 1 if better == "higher" else -1
    return Change(
        check,
        metric,
        unit,
        better,
        median(single.then for single in singles),
        median(single.now for single in singles),
        median(changes),
        changes[0],
        changes[-1],
        max(tolerance for _, tolerance in told),
        min(singles, key=lambda one: (ORDER[one.verdict], sign * one.change)),
        len(singles),
        sum(single.verdict == "fail" for single in singles),
    )
