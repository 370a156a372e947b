"""Shared by the unit tests: what one leaves behind does not reach the next."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _same_umask() -> Iterator[None]:
    """Programs that are called in this process may close their umask; the next test wants its own."""
    before = os.umask(0o022)
    os.umask(before)
    yield
    os.umask(before)
