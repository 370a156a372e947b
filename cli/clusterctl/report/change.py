"""What has changed since the baseline, for readers: the environment, and what of the figures is no noise."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from clustercheck.result.changes import Outcome, QuantityChange, SubjectChange
from clustercheck.result.document import Document
from clusterctl.engine.wording import counted
from clusterctl.report.expectation import metric_name
from clusterctl.report.subjects import ALL_NODES, names_in_ranges, subject_name

UNCHANGED = 0.01  # a part of what it was
MAX_PLACES = 4
NO_CHANGE = "no software, firmware or variable of the jobs that is known of both runs"
OUTCOMES = {
    Outcome.REGRESSED: "regressed",
    Outcome.IMPROVED: "improved",
    Outcome.SAME: "same",
    Outcome.CANNOT_TELL: "cannot tell",
}


@dataclass(frozen=True)
class Comparison:
    """With which run, what could not be compared with it, what differs from it, and what changed."""

    run: str
    finished: str
    not_compared: tuple[str, ...]
    differs: tuple[str, ...]
    changes: tuple[QuantityChange, ...]
    findings: tuple[tuple[str, str], ...]  # the outcome in words, and what it is about


def comparison(document: Document) -> Comparison | None:
    """The comparison with the baseline; None if there was none."""
    about = document.environment.get("baseline")
    if not isinstance(about, Mapping):
        return None
    return Comparison(
        str(about.get("run", "")),
        str(about.get("finished", "")),
        tuple(_texts(about.get("not_compared"))),
        tuple(_environment(about)),
        document.changes,
        tuple(_findings(document.changes)),
    )


def is_even(change: QuantityChange) -> bool:
    """Whether no subject's figure has changed."""
    return not change.beyond and max(-change.lowest, change.highest) < UNCHANGED


def worst_name(change: QuantityChange) -> str:
    """The subject that has lost most."""
    return subject_name(change.worst.subject)


def _environment(about: Mapping[str, Any]) -> Iterator[str]:
    """``driver 580.95.05 -> 580.105.08: all nodes``; documents of before 2026-11-24 have sentences alone."""
    changed = about.get("changed")
    if not isinstance(changed, list):
        yield from _texts(about.get("differs"))
        return
    for one in changed:
        if isinstance(one, Mapping):
            where = ALL_NODES if one.get("everywhere", True) else names_in_ranges(_texts(one.get("nodes")))
            yield f"{one.get('what')} {one.get('before')} -> {one.get('now')}: {where}"


def _texts(said: Any) -> list[str]:
    """What a document lists; nothing, where it is no list."""
    return [str(one) for one in said] if isinstance(said, (list, tuple)) else []


def _findings(changes: Sequence[QuantityChange]) -> Iterator[tuple[str, str]]:
    """What regressed first; quantities of a check that changed alike in the same places are one."""
    for outcome in (Outcome.REGRESSED, Outcome.IMPROVED):
        together: dict[tuple[Any, ...], list[QuantityChange]] = {}
        for change in changes:
            if outcome in (change.fleet, change.outcome):
                together.setdefault((change.check, *_where(change, outcome)), []).append(change)
        for alike in together.values():
            yield OUTCOMES[outcome], _finding(alike, outcome)
    same = [change for change in changes if change.outcome is Outcome.SAME]
    if same:
        yield OUTCOMES[Outcome.SAME], _named(same)
    unknown: dict[str, list[QuantityChange]] = {}
    for change in changes:
        if change.outcome is Outcome.CANNOT_TELL:
            unknown.setdefault(change.because, []).append(change)
    for because, alike in unknown.items():
        yield OUTCOMES[Outcome.CANNOT_TELL], f"{_named(alike)}: {because}"


def _where(change: QuantityChange, outcome: Outcome) -> tuple[bool, tuple[str, ...]]:
    return change.fleet is outcome, tuple(subject_name(one.subject) for one in _places(change, outcome))


def _places(change: QuantityChange, outcome: Outcome) -> tuple[SubjectChange, ...]:
    return change.regressed if outcome is Outcome.REGRESSED else change.improved


def _finding(alike: Sequence[QuantityChange], outcome: Outcome) -> str:
    everywhere, places = _where(alike[0], outcome)
    parts = []
    if everywhere:
        parts.append(f"{_percents([change.middle for change in alike])} fleet-wide{_interval(alike)}")
    if places:
        changes = [one.change for change in alike for one in _places(change, outcome)]
        more = [f"{len(places) - MAX_PLACES} more"] if len(places) > MAX_PLACES else []
        named = "; ".join([*places[:MAX_PLACES], *more])
        parts.append(f"{_percents(changes)} at {named}")
    return f"{_named(alike)}: {'; '.join(parts)}"


def _interval(alike: Sequence[QuantityChange]) -> str:
    """Of how many nodes, and the interval of one quantity's median."""
    nodes, interval = alike[0].nodes, alike[0].interval
    if nodes < 2:
        return ""
    if len(alike) > 1 or interval is None:
        return f" ({nodes} nodes)"
    return f" ({nodes} nodes, 95 % interval {_percents(interval)})"


def _percents(parts: Sequence[float]) -> str:
    """``-9.0 %``, or ``-9.4 to -8.8 %``."""
    ends = [f"{100 * part:+.1f}" for part in (min(parts), max(parts))]
    return f"{ends[0]} %" if ends[0] == ends[1] else f"{ends[0]} to {ends[1]} %"


def _named(changes: Sequence[QuantityChange]) -> str:
    """``gpu-gemm gemm bf16``, ``gpu-gemm (5 quantities)``, ``12 quantities of 4 checks``."""
    checks = dict.fromkeys(change.check for change in changes)
    if len(changes) == 1:
        return f"{changes[0].check} {metric_name(changes[0].metric)}"
    if len(checks) == 1:
        return f"{changes[0].check} ({len(changes)} quantities)"
    return f"{len(changes)} quantities of {counted(len(checks), 'check')}"
