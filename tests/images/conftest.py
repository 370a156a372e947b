"""Registries for the tests of images: a source, a proxy before it that plays faults, and a destination."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.registries import Proxy, Running, proxy, registry

from clusterctl.registry.oci import retry


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
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds of each pause between attempts, in order; nobody waits for them."""
    asked: list[float] = []

    def note(_stop: threading.Event, seconds: float) -> None:
        asked.append(seconds)

    monkeypatch.setattr(retry, "_wait", note)
    return asked
