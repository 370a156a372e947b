"""What a check is, and how it comes to a verdict on each of its subjects."""

from __future__ import annotations

import marshal
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from clustercheck.evidence.cluster import GPUS_IDLE, Evidence
from clustercheck.evidence.comparison import before_of
from clustercheck.expect import groups
from clustercheck.expect.judge import judge_all
from clustercheck.expect.sentence import what_is_wrong
from clustercheck.model import NOTHING, Figure, Judged, Result, Scope, Section, Severity, Subject, Verdict
from clustercheck.parse.bounded import cut
from clustercheck.parse.plain_text import one_line, shortened
from clustercheck.parse.python39 import SLOTS, record
from clustercheck.parse.reading import CannotReadError, NotDoneError

GROUP = Subject()
# What a result holds of the texts and values that nodes brought: every report repeats it.
MAX_BECAUSE = 1000
MAX_SHOWN = 500  # measured, expected
MAX_EVIDENCE_TEXT = 2000
MAX_EVIDENCE = 64 * 1024
MAX_FIGURES = 1024
MAX_FIGURE_TEXT = 300
CUDA_IMAGE = (
    "Name a training image whose Paddle is built with CUDA: training_image_source and training_image_digest."
)


@record(frozen=True, **SLOTS)
class Finding:
    """What a check found on one subject. ``remedy`` replaces the check's own where it says more; ``between``,
    ``server``, ``place_unknown`` and ``joint`` are those of `Result`.

    ``figures`` are judged by the four parts of their expectation: what passed may fail by them. Where nothing
    else is ``measured``, the result shows the first that is wrong, or the first.
    """

    verdict: Verdict
    because: str = ""
    measured: float | str | None = None
    unit: str = ""
    expected: float | str | None = None
    efficiency: float | None = None
    source: str = ""
    method: str = ""
    remedy: str = ""
    evidence: Mapping[str, Any] = field(default_factory=lambda: NOTHING)
    figures: tuple[Figure, ...] = ()
    margin: float | None = None
    waived: bool = False
    between: str = ""
    server: str = ""
    place_unknown: bool = False
    joint: bool = False


@dataclass(frozen=True)
class SeededFault:
    """A fault that the check must catch: ``inject`` plants it in healthy evidence.

    ``subject`` must then turn to ``verdict``: PASS of what lies just within a limit, or of hardware that the
    sample lacks.
    """

    name: str
    inject: Callable[[Evidence], Evidence]
    subject: Subject
    verdict: Verdict = Verdict.FAIL


# A figure by its metric, and how many times as large it is to be on which subjects: evidence with it so.
Scale = Callable[[str, Mapping[Subject, float]], Callable[[Evidence], Evidence]]


@dataclass(frozen=True)
class Check:
    """One thing measured, shown in its ``section`` of the report.

    ``subjects`` are those that the declaration expects, whatever was found.

    ``job`` names the distributed job that it judges; ``heavy`` checks leave busy nodes alone.
    ``severity`` says what a failure means; ``counters`` are parts of the probe that are read once more after
    the run's jobs. ``quantities`` is what a sentence calls its figures. ``scale`` plants figures beside each
    of their limits (`checks/support/seeding_limits.py`), in what ``prepare`` makes of the healthy sample if
    that alone does not limit all of them.
    """

    id: str
    title: str
    section: Section
    scope: Scope
    measures: str
    method: str
    requires: str
    expectation: str
    remedy: str
    subjects: Callable[[Evidence], Iterable[Subject]]
    judge: Callable[[Evidence, Subject], Finding]
    faults: tuple[SeededFault, ...]
    job: str = ""
    severity: Severity = Severity.MAJOR
    counters: tuple[str, ...] = ()
    quantities: str = "quantities"
    scale: Scale | None = None
    prepare: Callable[[Evidence], Evidence] | None = None

    @property
    def after_jobs(self) -> bool:
        """Whether it is judged when the run's jobs have ended."""
        return bool(self.job or self.counters)

    @property
    def heavy(self) -> bool:
        """Whether it would disturb whoever uses the node."""
        return bool(self.job)


def passed(measured: float | str | None = None, expected: float | str | None = None, **more: Any) -> Finding:
    """It is as it should be."""
    return Finding(Verdict.PASS, measured=measured, expected=expected, **more)


