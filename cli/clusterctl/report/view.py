"""A result document for its readers: the verdict first, what is faulty, what was covered."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, TypeGuard

from clustercheck.model import Result, Verdict
from clustercheck.result.document import Document
from clusterctl.report.subjects import MAX_NAMED_PAIRS, culprit_name, subjects_name

NOT_APPLICABLE = "na"
# Outcomes: verdicts as they are shown, where "excluded" is only what the operator waived. The worst first.
ORDER = {"fail": 0, "not_run": 1, "warning": 2, "excluded": 3, NOT_APPLICABLE: 4, "pass": 5}
WORDS = {
    "pass": "pass",
    "fail": "fail",
    "warning": "warning",
    "not_run": "not run",
    NOT_APPLICABLE: "n/a",
    "excluded": "excluded",
}
SENTENCES = {
    "pass": "All applicable checks ran and passed.",
    "fail": "The cluster failed validation.",
    "incomplete": "Some checks could not run; this is not a pass.",
}
SIMULATED = "SIMULATED HARDWARE"
NOTHING = "–"
MAX_NAMED_CULPRITS = 4
PLURAL_UNIT = re.compile(r"[A-Za-z ]{2,}[A-RT-Za-rt-z]s")  # mounts, GPUs; not us, ms, loss


def outcome(result: Result) -> str:
    """The verdict as reports show it: one that does not apply is ``na``, one that is waived ``excluded``."""
    if result.verdict is Verdict.EXCLUDED and not result.waived:
        return NOT_APPLICABLE
    return result.verdict


def counts_text(outcomes: Iterable[str]) -> str:
    """How many of each: ``15 pass, 1 fail``."""
    counts = Counter(outcomes)
    return ", ".join(f"{counts[word]} {WORDS[word]}" for word in WORDS if counts[word])


@dataclass(frozen=True)
class CheckGroup:
    """All results of one check, worst first."""

    check: str
    results: tuple[Result, ...]

    @cached_property
    def outcome(self) -> str:
        """The worst among them."""
        return outcome(self.results[0])

    @cached_property
    def summary(self) -> str:
        """How many ended how: ``15 pass, 1 fail``."""
        return counts_text(map(outcome, self.results))

    @cached_property
    def notable(self) -> tuple[Result, ...]:
        """Results that a reader must see: those that did not pass; of a group of one, that one."""
        if len(self.results) == 1:
            return self.results
        return tuple(result for result in self.results if result.verdict is not Verdict.PASS)

    @cached_property
    def rows(self) -> tuple[Row, ...]:
        """The notable results, those that say the same of several subjects as one."""
        return rows_of(self.notable)

    @cached_property
    def passed_rows(self) -> tuple[Row, ...]:
        """The results that pass without a row of their own, likewise; the lowest figures first."""
        return rows_of(sorted(self.passed, key=_figure))

    @cached_property
    def common(self) -> str:
        """What all that pass without a row measured, if it was the same; else empty."""
        values = {measured_value(result, result.unit) for result in self.passed}
        return values.pop() if len(values) == 1 and values != {NOTHING} else ""

    @cached_property
    def passed(self) -> tuple[Result, ...]:
        """The results without a row of their own."""
        return self.results[len(self.notable) :]


@dataclass(frozen=True)
class Row:
    """Subjects with the same outcome, values, reason and remedy."""

    subjects: str
    results: tuple[Result, ...]

    @property
    def first(self) -> Result:
        """The one with the lowest figure: they differ only in that and in the subject."""
        return self.results[0]

    @property
    def outcome(self) -> str:
        """That of each of them."""
        return outcome(self.first)

    @property
    def measured(self) -> str:
        """What was measured of them: one text, or from the lowest to the highest."""
        ends = sorted(self.results, key=_figure)
        lowest, highest = (measured_value(end, self.first.unit) for end in (ends[0], ends[-1]))
        return lowest if lowest == highest else f"{lowest} to {highest}"


def rows_of(results: Sequence[Result]) -> tuple[Row, ...]:
    """Results in few rows: those that say the same of several subjects are one."""
    pairs = sum(result.subject.peer is not None for result in results)
    same: dict[tuple[object, ...], list[Result]] = {}
    for result in results:
        key: tuple[object, ...] = (outcome(result), str(result.expected), result.remedy)
        if not (pairs > MAX_NAMED_PAIRS and is_number(result.measured)):  # of so many the range is enough
            key += (str(result.measured), result.because)
        same.setdefault(key, []).append(result)
    return tuple(
        Row(subjects_name([r.subject for r in alike]), tuple(sorted(alike, key=_figure)))
        for alike in same.values()
    )


def is_number(measured: object) -> TypeGuard[float]:
    """Whether it can be compared and drawn."""
    return isinstance(measured, int | float) and not isinstance(measured, bool) and math.isfinite(measured)


def _figure(result: Result) -> float:
    return result.measured if is_number(result.measured) else 0.0


@dataclass(frozen=True)
class OpenQuestion:
    """Why checks did not run, on how many subjects, and which."""

    because: str
    remedy: str
    subjects: str
    checks: tuple[str, ...]
    size: int


def headline(document: Document) -> str:
    """The verdict in one line: what, of what, on what kind of hardware, and what was left out of it."""
    simulated = f" on {SIMULATED}" if document.simulated else ""
    return "; ".join([f"{document.verdict.upper()}{simulated}: cluster {document.cluster}", *notes(document)])


def notes(document: Document) -> list[str]:
    """What a reader of the verdict must know besides."""
    texts = document.environment.get("notes")
    return [str(note) for note in texts] if isinstance(texts, list) else []


def summary(document: Document) -> str:
    """One sentence on the verdict, and one on what is faulty."""
    sentence = SENTENCES[document.verdict]
    if not document.culprits:
        return sentence
    names = list(dict.fromkeys(culprit_name(culprit) for culprit in document.culprits))
    more = [f"{len(names) - MAX_NAMED_CULPRITS} more"] if len(names) > MAX_NAMED_CULPRITS else []
    return f"{sentence} Faulty: {'; '.join(names[:MAX_NAMED_CULPRITS] + more)}."


def covered(document: Document) -> list[tuple[str, int]]:
    """How many results have each outcome; those that do not apply apart from those that were waived."""
    coverage = document.coverage
    waived = sum(result.waived for result in document.results)
    counts = {
        "pass": coverage.passed,
        "fail": coverage.failed,
        "warning": coverage.warnings,
        "not_run": coverage.not_run,
        NOT_APPLICABLE: coverage.excluded - waived,
        "excluded": waived,
    }
    return list(counts.items())


def check_groups(document: Document) -> list[CheckGroup]:
    """Results by check: what failed first, then what did not run."""
    by_check: dict[str, list[Result]] = {}
    for result in document.results:
        by_check.setdefault(result.check, []).append(result)
    groups = [
        CheckGroup(check, tuple(sorted(results, key=lambda result: ORDER[outcome(result)])))
        for check, results in by_check.items()
    ]
    return sorted(groups, key=lambda group: ORDER[group.outcome])


def open_questions(document: Document) -> list[OpenQuestion]:
    """What did not run, by the reason for it, the widest first."""
    by_reason: dict[str, list[Result]] = {}
    for result in document.results:
        if result.verdict is Verdict.NOT_RUN:
            by_reason.setdefault(result.because or "no reason given", []).append(result)
    found = [
        OpenQuestion(
            because,
            _shared_remedy(results),
            subjects_name(list(dict.fromkeys(result.subject for result in results))),
            tuple(dict.fromkeys(result.check for result in results)),
            len(results),
        )
        for because, results in by_reason.items()
    ]
    return sorted(found, key=lambda question: -question.size)


def _shared_remedy(results: Sequence[Result]) -> str:
    """What several checks advise alike; one check's own advice is for what it finds."""
    checks = {result.check for result in results}
    remedies = {result.remedy for result in results}
    return remedies.pop() if len(checks) > 1 and len(remedies) == 1 else ""


