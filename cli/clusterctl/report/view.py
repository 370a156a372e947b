"""A result document as its readers want it: the verdict first, who is to blame, what was covered."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

Document = Mapping[str, Any]
Result = Mapping[str, Any]

ORDER = {"fail": 0, "not_run": 1, "warning": 2, "excluded": 3, "pass": 4}
AS_READ = ("pass", "fail", "warning", "not_run", "excluded")
WORDS = {
    "pass": "pass",
    "fail": "fail",
    "warning": "warning",
    "not_run": "not run",
    "excluded": "excluded",
}
SENTENCES = {
    "pass": "Everything that was to be judged was judged, and is good.",
    "fail": "The cluster is not fit as it is.",
    "incomplete": "Not everything could be judged: this is no pass.",
}
SIMULATED = "SIMULATED HARDWARE"
NOTHING = "–"
MOST_PAIRS = 6  # named one by one


@dataclass(frozen=True)
class CheckGroup:
    """All results of one check, worst first."""

    check: str
    results: tuple[Result, ...]

    @cached_property
    def verdict(self) -> str:
        """The worst verdict among them."""
        return str(self.results[0]["verdict"])

    @cached_property
    def summary(self) -> str:
        """How many ended how: ``15 pass, 1 fail``."""
        counted = {word: sum(r["verdict"] == word for r in self.results) for word in AS_READ}
        return ", ".join(f"{n} {WORDS[word]}" for word, n in counted.items() if n)

    @cached_property
    def notable(self) -> tuple[Result, ...]:
        """Results that a reader must see: those that are no pass; of a group of one, that one."""
        if len(self.results) == 1:
            return self.results
        return tuple(result for result in self.results if result["verdict"] != "pass")

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
        """What all that pass without a row measured, where it was the same; else empty."""
        values = {value(r.get("measured"), str(r.get("unit") or "")) for r in self.passed}
        return values.pop() if len(values) == 1 and values != {NOTHING} else ""

    @cached_property
    def passed(self) -> tuple[Result, ...]:
        """The results that are no row of their own."""
        return self.results[len(self.notable) :]


@dataclass(frozen=True)
class Row:
    """Subjects of whom the same is said."""

    subjects: str
    results: tuple[Result, ...]

    @property
    def first(self) -> Result:
        """The one with the lowest figure: all but that and the subject is said of each."""
        return self.results[0]

    @property
    def measured(self) -> str:
        """What was measured of them: one text, or from the lowest to the highest."""
        unit = str(self.first.get("unit") or "")
        ends = sorted(self.results, key=_figure)
        lowest, highest = (value(end.get("measured"), unit) for end in (ends[0], ends[-1]))
        return lowest if lowest == highest else f"{lowest} to {highest}"


def rows_of(results: Sequence[Result]) -> tuple[Row, ...]:
    """Results in few rows: those that say the same of several subjects are one."""
    pairs = sum(result["subject"].get("peer") is not None for result in results)
    same: dict[tuple[str, ...], list[Result]] = {}
    for result in results:
        told = ["verdict", "expected", "remedy"]
        if not (pairs > MOST_PAIRS and _is_figure(result)):  # of so many pairs the range is enough
            told += ["measured", "because"]
        same.setdefault(tuple(str(result.get(key)) for key in told), []).append(result)
    return tuple(
        Row(subjects_name([r["subject"] for r in alike]), tuple(sorted(alike, key=_figure)))
        for alike in same.values()
    )


def _figure(result: Result) -> float:
    return float(result["measured"]) if _is_figure(result) else 0.0


def _is_figure(result: Result) -> bool:
    return isinstance(result.get("measured"), int | float)


@dataclass(frozen=True)
class OpenQuestion:
    """Why something was not judged, of how many subjects, by which checks."""

    because: str
    remedy: str
    subjects: str
    checks: tuple[str, ...]
    size: int


def is_simulated(document: Document) -> bool:
    """Whether any device that was measured says that it is simulated."""
    return bool(document.get("simulated"))


def headline(document: Document) -> str:
    """The verdict in one line: what, of what, on what kind of hardware, and what was left out of it."""
    verdict = str(document["verdict"]).upper()
    simulated = f" on {SIMULATED}" if is_simulated(document) else ""
    return "; ".join([f"{verdict}{simulated}: cluster {document['cluster']}", *notes(document)])


def notes(document: Document) -> list[str]:
    """What a reader of the verdict must know besides."""
    environment = document.get("environment")
    said = environment.get("notes") if isinstance(environment, Mapping) else None
    return [str(note) for note in said] if isinstance(said, list) else []


def blame(document: Document) -> str:
    """One sentence on the verdict."""
    culprits = document.get("culprits") or []
    sentence = SENTENCES.get(str(document["verdict"]), "")
    if not culprits:
        return sentence
    names = list(dict.fromkeys(culprit_name(culprit) for culprit in culprits))
    more = f" and {len(names) - 4} more" if len(names) > 4 else ""
    return f"{sentence} To blame: {', '.join(names[:4])}{more}."


def culprit_name(culprit: Mapping[str, Any]) -> str:
    """A culprit as a person names it: ``gpu02, GPU 3`` or ``link gpu01 - gpu02``."""
    if culprit.get("scope") == "rail" and culprit.get("peer"):
        return ", ".join(filter(None, (culprit["node"], culprit["peer"])))
    if culprit.get("peer"):
        return f"{culprit.get('scope', 'link')} {culprit['node']} - {culprit['peer']}"
    return subject_name(culprit) or str(culprit.get("scope", "the group"))


def subject_name(subject: Mapping[str, Any]) -> str:
    """A subject as a person names it; ``all nodes`` where it is the group."""
    node, gpu, peer = subject.get("node"), subject.get("gpu"), subject.get("peer")
    if node is None:
        return "all nodes"
    if gpu is not None:
        node = f"{node}, GPU {gpu}"
    return f"{node} - {peer}" if peer is not None else str(node)


def subjects_name(subjects: Sequence[Mapping[str, Any]]) -> str:
    """Several subjects in few words: ``gpu01-gpu04, GPU 0-7; gpu05, GPU 3``."""
    gpus: dict[str, list[int]] = {}
    nodes, pairs, others = [], [], []
    for subject in subjects:
        node, peer = subject.get("node"), subject.get("peer")
        if peer is not None:
            pairs.append((str(node), str(peer)))
        elif node is None:
            others.append(subject_name(subject))
        elif subject.get("gpu") is not None:
            gpus.setdefault(str(node), []).append(int(subject["gpu"]))
        else:
            nodes.append(str(node))
    parts = [", ".join([*others, *_pairs_name(pairs), *([names_in_ranges(nodes)] if nodes else [])])]
    alike: dict[str, list[str]] = {}
    for node, numbers in gpus.items():
        alike.setdefault(_ranges(sorted(numbers)), []).append(node)
    parts += [f"{names_in_ranges(names)}, GPU {numbers}" for numbers, names in alike.items()]
    return "; ".join(part for part in parts if part)


def _pairs_name(pairs: Sequence[tuple[str, str]]) -> list[str]:
    """Pairs by name; where they are many, by what they share."""
    if len(pairs) <= MOST_PAIRS:
        return [f"{node} - {peer}" for node, peer in pairs]
    shared = sorted(set(pairs[0]).intersection(*pairs[1:]))
    return [f"{shared[0]} with {len(pairs)} others"] if shared else [f"{len(pairs)} pairs"]


def names_in_ranges(names: Sequence[str]) -> str:
    """Names that count up as one: ``gpu01-gpu06, gpu08``."""
    runs: list[list[str]] = []
    for name in names:
        if runs and name == _next_name(runs[-1][-1]):
            runs[-1].append(name)
        else:
            runs.append([name])
    return ", ".join(", ".join(run) if len(run) < 3 else f"{run[0]}-{run[-1]}" for run in runs)


def _next_name(name: str) -> str | None:
    """``gpu10`` after ``gpu09``; None where a name does not end in a number."""
    number = re.search(r"[0-9]{1,9}\Z", name)
    return None if number is None else name[: number.start()] + str(int(number[0]) + 1).zfill(len(number[0]))


def _ranges(numbers: Sequence[int]) -> str:
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def covered(document: Document) -> list[tuple[str, int]]:
    """How many results ended how; documents before 2026-11-23 know no warnings."""
    return [(verdict, int(document["coverage"].get(verdict, 0))) for verdict in AS_READ]


def check_groups(document: Document) -> list[CheckGroup]:
    """Results by check: what failed first, then what did not run."""
    by_check: dict[str, list[Result]] = {}
    for result in document.get("results") or []:
        by_check.setdefault(str(result["check"]), []).append(result)
    groups = [
        CheckGroup(check, tuple(sorted(results, key=lambda r: ORDER.get(r["verdict"], 0))))
        for check, results in by_check.items()
    ]
    return sorted(groups, key=lambda group: ORDER.get(group.verdict, 0))


def open_questions(document: Document) -> list[OpenQuestion]:
    """What was not judged, by the reason for it, the widest first."""
    by_reason: dict[str, list[Result]] = {}
    for result in document.get("results") or []:
        if result["verdict"] == "not_run":
            by_reason.setdefault(str(result.get("because") or "no reason given"), []).append(result)
    found = [
        OpenQuestion(
            because,
            _shared_remedy(results),
            subjects_name(list({_place(r["subject"]): r["subject"] for r in results}.values())),
            tuple(dict.fromkeys(str(r["check"]) for r in results)),
            len(results),
        )
        for because, results in by_reason.items()
    ]
    return sorted(found, key=lambda question: -question.size)


def _shared_remedy(results: Sequence[Result]) -> str:
    """What several checks advise alike; one check's own advice is for what it finds."""
    checks = {str(result["check"]) for result in results}
    remedies = {str(result.get("remedy") or "") for result in results}
    return remedies.pop() if len(checks) > 1 and len(remedies) == 1 else ""