def failed(
    because: str, measured: float | str | None = None, expected: float | str | None = None, **more: Any
) -> Finding:
    """It is not."""
    return Finding(Verdict.FAIL, because, measured=measured, expected=expected, **more)


def warned(
    because: str, measured: float | str | None = None, expected: float | str | None = None, **more: Any
) -> Finding:
    """It could be better, as a plain operating system brings it: a failure where the site is strict."""
    return Finding(Verdict.WARNING, because, measured=measured, expected=expected, **more)


def not_run(because: str, **more: Any) -> Finding:
    """It could not be judged."""
    return Finding(Verdict.NOT_RUN, because, **more)


def waived(because: str) -> Finding:
    """The operator does not want it judged."""
    return Finding(Verdict.EXCLUDED, because, waived=True)


def not_applicable(because: str, **more: Any) -> Finding:
    """It does not apply here, for a reason that is named."""
    return Finding(Verdict.EXCLUDED, because, **more)


def every_node(evidence: Evidence) -> Iterable[Subject]:
    """One subject a declared node."""
    return [Subject(node.name) for node in evidence.spec.nodes]


def every_gpu_node(evidence: Evidence) -> Iterable[Subject]:
    """One subject a declared node that should have GPUs, or of which nobody can say that it has none."""
    return [
        Subject(node.name)
        for node in evidence.spec.nodes
        if evidence.gpu_count(node.name)
        or (evidence.expected_gpus(node.name) is None and node.name not in evidence.reachable)
    ]


def every_gpu(evidence: Evidence) -> Iterable[Subject]:
    """One subject a declared GPU."""
    return evidence.once(_gpus)


def _gpus(evidence: Evidence) -> Sequence[Subject]:
    return tuple(
        Subject(node.name, gpu)
        for node in evidence.spec.nodes
        for gpu in range(evidence.gpu_count(node.name))
    )


def the_group(_evidence: Evidence) -> Iterable[Subject]:
    """The group as one."""
    return [GROUP]


def expected_subjects(check: Check, evidence: Evidence) -> tuple[Subject, ...]:
    """The check's subjects, each once; where it cannot name them, all that its scope has. Never raises."""
    return _with_subjects(check, evidence)[1]


def evaluate(check: Check, evidence: Evidence) -> list[Result]:
    """The check's verdict on every expected subject. Never raises: what raised is not run."""
    check, subjects = _with_subjects(check, evidence)
    found = [_find(check, evidence, subject) for subject in subjects]
    judged: Mapping[int, tuple[Judged, ...]] = {}
    try:
        before = before_of(evidence, check.id)
        judged = judge_all(  # by number, which is found faster than a subject
            {number: finding.figures for number, finding in enumerate(found) if finding.figures},
            kind=lambda number: _kind(evidence, subjects[number]),
            before=lambda number, figure: before(subjects[number], figure),
            node=lambda number: subjects[number].node if subjects[number].peer is None else None,
        )
    except Exception as error:  # noqa: BLE001 - figures that cannot be judged prove nothing
        found = [_without_figures(finding, error) for finding in found]
    kept = _SharedParts()
    return [
        _result(check, subject, finding, evidence, judged.get(number, ()), kept=kept)
        for number, (subject, finding) in enumerate(zip(subjects, found))
    ]


def _with_subjects(check: Check, evidence: Evidence) -> tuple[Check, tuple[Subject, ...]]:
    """The check with its subjects; one that cannot name them fails on each with what it raised."""
    try:
        return check, evidence.once(partial(_each_once, check.subjects), ("subjects", check.subjects))
    except Exception as error:  # noqa: BLE001 - its cells are in the ledger all the same
        return replace(check, judge=_raising(error)), tuple(_of_scope(check.scope, evidence))


def _each_once(name: Callable[[Evidence], Iterable[Subject]], evidence: Evidence) -> tuple[Subject, ...]:
    subjects = tuple(name(evidence))
    if len(set(subjects)) < len(subjects):
        raise ValueError("it names a subject more than once")
    return subjects


def _raising(error: Exception) -> Callable[[Evidence, Subject], Finding]:
    def judge(_evidence: Evidence, _subject: Subject) -> Finding:
        raise error

    return judge


