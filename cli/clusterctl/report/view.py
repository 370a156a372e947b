"""A result document as its readers want it: the verdict first, who is to blame, what was covered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Document = Mapping[str, Any]
Result = Mapping[str, Any]

ORDER = {"fail": 0, "not_run": 1, "excluded": 2, "pass": 3}
AS_READ = ("pass", "fail", "not_run", "excluded")
WORDS = {"pass": "pass", "fail": "fail", "not_run": "not run", "excluded": "excluded"}
SENTENCES = {
    "pass": "Everything that was to be judged was judged, and is good.",
    "fail": "The cluster is not fit as it is.",
    "incomplete": "Not everything could be judged: this is no pass.",
}
SIMULATED = "SIMULATED HARDWARE"
NOTHING = "–"


@dataclass(frozen=True)
class CheckGroup:
    """All results of one check, worst first."""

    check: str
    results: tuple[Result, ...]

    @property
    def verdict(self) -> str:
        """The worst verdict among them."""
        return str(self.results[0]["verdict"])

    @property
    def summary(self) -> str:
        """How many ended how: ``15 pass, 1 fail``."""
        counted = {word: sum(r["verdict"] == word for r in self.results) for word in AS_READ}
        return ", ".join(f"{n} {WORDS[word]}" for word, n in counted.items() if n)

    @property
    def notable(self) -> tuple[Result, ...]:
        """Results that a reader must see: those that are no pass; of a group of one, that one."""
        if len(self.results) == 1:
            return self.results
        return tuple(result for result in self.results if result["verdict"] != "pass")

    @property
    def rows(self) -> tuple[Row, ...]:
        """The notable results, those that say the same of several subjects as one."""
        same: dict[tuple[str, ...], list[Result]] = {}
        for result in self.notable:
            said = (str(result.get(key)) for key in ("verdict", "measured", "expected", "because", "remedy"))
            same.setdefault(tuple(said), []).append(result)
        return tuple(
            Row(subjects_name([r["subject"] for r in alike]), tuple(alike)) for alike in same.values()
        )

    @property
    def common(self) -> str:
        """What all that pass without a row measured, where it was the same; else empty."""
        values = {value(r.get("measured"), str(r.get("unit") or "")) for r in self.passed}
        return values.pop() if len(values) == 1 and values != {NOTHING} else ""

    @property
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
        """One of them: all but the subject is said of each."""
        return self.results[0]


@dataclass(frozen=True)
class NodeRow:
    """One node's results, counted by verdict, and the checks that it did not pass, failures first."""

    node: str
    counts: Mapping[str, int]
    verdict: str
    troubles: tuple[str, ...]


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
    """Several subjects in few words: ``gpu01, GPU 0-7; gpu02, GPU 3``."""
    gpus: dict[str, list[int]] = {}
    plain = []
    for subject in subjects:
        if subject.get("gpu") is not None and subject.get("peer") is None:
            gpus.setdefault(str(subject["node"]), []).append(int(subject["gpu"]))
        else:
            plain.append(subject_name(subject))
    parts = [", ".join(plain)] if plain else []
    parts += [f"{node}, GPU {_ranges(sorted(numbers))}" for node, numbers in gpus.items()]
    return "; ".join(parts)


def _ranges(numbers: Sequence[int]) -> str:
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


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


def node_rows(document: Document) -> list[NodeRow]:
    """Every node that a result names, in the order of the document."""
    by_node: dict[str, list[Result]] = {}
    for result in document.get("results") or []:
        for node in (result["subject"].get("node"), result["subject"].get("peer")):
            if node is not None:
                by_node.setdefault(str(node), []).append(result)
    return [_node_row(node, results) for node, results in by_node.items()]


def _node_row(node: str, results: Sequence[Result]) -> NodeRow:
    counts = {word: sum(r["verdict"] == word for r in results) for word in AS_READ}
    worst = next((word for word in ("fail", "not_run", "pass", "excluded") if counts[word]), "not_run")
    bad = sorted(
        (r for r in results if r["verdict"] in ("fail", "not_run")), key=lambda r: ORDER[r["verdict"]]
    )
    return NodeRow(node, counts, worst, tuple(dict.fromkeys(str(r["check"]) for r in bad)))


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
