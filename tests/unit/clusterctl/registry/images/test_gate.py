"""Which image of the lock is that of the settings."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.support.image_builds import BASE, A

from clusterctl.cluster.lock import Lock
from clusterctl.errors import ClusterctlError
from clusterctl.registry.images import gate
from clusterctl.registry.images.declared import DeclaredImage
from clusterctl.registry.oci.reference import parse

B = "sha256:" + "b" * 64
DECLARED = DeclaredImage(BASE.name, parse(BASE.source), BASE.target)
PINNED = replace(DECLARED, source=parse(f"docker.io/x/paddle@{A}"))


def locked(source: str, digest: str) -> Lock:
    return Lock(images=(BASE.model_copy(update={"source": source, "digest": digest}),))


def test_the_digest_of_the_settings_is_that_of_the_lock() -> None:
    assert gate.stale(locked(str(PINNED.source), A), [PINNED], "") == []
    assert gate.stale(locked(str(PINNED.source), B), [PINNED], "") == [
        "training is declared by another digest"
    ]
    assert not gate.is_of(locked(str(PINNED.source), B).images[0], PINNED)
    assert gate.stale(locked(BASE.source, B), [DECLARED], "") == [], "of a tag the lock decides"


def test_one_image_is_compared_whatever_the_others_are() -> None:
    gate.require_same(BASE, [DECLARED, replace(DECLARED, name="other", target="library/other")])
    for declared, because in (
        ([], "training is declared no more"),
        ([replace(DECLARED, target="library/other")], "training is declared otherwise"),
        (
            [replace(PINNED, source=parse(f"docker.io/x/paddle@{B}"))],
            "training is declared by another digest",
        ),
    ):
        with pytest.raises(ClusterctlError, match=because) as refused:
            gate.require_same(BASE, declared)
        assert refused.value.code == "images.stale-lock"