def node_names(document: Document) -> list[str]:
    """Every node that a result names, in the order of the document."""
    named = (name for result in document.results for name in (result.subject.node, result.subject.peer))
    return list(dict.fromkeys(name for name in named if name is not None))


def duration_s(document: Document) -> float:
    """Seconds from start to finish; 0 if the document does not have them."""
    try:
        started, finished = map(datetime.fromisoformat, (document.started, document.finished))
        return max(0.0, (finished - started).total_seconds())
    except (ValueError, TypeError):  # TypeError: one with a time zone, one without
        return 0.0


def duration_text(document: Document) -> str:
    """How long it took: ``6 min 12 s``; a dash if the document does not say."""
    minutes, seconds = divmod(round(duration_s(document)), 60)
    if not minutes:
        return f"{seconds} s" if seconds else NOTHING
    return f"{minutes} min {seconds} s"


def moment(text: str) -> str:
    """A time of the document as people read it: ``2026-11-20 19:57 UTC``; any other text stays as it is."""
    try:
        when = datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError):
        return text
    return f"{when:%Y-%m-%d %H:%M} UTC"


def value(measured: Any, unit: str = "") -> str:
    """A measured or expected value as text; a dash if there is none."""
    if measured is None or measured == "":
        return NOTHING
    if isinstance(measured, bool):
        return "yes" if measured else "no"
    if isinstance(measured, float):
        digits = 2 if abs(measured) < 100 else 1
        text = f"{measured:.{digits}f}" if abs(measured) >= 1 else f"{measured:.3g}"
        return f"{text} {unit}".strip()
    if measured == 1 and PLURAL_UNIT.fullmatch(unit):
        unit = unit[:-1]
    return f"{measured} {unit}".strip()


def measured_value(result: Result, unit: str) -> str:
    """What was measured as text; of nothing bad, where none was expected, no figure: not ``0 tests``."""
    counted = type(result.measured) is int and type(result.expected) is int
    if counted and result.verdict is Verdict.PASS and result.measured == result.expected == 0:
        return "none"
    return value(result.measured, unit)


def bytes_text(size: float) -> str:
    """A size in the binary units that collectives are measured at: ``16 MiB``."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024 or unit == "GiB":
            return f"{size:g} {unit}" if size == int(size) else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size} B"