def _place(subject: Mapping[str, Any]) -> tuple[Any, ...]:
    return subject.get("node"), subject.get("gpu"), subject.get("peer")


def node_names(document: Document) -> list[str]:
    """Every node that a result names, in the order of the document."""
    subjects = [result["subject"] for result in document.get("results") or []]
    named = (subject.get(part) for subject in subjects for part in ("node", "peer"))
    return list(dict.fromkeys(str(name) for name in named if name is not None))


def duration_s(document: Document) -> float:
    """Seconds from start to finish; 0 where the document does not say."""
    try:
        begun, ended = (datetime.fromisoformat(str(document[name])) for name in ("started", "finished"))
        return max(0.0, (ended - begun).total_seconds())
    except (KeyError, ValueError, TypeError):
        return 0.0


def duration_text(document: Document) -> str:
    """How long it took: ``6 min 12 s``; a dash where the document does not say."""
    minutes, seconds = divmod(round(duration_s(document)), 60)
    if not minutes:
        return f"{seconds} s" if seconds else NOTHING
    return f"{minutes} min {seconds} s"


def moment(text: Any) -> str:
    """A time of the document as people read it: ``2026-11-20 19:57 UTC``; what is no time stays as it is."""
    try:
        when = datetime.fromisoformat(str(text)).astimezone(UTC)
    except (ValueError, OverflowError):
        return str(text)
    return f"{when:%Y-%m-%d %H:%M} UTC"


def value(measured: Any, unit: str = "") -> str:
    """A measured or expected value as text; a dash where there is none."""
    if measured is None or measured == "":
        return NOTHING
    if isinstance(measured, bool):
        return "yes" if measured else "no"
    if isinstance(measured, float):
        digits = 2 if abs(measured) < 100 else 1
        text = f"{measured:.{digits}f}" if abs(measured) >= 1 else f"{measured:.3g}"
        return f"{text} {unit}".strip()
    return f"{measured} {unit}".strip()


def bytes_text(size: float) -> str:
    """A size in the binary units that collectives are measured at: ``16 MiB``."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024 or unit == "GiB":
            return f"{size:g} {unit}" if size == int(size) else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size} B"
