"""Says how many mutants are found: `python -m tests.mutation.measure FILE...`, or `... NUMBER SEED` of all.

A check whose golden verdicts are not of today's code finds every mutant, and so do unit tests that fail
anyway: then nothing was measured.
FILE is as in survivors.yml; `measured` stands for all that are listed there. Survivors go to standard error.
"""

from __future__ import annotations

import random
import sys
import tempfile
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import yaml
from tests.mutation.judging import PACKAGE, judge
from tests.mutation.mutants import Mutant, mutants
from tests.support import golden_verdicts

from clustercheck.checks.all import CHECKS


def chosen(words: Sequence[str]) -> list[Mutant]:
    """The mutants of these files, or so many of all."""
    every = mutants(PACKAGE)
    if words[0].isdigit():
        number, seed = words
        return random.Random(seed).sample(every, int(number))  # noqa: S311 - no secret
    if words == ["measured"]:
        words = yaml.safe_load(Path(__file__).with_name("survivors.yml").read_text(encoding="utf-8"))[
            "measured"
        ]
    return [one for one in every if one.file in words]


def stale(found: Collection[str]) -> list[str]:
    """Of the checks whose golden verdicts found something, those that find the unchanged code too."""
    asked = [check for check in CHECKS if f"golden verdicts: {check.id}" in found]
    return [
        check.id
        for check in asked
        if golden_verdicts.text_of(check) != golden_verdicts.file_of(check).read_text(encoding="utf-8")
    ]


def unchanged(picked: Collection[Mutant], found: Mapping[str, str]) -> list[Mutant]:
    """The files whose mutants unit tests found, as they are: nothing may be found in them."""
    files = sorted({one.file for one in picked if found[one.name] == "unit tests"})
    return [Mutant(file, "unchanged", "", (PACKAGE / file).read_text(encoding="utf-8")) for file in files]


if __name__ == "__main__":
    picked = chosen(sys.argv[1:])
    with tempfile.TemporaryDirectory() as folder:
        found = judge(picked, Path(folder))
    with tempfile.TemporaryDirectory() as folder:
        broken = [name for name, by in judge(unchanged(picked, found), Path(folder)).items() if by]
    if broken:
        sys.exit(f"the unit tests fail without a change, of {', '.join(broken)}: nothing was measured")
    if names := stale(found.values()):
        sys.exit(f"the golden verdicts of {', '.join(names)} are not of this code: nothing was measured")
    sys.stdout.write(f"{sum(map(bool, found.values()))} of {len(found)} found\n")
