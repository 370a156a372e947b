"""Shared by the unit tests: what one leaves behind does not reach the next."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.harbor_player import Played, playing


@pytest.fixture(autouse=True)
def _same_umask() -> Iterator[None]:
    """Programs that are called in this process may close their umask; the next test wants its own."""
    before = os.umask(0o022)
    os.umask(before)
    yield
    os.umask(before)


@pytest.fixture
def harbor(tmp_path: Path) -> Iterator[Played]:
    """A host with Harbor as its modules see it."""
    with playing(tmp_path) as played:
        yield played
