"""What every check says of every case: `python -m tests.support.golden_verdicts [CHECK...]` writes it anew.

The last line of a file is a checksum of all results of all cases, whole: `... --whole CHECK` prints them, to
be compared where only that line differs.

One file a check in tests/golden/verdicts. A case shows the results that differ from those of the healthy
cluster; cases of one outcome stand together above it, subjects of one outcome before it. `NODE` stands for
the subject's own node. A long text stands in full where it comes first, later by its first words.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tests.support.situations import cases
from tests.support.tree import ROOT
from tests.support.varied_evidence import Case, Varying

from clustercheck.checks.all import CHECKS
from clustercheck.checks.base import Check
from clustercheck.model import Judged, Result, Subject, Verdict

GOLDEN = ROOT / "tests" / "golden" / "verdicts"
MAX_FIGURES = 3
MAX_COMPARED = 1
MAX_PASSES = 1
MAX_LINES = 3
LONG = 44
KEPT = 28
SHOWN, COMPARED = 4, 6  # digits of numbers
MAX_EVIDENCE = 64
OF_FEW = ("between", "server", "place_unknown", "joint")
SEPARATOR = "\x1f"
FAILED_ITSELF = "the check itself failed"


class Texts:
    """Long texts, each in full the first time."""

    def __init__(self) -> None:
        self.labels: dict[str, str] = {}
        self.beginnings: Counter[str] = Counter()

    def shortened(self, text: str) -> str:
        """The text the first time, then how it begins: numbered, where others begin so too."""
        text = text.replace("\n", "\\n")
        if len(text) <= LONG:
            return text
        if label := self.labels.get(text):
            return label
        beginning = text[:KEPT]
        self.beginnings[beginning] += 1
        number = f"({self.beginnings[beginning]})" if self.beginnings[beginning] > 1 else ""
        self.labels[text] = f"{beginning}...{number}"
        return f"{text} {number}".rstrip()


def file_of(check: Check) -> Path:
    """Where its golden file is."""
    return GOLDEN / f"{check.id}.txt"


def text_of(check: Check) -> str:
    """The golden file of a check. Raises AssertionError where the check itself fails over some case."""
    texts = Texts()
    healthy: Mapping[Subject, Result] = {}
    outcomes: dict[tuple[str, ...], list[str]] = {}
    whole = hashlib.sha256()
    for case, found in judged(check):
        whole.update(whole_text(case, found).encode())
        if case.unseen:
            continue
        results = {one.subject: one for one in found}
        lines = tuple(_lines(check, results, healthy if case.compared else {}))
        healthy = healthy or results
        if lines:
            outcomes.setdefault(lines, []).append(case.name)
    parts = [
        "\n".join([*_names(names), *(f"    {_joined(texts, line)}" for line in lines)])
        for lines, names in outcomes.items()
    ]
    return "\n".join([*parts, f"all results, whole: sha256 {whole.hexdigest()[:16]}", ""])


def whole_of(check: Check) -> Iterator[str]:
    """All results of all cases of a check, as JSON, a line a case."""
    for case, found in judged(check):
        yield whole_text(case, found)


def judged(check: Check) -> Iterator[tuple[Case, list[Result]]]:
    """All cases of a check, and what it says of each. Raises AssertionError where it fails itself."""
    varying = Varying(check)
    for case in cases(check, varying):
        found = varying.judged(case.evidence)
        broken = [one.because for one in found if FAILED_ITSELF in one.because]
        assert not broken, f"{check.id}, {case.name}: {broken[0]}"
        yield case, found


def whole_text(case: Case, results: Iterable[Result]) -> str:
    """A case's results, all that they have, as a line of JSON."""
    return json.dumps([case.name, *(_rounded(_told(one), COMPARED) for one in results)], default=str) + "\n"


def _told(result: Result) -> dict[str, Any]:
    """What few results have is left out of the others."""
    values = ((name, getattr(result, name)) for name in _names_in(Result))
    return {name: value for name, value in values if value or name not in OF_FEW}


@cache
def _names_in(kind: type[Any]) -> tuple[str, ...]:
    """What a dataclass holds; nothing, of another type."""
    return tuple(one.name for one in fields(kind)) if is_dataclass(kind) else ()


def _joined(texts: Texts, line: str) -> str:
    beginning, *more = line.split(SEPARATOR)
    return "; ".join([beginning, *map(texts.shortened, more)])


def _names(names: Sequence[str]) -> Iterator[str]:
    """Cases by name: those of one fault, one rank or one part in one line."""
    places: dict[str, dict[str, list[str]]] = {}
    for name in names:
        whole, _, words = name.partition(" = ")
        above, colon, place = whole.rpartition(": ")
        places.setdefault(above + colon or whole.partition(".")[0], {}).setdefault(place, []).append(words)
    for above, some in places.items():
        told = [f"{place} = {', '.join(words)}" if any(words) else place for place, words in some.items()]
        yield (above if above.endswith(": ") else "") + " | ".join(told)


