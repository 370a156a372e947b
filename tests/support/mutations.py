"""What befalls a program's output: cut off, out of order, doubled, translated, mixed with other lines."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeVar

from hypothesis import strategies as st
from tests.support.examples import examples

from clustercheck.parse.reading import CannotReadError

FUZZ = examples(80)
OTHER_LINES = (
    "\n", "bash: warning: setlocale: LC_ALL: cannot change locale\n", "-" * 74 + "\n", "\x00\x01\x1b[31m\n",
    "{}\n", "0\n", "12 34 56 78 90 1 2 3 4 5 6 7 8\n", "#\n", "Killed\n", "\N{REPLACEMENT CHARACTER}\n",
)  # fmt: skip

T = TypeVar("T")


def read_or_refused(reader: Callable[[str], T], text: str) -> T | None:
    """What the reader makes of it; CannotReadError is the only way not to."""
    try:
        return reader(text)
    except CannotReadError:
        return None


@st.composite
def meddled(draw: st.DrawFn, text: str) -> str:
    """The text after one mishap that leaves each figure as it was."""
    lines = text.splitlines(keepends=True)
    at = draw(st.integers(0, len(lines) - 1))
    match draw(st.sampled_from(("cut", "dropped", "swapped", "twice", "whole twice", "translated", "mixed"))):
        case "cut":
            return text[: draw(st.integers(0, len(text)))]
        case "dropped":
            del lines[at : at + draw(st.integers(1, 3))]
        case "swapped":
            other = draw(st.integers(0, len(lines) - 1))
            lines[at], lines[other] = lines[other], lines[at]
        case "twice":
            lines.insert(draw(st.integers(0, len(lines))), lines[at])
        case "whole twice":
            return text + text
        case "translated":
            word = draw(st.sampled_from(sorted(set(re.findall(r"[A-Za-z]{3,}", text)))))
            return re.sub(rf"\b{word}\b", "Übersetzung", text)
        case _:
            lines.insert(at, draw(st.sampled_from(OTHER_LINES)))
    return "".join(lines)


@st.composite
def misprinted(draw: st.DrawFn, text: str) -> str:
    """The text with one digit replaced by another."""
    places = [match.start() for match in re.finditer(r"\d", text)]
    at = draw(st.sampled_from(places))
    return text[:at] + draw(st.sampled_from("0123456789")) + text[at + 1 :]
