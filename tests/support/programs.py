"""The programs that ordinary tests call; one that is missing is a failure."""

from __future__ import annotations

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
