"""Shared by the tests of modules: a host with Harbor."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from .harbor_player import Played, playing


@pytest.fixture
def harbor(tmp_path: Path) -> Iterator[Played]:
    """A host with Harbor as its modules see it."""
    with playing(tmp_path) as played:
        yield played
