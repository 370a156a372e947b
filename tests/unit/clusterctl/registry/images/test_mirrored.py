"""The record of what was mirrored: signatures stand in it where we brought them; old records are read."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from clusterctl.cluster.directory import ClusterDirectory
from clusterctl.registry.images import mirrored
from clusterctl.registry.images.mirrored import Brought

ONE = Brought("registry01:5000", "golden/app", "sha256:a", "app", "1", "2026-11-24T10:00:00Z", ("sha256:a",))


def test_a_signature_is_remembered_with_its_image_and_stays_when_that_comes_again(tmp_path: Path) -> None:
    directory = ClusterDirectory(tmp_path)
    mirrored.remember(directory, ONE, ["sha256:a"])
    assert "signature" not in json.loads(mirrored.path(directory).read_text())[0]
    mirrored.remember_signature(directory, ONE.registry, ONE.repository, ONE.digest, "sha256:s")
    mirrored.remember(directory, ONE, [])
    assert mirrored.brought(directory) == [replace(ONE, signature="sha256:s")]


def test_only_what_we_wrote_is_ours_for_one_image_or_another(tmp_path: Path) -> None:
    directory = ClusterDirectory(tmp_path)
    manifests = ("sha256:c", "sha256:theirs", "sha256:a")
    mirrored.remember(directory, replace(ONE, manifests=manifests), ["sha256:c", "sha256:a"])
    # Interrupted, and run again: one of ours is there now.
    mirrored.remember(directory, replace(ONE, manifests=manifests), ["sha256:a"])
    # Another image of that repository lists it as well: it stays ours when the first has gone.
    other = replace(ONE, digest="sha256:b", manifests=("sha256:c", "sha256:theirs", "sha256:b"))
    mirrored.remember(directory, other, ["sha256:b"])
    mirrored.remember(directory, replace(other, repository="elsewhere"), ["sha256:b"])
    found = [one.manifests for one in mirrored.brought(directory)]
    assert found == [("sha256:c", "sha256:a"), ("sha256:c", "sha256:b"), ("sha256:b",)]


def test_the_signature_of_an_image_that_others_brought_makes_it_none_of_ours(tmp_path: Path) -> None:
    directory = ClusterDirectory(tmp_path)
    mirrored.remember_signature(directory, "elsewhere:5000", ONE.repository, ONE.digest, "sha256:s")
    assert mirrored.brought(directory) == []


def test_of_one_image_the_oldest_are_forgotten_and_none_of_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mirrored, "MAX_MANIFESTS_OF_IMAGE", 10)
    directory = ClusterDirectory(tmp_path)
    mirrored.remember(directory, ONE, ["sha256:a"])
    manifests = tuple(f"sha256:{number}" for number in range(4))
    for digest in ("sha256:x", "sha256:y", "sha256:z", "sha256:x"):
        mirrored.remember(
            directory, replace(ONE, name="other", digest=digest, manifests=manifests), manifests
        )
    assert [one.digest for one in mirrored.brought(directory)] == ["sha256:a", "sha256:z", "sha256:x"]
