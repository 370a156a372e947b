"""Pruning keeps what stays, and ends in a time that is known before, however slowly a registry answers."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator

import pytest
from tests.support.hostile_server import asking, hostile, whole
from tests.support.image_builds import BASE
from tests.support.memory_registry import memory_registry

from clusterctl.registry.images import prune
from clusterctl.registry.images.mirrored import Brought
from clusterctl.registry.images.prune import Pruning
from clusterctl.registry.oci.manifest import OCI_INDEX, OCI_MANIFEST, Manifest, digest_of, read

SOON_S = 0.3
IMAGES = [Brought("mine", "a/b", f"sha256:{number:064x}", f"a{number}", "1", "") for number in range(100)]


def image(name: str) -> Manifest:
    part = {"digest": digest_of(name.encode()), "size": 1}
    return read(json.dumps({"config": part, "layers": []}).encode(), OCI_MANIFEST, "test")


def listing(*images: Manifest) -> Manifest:
    entries = [{"digest": one.digest, "size": 1} for one in images]
    return read(json.dumps({"manifests": entries}).encode(), OCI_INDEX, "test")


@pytest.mark.parametrize("lost", ["none", "before", "after"])
def test_a_locked_image_that_lost_a_manifest_keeps_its_others(lost: str) -> None:
    shared, old, new, last = map(image, ("shared", "old", "new", "last"))
    went, stays = listing(shared, old), listing(new, shared, last)
    there = [shared, old, went, stays, *({"none": [new, last], "before": [last], "after": [new]}[lost])]
    wanted = BASE.model_copy(update={"target": "a/b", "digest": stays.digest})
    with memory_registry() as running, running.client() as registry:
        for one in there:
            running.put_manifest("a/b", one)
        (found,) = prune.plan([Brought("mine", "a/b", went.digest, "a", "1", "")], [wanted], registry, "mine")
    assert (found.error, found.manifests) == (None, [went.digest, old.digest])


@pytest.mark.parametrize("was_brought", [True, False])
def test_nothing_goes_where_the_locked_image_itself_was_lost(*, was_brought: bool) -> None:
    """What it shares with the one that may go is not known then; one that never came shares nothing."""
    shared = image("shared")
    went, stays = listing(shared), listing(image("new"), shared)
    wanted = BASE.model_copy(update={"target": "a/b", "digest": stays.digest})
    with memory_registry() as running, running.client() as registry:
        for one in (shared, went):
            running.put_manifest("a/b", one)
        brought = [went, stays] if was_brought else [went]
        known = [Brought("mine", "a/b", one.digest, one.digest, "1", "") for one in brought]
        (found,) = prune.plan(known, [wanted], registry, "mine")
    assert (found.error and found.error.code) == ("images.not-found" if was_brought else None)
    assert found.manifests == ([] if was_brought else [went.digest, shared.digest])


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