def _of_scope(scope: Scope, evidence: Evidence) -> Iterable[Subject]:
    """What a check of this scope is about where it cannot say so itself: one subject at least."""
    if scope in (Scope.PAIR, Scope.GROUP):
        return [GROUP]
    if scope in (Scope.GPU, Scope.LINK):
        with suppress(Exception):
            return every_gpu(evidence) or [GROUP]
    return every_node(evidence)


def _kind(evidence: Evidence, subject: Subject) -> Hashable:
    """Subjects of one kind are equals: their nodes are of one kind, or the two nodes of a pair are."""
    names = [name for name in (subject.node, subject.peer) if name is not None]
    return tuple(sorted(evidence.kind(name) for name in names))


def _with_figures(check: Check, finding: Finding, judged: Sequence[Judged]) -> Finding:
    """What was found, as its figures turn it: a pass, a warning or what is not known may fail by them."""
    if not judged:
        return finding
    verdicts = [one.verdict for one in judged]
    fails = Verdict.FAIL in verdicts
    worst = Verdict.FAIL if fails else Verdict.NOT_RUN
    wrong = [one for one, verdict in zip(judged, verdicts) if verdict is worst]
    may_fail = finding.verdict in (Verdict.NOT_RUN, Verdict.WARNING)
    if wrong and (finding.verdict is Verdict.PASS or (may_fail and fails)):
        because = what_is_wrong(wrong, judged, check.quantities)
        if finding.verdict is Verdict.WARNING:
            because = f"{because}; {finding.because}"
        in_groups = [
            part.because
            for one in wrong
            for part in one.parts
            if part.method == groups.METHOD and part.because
        ]
        if in_groups and in_groups[0] not in because:
            because = f"{because}; {in_groups[0]}"
        remedy = groups.REMEDY if in_groups else finding.remedy
        finding = replace(finding, verdict=wrong[0].verdict, because=because, remedy=remedy)
    if finding.measured is not None:
        return finding
    first = (wrong or judged)[0]
    limit = first.shown
    return replace(
        finding,
        measured=round(first.figure.measured, 4),
        unit=first.figure.unit,
        expected=round(limit.limit, 4) if limit else None,
        efficiency=first.figure.efficiency,
        source=limit.source if limit else "",
        method=first.figure.method,
        margin=limit.margin if limit else None,
    )


def _with_idle_gpus(check: Check, evidence: Evidence, subject: Subject, finding: Finding) -> Finding:
    """A job in which GPUs were not used proves nothing of them, and says so."""
    idle = evidence.gpus_idle(check.job, subject.node) if check.job else ()
    if not idle:
        return finding
    finding = replace(finding, method=f"{finding.method or check.method}; {GPUS_IDLE}")
    if finding.verdict is not Verdict.PASS or all(evidence.nodes[node].simulated for node in idle):
        return finding
    return replace(finding, verdict=Verdict.NOT_RUN, because=GPUS_IDLE, remedy=CUDA_IMAGE)


def _find(check: Check, evidence: Evidence, subject: Subject) -> Finding:
    try:
        if (barred := _barred(check, evidence, subject)) is not None:
            return barred
        return _require_bounded(check.judge(evidence, subject))
    except NotDoneError as error:
        return not_run(str(error))
    except CannotReadError as error:
        return not_run(f"cannot read: {error}")
    except Exception as error:  # noqa: BLE001 - a check that fails itself has judged nothing
        return _failed_itself(error)


def _require_bounded(finding: Finding) -> Finding:
    """The finding. Raises CannotReadError where its figures are more, or longer, than honest ones."""
    figures = finding.figures
    if not figures:
        return finding
    if len(figures) > MAX_FIGURES:
        raise CannotReadError(f"{len(figures)} figures, at most {MAX_FIGURES} are read")
    for figure in figures:
        # Of conditions only texts are a node's own: lists are of the inventory's names, as many as there are.
        conditions = [each for each in figure.conditions.values() if isinstance(each, str)]
        texts = (figure.metric, figure.unit, figure.method, figure.label, *conditions)
        if max(map(len, texts)) > MAX_FIGURE_TEXT:
            raise CannotReadError(
                f"the figure {one_line(figure.metric, 40)} is described at too great length"
            )
    return finding


