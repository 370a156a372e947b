"""The programs that ordinary tests call; one that is missing is a failure."""

from __future__ import annotations

import os
import shutil

import pytest
from tests.support.tree import ROOT

UNPACKED = ROOT / ".tools" / "usr" / "bin"


def find_program(name: str) -> str | None:
    """Returns where the program is: installed, or unpacked for the tests."""
    return shutil.which(name) or shutil.which(name, path=str(UNPACKED))


def require_program(name: str) -> str:
    """Returns where the program is, or fails the test."""
    found = find_program(name)
    if found is None:
        pytest.fail(f"{name} is missing: script/test installs it")
    return found


def require_marked(item: pytest.Item) -> None:
    """Fails a test marked with needs(...) where one of those programs, or root, is missing."""
    for marker in item.iter_markers("needs"):
        for name in marker.args:
            if name != "root":
                require_program(name)
            elif os.geteuid() != 0:
                pytest.fail("this test needs root: script/test runs it as root")
