"""Two seeds for every limit that a check's figures have: 5 % beyond it, which must be found, and 5 % within.

They are made of the limits as judged, and move with a limit that is changed: whether it is the right one is
for the recorded verdicts and the limits that are entered twice. A floor, a ceiling or what equals have is
crossed by one subject's figure, scaled in what programs printed; a baseline by what the figure was before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from clustercheck.checks.base import Check, evaluate
from clustercheck.evidence.cluster import Evidence
from clustercheck.expect.baseline import Baseline, BaselineFigure
from clustercheck.expect.peers import LEAST_EQUALS
from clustercheck.model import Direction, Figure, JudgedPart, Part, Result, Subject, Verdict

BESIDE = 0.05
REACHED = 0.015  # of the limit: rounding, and that the median of equals moves with one of them
ABOVE_FLOOR = 1.01  # where all are made faster, since one that is behind the others would be below its floor
NODES = 3

Factors = Mapping[Subject, float]
Place = tuple[str, Sequence[bool]]


@dataclass(frozen=True)
class Healthy:
    """A healthy cluster's evidence, and what a check says of it."""

    check: Check
    evidence: Evidence
    results: Sequence[Result]

    def alike(self, place: Place) -> Iterator[Subject]:
        """All subjects that have this figure."""
        for result in self.results:
            if any((one.figure.metric, named(result.subject)) == place for one in result.figures):
                yield result.subject

    def compared(self, then: Mapping[tuple[Subject, str], float]) -> Evidence:
        """With a baseline that has the same figures, times ``then`` where that names one."""
        figures = {
            (self.check.id, result.subject, one.figure.metric): BaselineFigure(
                one.figure.measured * then.get((result.subject, one.figure.metric), 1.0),
                one.figure.unit,
                one.figure.method,
                one.figure.conditions,
            )
            for result in self.results
            for one in result.figures
        }
        baseline = Baseline("before", "2026-11-01T00:00:00Z", False, figures)
        return replace(self.evidence, baseline=baseline)

    @cached_property
    def results_compared(self) -> Sequence[Result]:
        """What the check says beside a baseline that has the same figures."""
        return evaluate(self.check, self.compared({}))


@dataclass(frozen=True)
class FigureLimit:
    """A limit, and the figure that is nearest to it. ``upper`` where that is to be below."""

    subject: Subject
    figure: Figure
    part: Part
    limit: float
    upper: bool

    @property
    def place(self) -> Place:
        """A figure's name, and what its subject names: those of a node have other limits than the group's."""
        return self.figure.metric, named(self.subject)

    def factor(self, *, beyond: bool) -> float:
        """How many times what it is the figure is to be."""
        return self.limit * (1 + BESIDE if self.upper == beyond else 1 - BESIDE) / self.figure.measured

    def factors(self, healthy: Healthy, *, beyond: bool) -> Factors:
        """The same by subject: within a limit others are changed with it, so that nothing else is crossed."""
        factor = self.factor(beyond=beyond)
        if beyond:
            return {self.subject: factor}
        if self.part is not Part.PEERS:  # all together: none is behind its equals
            return dict.fromkeys(healthy.alike(self.place), factor)
        floor, lift = self.figure.floor, 1 / factor
        if self.figure.ceiling is not None:
            least = floor.reference * (1 - floor.tolerance) * ABOVE_FLOOR if floor is not None else 0.0
            lift = max(1.0, least / (factor * self.figure.measured))
        return {**dict.fromkeys(healthy.alike(self.place), lift), self.subject: factor * lift}

    def judged_in(self, result: Result) -> JudgedPart | None:
        """The answer of this part of the expectation; None where it was not asked."""
        answers = {(one.figure.metric, part.part): part for one in result.figures for part in one.parts}
        return answers.get((self.figure.metric, self.part))


