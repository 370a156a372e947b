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


def test_of_images_that_are_named_alone_the_lock_must_be_that_of_the_settings() -> None:
    other = replace(DECLARED, name="other", target="library/other")
    lock = locked(BASE.source, A)
    assert gate.stale(lock, [DECLARED, other], "") == ["other is new"]
    assert gate.stale(lock, [DECLARED, other], "", ["training"]) == []
    assert gate.stale(lock, [DECLARED, other], "", ["training", "other"]) == ["other is new"]
    assert gate.stale(lock, [other], "", ["other"]) == ["other is new"]
    assert gate.stale(lock, [other], "", ["training"]) == ["training is declared no more"]
    assert gate.stale(lock, [DECLARED, other], "580", ["training"]) == ["driver none, now 580"]


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


@pytest.mark.parametrize(
    ("declared", "found", "same"),
    [
        (["linux/amd64"], ["linux/amd64"], True),
        (["linux/amd64", "linux/arm64"], ["linux/amd64", "linux/arm64/v8"], True),
        (["linux/arm"], ["linux/arm/v6", "linux/arm/v7"], True),
        (["linux/amd64"], ["linux/amd64/v2", "linux/amd64/v2"], True),
        (["linux/amd64"], ["linux/arm64/v8"], False),
        (["linux/amd64", "linux/arm64"], ["linux/amd64"], False),
        (["linux/amd64"], ["linux/amd64", "linux/arm64/v8"], False),
        (["linux/arm/v7"], ["linux/arm"], False),
    ],
)
def test_a_list_is_the_declared_one_by_its_platforms_whatever_their_number(
    declared: list[str], found: list[str], same: bool
) -> None:
    image = BASE.model_copy(update={"index": B, "platforms": tuple(found)})
    assert gate.is_of(image, replace(DECLARED, platforms=tuple(declared))) is same
