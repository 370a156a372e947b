"""What a culprit's sentence rests on: its figures, each with what it was compared with, and other reasons."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from clustercheck.locate.culprits import ALSO
from clustercheck.model import Culprit, Judged, JudgedPart, Part, Result, Subject, Verdict
from clustercheck.result.document import Document
from clusterctl.report.expectation import metric_name
from clusterctl.report.subjects import subject_name
from clusterctl.report.view import value

MAX_FIGURES = 8
MAX_REASONS = 6
CUT = " ..."
CLAUSE_END = re.compile("[;,:] | and | [(]")
SHOWN = (Part.FLOOR, Part.BASELINE, Part.PEERS)


@dataclass(frozen=True)
class CulpritFigure:
    """One figure that is wrong: ``compared`` has its floor, baseline and peers, empty where there is none.

    How far it is from those that it fails stands behind them. ``who`` has it, where not the culprit itself.
    """

    check: str
    quantity: str
    who: str
    measured: str
    compared: tuple[str, ...]


@dataclass(frozen=True)
class CulpritDetails:
    """What stands below the sentence, and how many more there are of each."""

    figures: tuple[CulpritFigure, ...]
    more_figures: int
    reasons: tuple[str, ...]
    more_reasons: int


def culprit_details(document: Document) -> list[tuple[Culprit, CulpritDetails]]:
    """Every culprit with its details."""
    wrong: dict[str, list[Result]] = {}
    for result in document.results:
        if result.verdict is Verdict.FAIL and result.figures:
            for node in {result.subject.node, result.subject.peer} - {None}:
                wrong.setdefault(str(node), []).append(result)
    return [(culprit, _details(culprit, wrong.get(culprit.node, ()))) for culprit in document.culprits]


def fitted(culprit: Culprit, width: int) -> str:
    """Its sentence on one line of at most ``width``, cut where a clause ends; what is cut stands below it.

    The other checks go first, since their reasons or figures are below it in any case.
    """
    sentence = culprit.because
    if len(sentence) <= width:
        return sentence
    alone = sentence.partition(ALSO)[0]
    if len(alone) <= width:
        return alone
    start = alone[: max(0, width - len(CUT))]
    ends = [match.start() for match in CLAUSE_END.finditer(start) if 2 * match.start() > width]
    return start[: ends[-1] if ends else start.rfind(" ") if " " in start else len(start)] + CUT


def cut_reason(culprit: Culprit, details: CulpritDetails, line: str) -> str:
    """The reason in full of a sentence that was cut to ``line``; empty where that or a figure has it."""
    first = culprit.reasons[0] if culprit.reasons else culprit.because
    in_figures = first.partition(":")[0] in {figure.check for figure in details.figures}
    return first if line.endswith(CUT) and not in_figures and first not in details.reasons else ""


def _details(culprit: Culprit, wrong: Sequence[Result]) -> CulpritDetails:
    """Its wrong figures, the worst of each quantity, and those reasons that neither they nor its line say."""
    worst: dict[tuple[str, str], tuple[Result, Judged]] = {}
    for result, judged in _figures(culprit, wrong):
        key = (result.check, judged.figure.metric)
        if key not in worst or _margin(judged) < _margin(worst[key][1]):
            worst[key] = (result, judged)
    figures = [_figure(culprit, result, judged) for result, judged in list(worst.values())[:MAX_FIGURES]]
    shown = {check for check, _ in worst}
    reasons = [
        reason
        for reason in culprit.reasons
        if reason.partition(":")[0] not in shown and not culprit.because.startswith(reason)
    ]
    return CulpritDetails(
        tuple(figures),
        len(worst) - len(figures),
        tuple(reasons[:MAX_REASONS]),
        max(0, len(reasons) - MAX_REASONS),
    )


def _figures(culprit: Culprit, wrong: Sequence[Result]) -> Iterator[tuple[Result, Judged]]:
    """Of those checks alone that its reasons name: it may be a mere victim in others."""
    named = {reason.partition(":")[0] for reason in (culprit.because, *culprit.reasons)}
    for result in wrong:
        if result.check not in named or not _is_of(culprit, result.subject):
            continue
        for judged in result.figures:
            if judged.verdict is Verdict.FAIL:
                yield result, judged


def _is_of(culprit: Culprit, subject: Subject) -> bool:
    if culprit.scope not in ("node", "gpu", "link") or subject.node is None:
        return False
    if culprit.peer is not None:
        return {subject.node, subject.peer} == {culprit.node, culprit.peer}
    return culprit.node in (subject.node, subject.peer) and (culprit.gpu in (None, subject.gpu))


def _margin(judged: Judged) -> float:
    return min(part.margin for part in judged.parts if part.verdict is Verdict.FAIL)


def _figure(culprit: Culprit, result: Result, judged: Judged) -> CulpritFigure:
    figure, parts = judged.figure, {part.part: part for part in judged.parts}
    exact = subject_name(result.subject) != subject_name(Subject(culprit.node, culprit.gpu))
    return CulpritFigure(
        result.check,
        metric_name(figure.metric),
        subject_name(result.subject) if exact else "",
        value(float(figure.measured), figure.unit),
        tuple(_compared(judged, parts[part]) if part in parts else "" for part in SHOWN),
    )


def _compared(judged: Judged, part: JudgedPart) -> str:
    """The reference, and how far from it the figure is where that is too far."""
    reference = part.reference(judged.figure.better)
    text = value(float(reference))
    if part.verdict is not Verdict.FAIL or not reference:
        return text
    return f"{text} ({100 * (judged.figure.measured / reference - 1):+.0f} %)"