def _lines(
    check: Check, results: Mapping[Subject, Result], healthy: Mapping[Subject, Result]
) -> Iterator[str]:
    """What differs from the healthy cluster, subjects of one outcome together; of many passes the first."""
    subjects: dict[str, list[Subject]] = {}
    passes: list[Subject] = []
    for subject, result in results.items():
        before = healthy.get(subject)
        if result == before:
            continue
        words = SEPARATOR.join(_words(check, result, before))
        words = words.replace(subject.node or "NODE", "NODE")
        if result.verdict is Verdict.PASS and words not in subjects and len(subjects) >= MAX_PASSES:
            passes.append(subject)
        else:
            subjects.setdefault(words, []).append(subject)
    if gone := [subject for subject in healthy if subject not in results]:
        subjects["no result"] = gone
    lines = [f"{_subjects(some)}: {words}" for words, some in subjects.items()]
    yield from lines[:MAX_LINES]
    if len(lines) > MAX_LINES:
        yield f"and {len(lines) - MAX_LINES} lines more"
    if passes:
        yield f"and {len(passes)} pass"


def _subjects(subjects: Sequence[Subject]) -> str:
    """As `gpu01, gpu02 GPU 0-2 5, gpu01-gpu03`."""
    gpus: dict[str, list[int]] = {}
    for subject in subjects:
        name = subject.node or "group"
        name = f"{name}-{subject.peer}" if subject.peer else name
        gpus.setdefault(name, []).extend([] if subject.gpu is None else [subject.gpu])
    return ", ".join(f"{name} GPU {_ranges(some)}" if some else name for name, some in gpus.items())


def _ranges(numbers: Sequence[int]) -> str:
    found: list[list[int]] = []
    for number in numbers:
        if found and found[-1][-1] == number - 1:
            found[-1].append(number)
        else:
            found.append([number])
    return " ".join(str(one[0]) if len(one) == 1 else f"{one[0]}-{one[-1]}" for one in found)


def _words(check: Check, result: Result, before: Result | None) -> Iterator[str]:
    yield result.verdict.value
    yield from filter(None, [result.because])
    if result.measured is not None:
        expected = "" if result.expected is None else f", expected {_number(result.expected)}"
        yield f"{_number(result.measured)} {result.unit}".rstrip() + expected
    for name in ("efficiency", "margin", "source", "method", "remedy"):
        value = getattr(result, name)
        if value not in (None, "", getattr(check, name, ""), getattr(before, name, "")):
            yield f"{name} {_number(value)}"
    for name in ("waived", "simulated", "place_unknown"):
        yield from (name for _ in range(getattr(result, name)))
    for name in ("between", "server"):
        yield from (f"{name} {value}" for value in filter(None, [getattr(result, name)]))
    known = before.evidence if before is not None else {}
    if other := {key: one for key, one in result.evidence.items() if key not in known or known[key] != one}:
        yield "evidence " + _cut(_compact(other))
    if before is None or result.verdict is not Verdict.PASS:
        yield from _figures(result.figures, before)


def _figures(figures: Sequence[Judged], before: Result | None) -> Iterator[str]:
    """Those that differ; their conditions and sources where there is nothing to compare with."""
    known = before.figures if before is not None else ()
    other = [one for place, one in enumerate(figures) if known[place : place + 1] != (one,)]
    most = MAX_FIGURES if before is None else MAX_COMPARED
    for one in other[:most]:
        figure = one.figure
        label = f" {figure.label}" if figure.label else ""
        yield f"{figure.metric}{label} {_number(figure.measured)} {figure.unit}: {one.verdict.value}"
        if before is None and figure.conditions:
            yield _cut(_compact(figure.conditions))
        if before is None and figure.effect is not None:
            yield f"effect {_number(figure.effect.least)}"
        for part in one.parts:
            limit = f"{_number(part.limit)}, margin {_number(part.margin)}"
            yield f"{part.part.value} {part.verdict.value} {limit}"
            if before is None:
                yield f"tolerance {_number(part.tolerance)}"
                yield f"of {part.source}"
    if (len(figures) != len(known) and figures) or len(other) > most:
        yield f"{len(other)} of {len(figures)} figures"


def _number(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _compact(value: Any) -> str:
    return json.dumps(_rounded(value, SHOWN), separators=(",", ":"), default=str)


def _rounded(value: Any, digits: int) -> Any:
    if value is None or isinstance(value, (str, int)):  # asked first: most are
        return value
    if isinstance(value, float):
        return float(f"{value:.{digits}g}")
    if isinstance(value, Mapping):
        return {str(key): _rounded(one, digits) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_rounded(one, digits) for one in value]
    names = _names_in(type(value))
    return {name: _rounded(getattr(value, name), digits) for name in names} if names else value


def _cut(text: str) -> str:
    return text if len(text) <= MAX_EVIDENCE else f"{text[:MAX_EVIDENCE]}... ({len(text)} characters)"


def write(asked: Sequence[str]) -> None:
    """Writes the files of these checks, of all where none is named; `--missing`: those that are not there."""
    for path in set(GOLDEN.glob("*.txt")) - {file_of(check) for check in CHECKS}:
        path.unlink()
    for check in CHECKS:
        path = file_of(check)
        if not asked or check.id in asked or ("--missing" in asked and not path.exists()):
            path.write_text(text_of(check), encoding="utf-8")


if __name__ == "__main__":
    if "--whole" in sys.argv:
        sys.stdout.writelines(line for check in CHECKS if check.id in sys.argv for line in whole_of(check))
    else:
        write(sys.argv[1:])