@dataclass(frozen=True)
class LimitSeed:
    """Figures 5 % beside a limit each: one, or of baselines all that a check has."""

    healthy: Healthy
    limits: Sequence[FigureLimit]
    beyond: bool

    def verdicts(self) -> Iterator[tuple[str, Verdict, Verdict | None, str]]:
        """By limit: its name, what should become of it, what did, and why; None where that proves nothing."""
        problem, results = "", {result.subject: result for result in self._healthy_results}
        try:
            results = {result.subject: result for result in evaluate(self.healthy.check, self._evidence())}
            problem = self._of_others(results)
        except LookupError as error:
            problem = str(error)
        for limit in self.limits:
            side = "beyond" if self.beyond else "within"
            name = f"5 % {side} the {limit.part} of {limit.figure.metric}, {words(limit.subject)}"
            was = next(result.verdict for result in self._healthy_results if result.subject == limit.subject)
            expected = was  # a pass, or n/a where nothing else limits the figure
            if self.beyond:
                expected = Verdict.NOT_RUN if limit.part is Part.CEILING else Verdict.FAIL
            got = (None, problem) if problem else self._verdict(limit, results[limit.subject], was)
            yield name, expected, *got

    def _of_others(self, results: Mapping[Subject, Result]) -> str:
        """What is said of a subject to which nothing was done; empty where that is nothing new."""
        planted = [limit.subject for limit in self.limits if self.beyond]
        for was in self._healthy_results:
            now = results[was.subject]
            if now.verdict is not was.verdict and now.subject not in planted:
                return f"{words(now.subject)} is found {now.verdict}: {now.because}"
        return ""

    @property
    def _healthy_results(self) -> Sequence[Result]:
        compared = self.limits[0].part is Part.BASELINE
        return self.healthy.results_compared if compared else self.healthy.results

    def _verdict(self, limit: FigureLimit, result: Result, was: Verdict) -> tuple[Verdict | None, str]:
        part = limit.judged_in(result)
        if part is None:
            return None, "the figure is not judged by it"
        if abs(part.margin - (-BESIDE if self.beyond else BESIDE)) > REACHED:
            return None, f"the figure is {part.margin:.1%} within"
        if part.verdict is not (result.verdict if self.beyond or was is Verdict.PASS else Verdict.PASS):
            return None, f"{part.verdict} by it, {result.verdict} in all: {result.because}"
        return result.verdict, result.because

    def _evidence(self) -> Evidence:
        healthy, limits = self.healthy, self.limits
        if limits[0].part is Part.BASELINE:
            then = {(one.subject, one.figure.metric): 1 / one.factor(beyond=self.beyond) for one in limits}
            return healthy.compared(then)
        (limit,) = limits
        if healthy.check.scale is None:
            raise LookupError(f"nothing scales the figures of {healthy.check.id}: name it as its Check.scale")
        factors = limit.factors(healthy, beyond=self.beyond)
        return healthy.check.scale(limit.figure.metric, factors)(healthy.evidence)


def limit_seeds(check: Check, sample: Callable[[int], Evidence]) -> Iterator[LimitSeed]:
    """Those of each metric's every limit, in a healthy ``sample`` of so many nodes.

    Where figures have too few equals in the first sample, more nodes are judged among each other.
    """
    found = _limits_of(check, sample(NODES))
    compared = [place for place, part in found if part is Part.BASELINE and any(place[1])]
    if any((place, Part.PEERS) not in found for place in compared):
        more = _limits_of(check, sample(LEAST_EQUALS)).items()
        found = {key: limit for key, limit in more if key[1] is Part.PEERS} | found
    together: dict[tuple[int, object], tuple[Healthy, list[FigureLimit]]] = {}
    for (place, part), (healthy, limit) in found.items():
        key = (id(healthy), part if part is Part.BASELINE else (place, part))
        together.setdefault(key, (healthy, []))[1].append(limit)
    for healthy, limits in together.values():
        yield from (LimitSeed(healthy, limits, beyond) for beyond in (True, False))


def _limits_of(check: Check, evidence: Evidence) -> dict[tuple[Place, Part], tuple[Healthy, FigureLimit]]:
    """The limits of all figures with what is nearest to each; the baseline is what they are."""
    if check.prepare is not None:
        evidence = check.prepare(evidence)
    healthy = Healthy(check, evidence, evaluate(check, evidence))
    found: dict[tuple[Place, Part], tuple[float, FigureLimit]] = {}
    for result in healthy.results_compared:
        for one in result.figures:
            for part in one.parts:
                upper = (one.figure.better is Direction.HIGHER) is (part.part is Part.CEILING)
                limit = FigureLimit(result.subject, one.figure, part.part, part.limit, upper)
                nearest = found.setdefault((limit.place, part.part), (part.margin, limit))
                if part.margin < nearest[0]:
                    found[limit.place, part.part] = (part.margin, limit)
    return {key: (healthy, limit) for key, (_, limit) in found.items()}


def named(subject: Subject) -> tuple[bool, ...]:
    """Which of node, GPU and peer it names."""
    return tuple(one is not None for one in (subject.node, subject.gpu, subject.peer))


def words(subject: Subject) -> str:
    """As in a sentence."""
    found = [subject.node or "the group"]
    found += [] if subject.gpu is None else [f"GPU {subject.gpu}"]
    found += [] if subject.peer is None else [f"with {subject.peer}"]
    return " ".join(found)
