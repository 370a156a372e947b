"""Two seeds for every limit that a check's figures have: 5 % beyond it, which must be found, and 5 % within.

They come of the limits as they are judged, so they stay beside a limit that is changed: whether a limit is the right
one, the recorded verdicts and the limits that are entered twice say. A floor, a ceiling or what equals have is
crossed by one subject's figure, scaled where programs said it; a baseline by what that was before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from clustercheck.checks.base import Check, evaluate
from clustercheck.evidence.cluster import Evidence
from clustercheck.expect.baseline import Baseline, BaselineFigure
from clustercheck.expect.peers import LEAST_EQUALS
from clustercheck.model import Direction, Figure, Part, Result, Subject, Verdict

BESIDE = 0.05
REACHED = 0.015  # of the limit: rounding, and that the median of equals moves with one of them
ABOVE_FLOOR = 1.01  # where equals are made faster, since one that is behind them would be below its floor
NODES = 3


@dataclass(frozen=True)
class FigureLimit:
    """One limit, and the ``figure`` that is next to it in healthy ``evidence``, whose ``results`` these are.

    ``upper`` where the figure is to be below the ``limit``.
    """

    check: Check
    evidence: Evidence
    results: Sequence[Result]
    subject: Subject
    figure: Figure
    part: Part
    limit: float
    upper: bool

    def __str__(self) -> str:
        return f"{self.part} of {self.figure.metric} on {_words(self.subject)}"

    @property
    def place(self) -> tuple[str, Sequence[bool]]:
        """Where a part is judged once: a node's limits are others than the group's."""
        return self.figure.metric, _named(self.subject)

    @property
    def of_group(self) -> bool:
        """Whether it is of all nodes together, which have no equals."""
        return not any(_named(self.subject))

    def evidence_beside(self, *, beyond: bool) -> Evidence:
        """The evidence with the figure 5 % beyond the limit, or within. Raises LookupError."""
        factor = self.limit * (1 + BESIDE if self.upper == beyond else 1 - BESIDE) / self.figure.measured
        metric = self.figure.metric
        if self.part is Part.BASELINE:
            then = _baseline(self.check, self.results, {(self.subject, metric): 1 / factor})
            return replace(self.evidence, baseline=then)
        if self.check.scale is None:
            raise LookupError(f"nothing scales the figures of {self.check.id}: Check.scale")
        if beyond:
            factors = {self.subject: factor}
        elif self.part is Part.PEERS:
            lift = self._lift(factor)
            factors = {**dict.fromkeys(self._alike(), lift), self.subject: factor * lift}
        else:  # all together, so that none is behind its equals
            factors = dict.fromkeys(self._alike(), factor)
        return self.check.scale(metric, factors)(self.evidence)

    def _lift(self, factor: float) -> float:
        """How many times as large everybody's figure is made, so that one behind the others crosses nothing else."""
        if self.figure.ceiling is None:
            return 1 / factor
        floor = self.figure.floor
        least = floor.reference * (1 - floor.tolerance) * ABOVE_FLOOR if floor is not None else 0.0
        return max(1.0, least / (factor * self.figure.measured))

    def _alike(self) -> list[Subject]:
        return [
            result.subject
            for result in self.results
            if _named(result.subject) == _named(self.subject)
            and any(one.figure.metric == self.figure.metric for one in result.figures)
        ]

    def verdict_beside(self, *, beyond: bool) -> tuple[Verdict | None, str]:
        """What the check says of it, and why; None where that does not prove anything of the limit."""
        results = evaluate(self.check, self.evidence_beside(beyond=beyond))
        alarms = [now for now, was in zip(results, self.results) if now.verdict is not was.verdict]
        mine = next(result for result in results if result.subject == self.subject)
        parts = [
            part
            for one in mine.figures
            for part in one.parts
            if (one.figure.metric, part.part) == (self.figure.metric, self.part)
        ]
        if not parts:
            return None, "the figure is not judged by it"
        if abs(parts[0].margin - (-BESIDE if beyond else BESIDE)) > REACHED:
            return None, f"the figure is {parts[0].margin:.1%} within"
        if others := [result for result in alarms if result is not mine]:
            return None, f"{_words(others[0].subject)} is blamed: {others[0].because}"
        return (parts[0].verdict if mine.verdict is parts[0].verdict else None), mine.because

    @property
    def found(self) -> Verdict:
        """What becomes of a figure beyond it."""
        return Verdict.NOT_RUN if self.part is Part.CEILING else Verdict.FAIL


def limits_of(check: Check, healthy: Callable[[int], Evidence]) -> Iterator[FigureLimit]:
    """Every limit that the check's figures have on a ``healthy`` cluster of so many nodes, each part of one once.

    Where figures have too few equals there, those of more nodes.
    """
    found = {(each.place, each.part): each for each in _judged(check, healthy(NODES))}
    compared = [one for one in found.values() if one.part is Part.BASELINE and not one.of_group]
    if any((one.place, Part.PEERS) not in found for one in compared):
        more = _judged(check, healthy(LEAST_EQUALS))
        found = {(each.place, each.part): each for each in more if each.part is Part.PEERS} | found
    return iter(found.values())


def _judged(check: Check, evidence: Evidence) -> list[FigureLimit]:
    """The limits of all figures, what is nearest to its limit last; the baseline is what they are now."""
    if check.prepare is not None:
        evidence = check.prepare(evidence)
    results = evaluate(check, evidence)
    before = replace(evidence, baseline=_baseline(check, results, {}))
    found: list[tuple[float, FigureLimit]] = []
    for result in evaluate(check, before):
        for one in result.figures:
            higher = one.figure.better is Direction.HIGHER
            found += [
                (
                    part.margin,
                    FigureLimit(
                        check,
                        evidence,
                        results,
                        result.subject,
                        one.figure,
                        part.part,
                        part.limit,
                        upper=higher is (part.part is Part.CEILING),
                    ),
                )
                for part in one.parts
            ]
    return [limit for _, limit in sorted(found, key=lambda pair: -pair[0])]


def _baseline(check: Check, results: Sequence[Result], than: Mapping[tuple[Subject, str], float]) -> Baseline:
    """What these results have, times ``than`` where that names a figure."""
    figures = {
        (check.id, result.subject, one.figure.metric): BaselineFigure(
            one.figure.measured * than.get((result.subject, one.figure.metric), 1.0),
            one.figure.unit,
            one.figure.method,
            one.figure.conditions,
        )
        for result in results
        for one in result.figures
    }
    return Baseline("before", "2026-11-01T00:00:00Z", False, figures)


def _named(subject: Subject) -> tuple[bool, ...]:
    return tuple(one is not None for one in (subject.node, subject.gpu, subject.peer))


def _words(subject: Subject) -> str:
    words = [subject.node or "the group"]
    words += [] if subject.gpu is None else [f"GPU {subject.gpu}"]
    words += [] if subject.peer is None else [f"with {subject.peer}"]
    return " ".join(words)
