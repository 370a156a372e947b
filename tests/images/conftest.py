"""Registries for the tests of images: a source, a proxy before it that plays faults, and a destination."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from registries import Proxy, Running, proxy, registry

from clusterctl.registry.oci import patience


@pytest.fixture
def source(tmp_path: Path) -> Iterator[Running]:
    """Where images come from."""
    with registry(tmp_path / "source") as running:
        yield running


@pytest.fixture
def before_source(source: Running) -> Iterator[Proxy]:
    """What the tests' clusters take for the source: whatever it does wrong is counted."""
    with proxy(source.port) as state:
        yield state


@pytest.fixture
def destination(tmp_path: Path) -> Iterator[Running]:
    """Where images go."""
    with registry(tmp_path / "destination") as running:
        yield running


@pytest.fixture(autouse=True)
def _hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pauses between attempts are as many, and short."""
    monkeypatch.setattr(patience.Patience, "pause", lambda *_: None)
