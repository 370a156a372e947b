"""Pruning ends in a time that is known before, however slowly a registry answers each request."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from tests.support.hostile_server import asking, hostile, whole

from clusterctl.registry.images import prune
from clusterctl.registry.images.mirrored import Brought
from clusterctl.registry.images.prune import Pruning

SOON_S = 0.3
IMAGES = [Brought("mine", "a/b", f"sha256:{number:064x}", f"a{number}", "1", "") for number in range(100)]


def slowly(_: str) -> Iterator[bytes]:
    threading.Event().wait(SOON_S / 3)
    yield from whole(b"", status="202 Accepted")


def test_the_look_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prune, "PLAN_S", SOON_S)
    with hostile(slowly) as server, asking(server.host) as registry:
        found = prune.plan(IMAGES, [], registry, "mine")
    assert len(found) == len(IMAGES)
    assert found[-1].error is not None
    assert len(server.asked) < 10


def test_the_removal_ends_and_what_was_not_removed_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prune, "REMOVE_S", SOON_S)
    prunings = [Pruning(image, [image.digest]) for image in IMAGES]
    with hostile(slowly) as server, asking(server.host) as registry:
        gone = prune.run_prunings(prunings, registry)
    assert 0 < len(gone) < 10
    assert sum(one.error is None for one in prunings) == len(gone)
    assert len(server.asked) < 10
