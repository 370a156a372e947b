"""What is wrong with several figures of one subject, in one line: how much, of how many, against what."""

from __future__ import annotations

from collections.abc import Sequence

from clustercheck.model import Judged, JudgedPart, Part, Verdict
from clustercheck.parse.plain_text import some_of

NUMBERS = (
    "no",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
)
REFERENCES = {Part.PEERS: "its peers", Part.BASELINE: "its baseline", Part.FLOOR: "the floor"}
MAX_NAMED = 3


def what_is_wrong(wrong: Sequence[Judged], judged: Sequence[Judged], called: str) -> str:
    """One line on the figures that are wrong, of all ``judged``; ``called`` is their plural.

    The part's own words where it is one part of one figure.
    """
    parts = [(one, part) for one in wrong for part in _failing(one)]
    if len(parts) < 2:
        return "; ".join(part.because for _, part in parts)
    if wrong[0].verdict is Verdict.NOT_RUN:
        return f"{_of_how_many(wrong, judged, called)}: beyond what physics allows, the measurement is wrong"
    subject = _of_how_many(wrong, judged, called)
    return f"{_how_much(parts)} {_word(wrong)} {subject} than {_against(wrong)}"


def _failing(one: Judged) -> list[JudgedPart]:
    verdict = one.verdict
    return [part for part in one.parts if part.verdict is verdict]


def _how_much(parts: Sequence[tuple[Judged, JudgedPart]]) -> str:
    """The distances from what each was compared with, the tolerance not taken off: ``38 to 42 %``."""
    pairs = ((one.figure.measured, part.reference(one.figure.better) or 1.0) for one, part in parts)
    percents = sorted({round(100 * abs(measured / reference - 1)) for measured, reference in pairs})
    return f"{percents[0]} %" if percents[0] == percents[-1] else f"{percents[0]} to {percents[-1]} %"


def _word(wrong: Sequence[Judged]) -> str:
    return "slower" if all(one.figure.is_speed for one in wrong) else "worse"


def _of_how_many(wrong: Sequence[Judged], judged: Sequence[Judged], called: str) -> str:
    """``in all five precisions``, ``in 2 of 5 precisions (gemm_bf16, gemm_fp16)``, ``in gemm_bf16``."""
    names = [one.figure.metric for one in wrong]
    if len(names) == 1:
        where = wrong[0].figure.label.removeprefix(f"({names[0]})").strip()
        return f"in {names[0]} {where}".rstrip()
    if len(wrong) == len(judged):
        count = NUMBERS[len(names)] if len(names) < len(NUMBERS) else str(len(names))
        return f"in both {called}" if len(names) == 2 else f"in all {count} {called}"
    return f"in {len(names)} of {len(judged)} {called} ({some_of(names, MAX_NAMED)})"


def _against(wrong: Sequence[Judged]) -> str:
    """``its peers, its baseline and the floor``: or, where not every figure is behind each of them."""
    failing = [{part.part for part in _failing(one)} for one in wrong]
    named = [words for part, words in REFERENCES.items() if any(part in each for each in failing)]
    joined = "and" if all(each == failing[0] for each in failing) else "or"
    return named[0] if len(named) == 1 else f"{', '.join(named[:-1])} {joined} {named[-1]}"