def _failed_itself(error: Exception) -> Finding:
    return not_run(f"the check itself failed: {type(error).__name__}: {error}")


class _SharedParts:
    """Texts and evidence of a check's results, cut to size. Equal ones are one object: many nodes agree."""

    def __init__(self) -> None:
        self._texts: dict[tuple[str, int], str] = {}
        self._evidence: dict[bytes, Mapping[str, Any]] = {}

    def text(self, text: str, limit: int) -> str:
        """A text of at most this length."""
        if not text:
            return text
        found = self._texts.get((text, limit))
        return self._texts.setdefault((text, limit), str(shortened(text, limit))) if found is None else found

    def shown(self, value: float | str | None) -> float | str | None:
        """What was measured or expected."""
        return self.text(value, MAX_SHOWN) if isinstance(value, str) else value

    def evidence(self, document: Mapping[str, Any]) -> Mapping[str, Any]:
        """Evidence; equal are those whose types are, too."""
        if not document:
            return document
        said: Any = document
        try:
            key = marshal.dumps(said, 2)  # from version 3 on equal documents may differ by references
        except ValueError:  # a type of our own
            return cut(document, text=MAX_EVIDENCE_TEXT, characters=MAX_EVIDENCE)
        if key not in self._evidence:
            self._evidence[key] = cut(document, text=MAX_EVIDENCE_TEXT, characters=MAX_EVIDENCE)
        return self._evidence[key]


def _without_figures(finding: Finding, error: Exception) -> Finding:
    """A pass that hung on figures which could not be judged is none; what failed besides them has failed."""
    if finding.verdict is Verdict.PASS and finding.figures:
        return _failed_itself(error)
    return finding


def _barred(check: Check, evidence: Evidence, subject: Subject) -> Finding | None:
    """Why this subject is not judged at all, None where it is."""
    for exclusion in evidence.exclusions:
        if exclusion.covers(check.id, subject):
            return waived(exclusion.reason)
    if subject.node is None:
        return None
    spec, node = evidence.declared.get(subject.node), evidence.nodes.get(subject.node)
    if spec is not None and spec.excluded:
        return waived(f"{subject.node} is quarantined: {spec.excluded}")
    if check.id != "node-reachable" and (node is None or node.unreachable):
        because = node.unreachable if node else "nothing was collected"
        return not_run(f"the node could not be probed: {because}")
    if subject.node in evidence.left_out and check.heavy:
        return not_run(evidence.left_out[subject.node])
    return None


def _result(
    check: Check,
    subject: Subject,
    finding: Finding,
    evidence: Evidence,
    judged: tuple[Judged, ...],
    *,
    kept: _SharedParts,
) -> Result:
    try:
        finding = _with_idle_gpus(check, evidence, subject, _with_figures(check, finding, judged))
    except Exception as error:  # noqa: BLE001 - what it is worth cannot be told
        finding, judged = _failed_itself(error), ()
    node = evidence.nodes.get(subject.node) if subject.node else None
    if finding.verdict is Verdict.WARNING and evidence.spec.settings_of(str(subject.node)).strict:
        finding = replace(finding, verdict=Verdict.FAIL)
    speaks = finding.verdict in (Verdict.FAIL, Verdict.WARNING, Verdict.NOT_RUN)
    return Result(
        check=check.id,
        scope=check.scope,
        subject=subject,
        verdict=finding.verdict,
        measured=kept.shown(finding.measured),
        unit=finding.unit,
        expected=kept.shown(finding.expected),
        efficiency=finding.efficiency,
        source=kept.text(finding.source, MAX_BECAUSE),
        method=kept.text(finding.method or check.method, MAX_BECAUSE),
        because=kept.text(finding.because, MAX_BECAUSE),
        remedy=kept.text(finding.remedy or check.remedy, 2 * MAX_BECAUSE) if speaks else "",
        evidence=kept.evidence(finding.evidence),
        severity=check.severity,
        margin=finding.margin,
        waived=finding.waived,
        between=finding.between,
        server=finding.server,
        place_unknown=finding.place_unknown,
        joint=finding.joint,
        figures=judged,
        simulated=node.simulated if node is not None else subject.node is None and evidence.simulated,
    )
