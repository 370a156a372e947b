"""A package of ours as one text for `python3 -` on a node, where nothing of ours is installed."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

PACKAGES = Path(__file__).parents[1]
ROOT = "clustercheck"

LOADER = '''\
import importlib.abc
import importlib.util
import json
import sys

SOURCES = json.loads({sources!r})


class Shipped(importlib.abc.MetaPathFinder, importlib.abc.InspectLoader):
    """Finds our modules in this text: they import each other here as they do at home."""

    def find_spec(self, name, path=None, target=None):
        return importlib.util.spec_from_loader(name, self) if name in SOURCES else None

    def is_package(self, name):
        return any(other.startswith(name + ".") for other in SOURCES)

    def get_source(self, name):
        return SOURCES[name]


sys.meta_path.insert(0, Shipped())

from {package}.program import main

main(sys.argv[1:])
'''


@cache
def shipment(package: str) -> str:
    """The program of `clustercheck.PACKAGE`: the `main` of its module `program`, called with the arguments.

    Its modules may import each other and the standard library.
    """
    whole = f"{ROOT}.{package}"
    return LOADER.format(sources=json.dumps(sources(package)), package=whole)


def sources(package: str) -> dict[str, str]:
    """The text of each module of `clustercheck.PACKAGE`, by its full name; packages are among them."""
    found = {ROOT: "", f"{ROOT}.{package}": ""}
    for path in sorted((PACKAGES / package).glob("*.py")):
        if path.stem != "__init__":
            found[f"{ROOT}.{package}.{path.stem}"] = path.read_text(encoding="utf-8")
    return found
