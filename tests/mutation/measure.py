"""Says how many mutants are found: `python -m tests.mutation.measure [KIND] FILE...`, or `... NUMBER SEED`.

KIND is `limits` or `conditions`, both where it is left out. FILE is as in survivors.yml; `measured` stands
for all that are listed there. What found each goes to standard error as soon as it is judged.
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

KINDS = ("limits", "conditions")


def chosen(words: Sequence[str]) -> list[Mutant]:
    """The mutants of these files, or so many of all; of one kind where the first word is one."""
    every = mutants(PACKAGE)
    if words[0] in KINDS:
        every, words = [one for one in every if f"{one.kind}s" == words[0]], words[1:]
    if words[0].isdigit():
        number, seed = words
        return random.Random(seed).sample(every, int(number))  # noqa: S311 - no secret
    if words == ["measured"]:
        words = yaml.safe_load(Path(__file__).with_name("survivors.yml").read_text(encoding="utf-8"))[
            "measured"
        ]
    return [one for one in every if one.file in words]


def figures(picked: Sequence[Mutant], found: Mapping[str, str]) -> str:
    """How many of each kind were found, and by what."""
    lines = []
    for kind in KINDS:
        by = [found[one.name].partition(":")[0] for one in picked if f"{one.kind}s" == kind]
        if by:
            ways = ", ".join(f"{by.count(way)} by {way}" for way in sorted(set(by) - {""}))
            lines.append(f"{kind}: {len(by) - by.count('')} of {len(by)} found ({ways})\n")
    return "".join(lines)


if __name__ == "__main__":
    picked = chosen(sys.argv[1:])
    with tempfile.TemporaryDirectory() as folder:
        sys.stdout.write(figures(picked, judge(picked, Path(folder))))
