"""Lets unit tests import our Ansible modules as Ansible does: module_utils beside its own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import ansible.module_utils
import pytest

ansible.module_utils.__path__.append(str(Path(__file__).resolve().parents[2] / "plugins" / "module_utils"))


@pytest.fixture(autouse=True)
def _same_umask() -> Iterator[None]:
    """Programs that are called in this process may close their umask; the next test wants its own."""
    before = os.umask(0o022)
    os.umask(before)
    yield
    os.umask(before)
