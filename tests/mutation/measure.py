"""Says how many mutants are found: `python -m tests.mutation.measure FILE...`, `... NUMBER SEED` of all, or
`... NUMBER SEED conditions` of so many whole modules, their conditions alone.

FILE is as in survivors.yml; `measured` stands for all that are listed there. What found each goes to standard
error as it is judged.
"""

from __future__ import annotations

import random
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import yaml
from tests.mutation.judging import PACKAGE, judge
from tests.mutation.mutants import Mutant, mutants


def chosen(words: Sequence[str]) -> list[Mutant]:
    """The mutants of these files, so many of all, or the conditions of so many modules."""
    every = mutants(PACKAGE)
    if words[0].isdigit():
        number, seed, *conditions = words
        draw = random.Random(seed)  # noqa: S311 - no secret
        if not conditions:
            return draw.sample(every, int(number))
        every = [one for one in every if one.kind == "condition"]
        words = draw.sample(sorted({one.file for one in every}), int(number))
    if words == ["measured"]:
        words = yaml.safe_load(Path(__file__).with_name("survivors.yml").read_text(encoding="utf-8"))[
            "measured"
        ]
    return [one for one in every if one.file in words]


def figures(picked: Sequence[Mutant], found: Mapping[str, str]) -> str:
    """How many of each kind were found, and by what."""
    lines = []
    for kind in ("limit", "condition"):
        by = [found[one.name].partition(":")[0] for one in picked if one.kind == kind]
        if by:
            ways = ", ".join(f"{by.count(way)} by {way}" for way in sorted(set(by) - {""}))
            lines.append(f"{kind}s: {len(by) - by.count('')} of {len(by)} found ({ways})\n")
    return "".join(lines)


if __name__ == "__main__":
    picked = chosen(sys.argv[1:])
    with tempfile.TemporaryDirectory() as folder:
        sys.stdout.write(figures(picked, judge(picked, Path(folder))))
