"""Every figure that a limit is made of, in lines: `python -m tests.support.limits_twice` writes them anew.

A figure of data is entered twice, in its file and in tests/golden/limits.txt: whoever changes one reads its
source again, and a slip of the hand in either is seen.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import yaml
from tests.support.tree import ROOT

from clustercheck.expect import profiles
from clusterctl.cluster.bounded_yaml import FAST_LOADER

DIRECTORY = profiles.DIRECTORY.parent
GOLDEN = ROOT / "tests" / "golden" / "limits.txt"


def limits() -> list[str]:
    """A line for each entry that has numbers: its file, where it is in it, and the numbers by name."""
    return [
        f"{path.relative_to(DIRECTORY).with_suffix('')} {line}"
        for path in sorted(DIRECTORY.rglob("*.yml"))
        for line in lines_of(path.read_text(encoding="utf-8"))
    ]


def lines_of(text: str) -> list[str]:
    """The lines of one file."""
    return list(_entries("", yaml.load(text, Loader=FAST_LOADER)))  # noqa: S506 - a safe one


def _entries(place: str, value: Any) -> Iterator[str]:
    if isinstance(value, list):
        for each in value:
            name = " ".join(str(each[key]) for key in ("metric", "job", "model", "precision") if key in each)
            yield from _entries(f"{place}[{name}]", each)
    if not isinstance(value, dict):
        return
    numbers = {key: one for key, one in value.items() if isinstance(one, (int, float))}
    if numbers:
        yield f"{place or 'file'}: " + ", ".join(f"{key} {one}" for key, one in numbers.items())
    for key, one in value.items():
        if isinstance(one, (dict, list)) and not (one and isinstance(one, list) and isinstance(one[0], str)):
            yield from _entries(f"{place}/{key}".lstrip("/"), one)


if __name__ == "__main__":
    GOLDEN.write_text("\n".join(limits()) + "\n", encoding="utf-8")
