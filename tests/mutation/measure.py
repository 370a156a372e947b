"""Says how many mutants are found: `python -m tests.mutation.measure FILE...`, or `... NUMBER SEED` of all.

FILE is as in survivors.yml; `measured` stands for all that are listed there. Survivors go to standard error.
"""

from __future__ import annotations

import random
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import yaml
from tests.mutation.judging import PACKAGE, judge
from tests.mutation.mutants import Mutant, mutants


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


if __name__ == "__main__":
    picked = chosen(sys.argv[1:])
    with tempfile.TemporaryDirectory() as folder:
        found = judge(picked, Path(folder))
    sys.stdout.write(f"{sum(map(bool, found.values()))} of {len(found)} found\n")
