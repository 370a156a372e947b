"""The record of what was mirrored: signatures stand in it where we brought them; old records are read."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from clusterctl.cluster.directory import ClusterDirectory
from clusterctl.registry.images import mirrored
from clusterctl.registry.images.mirrored import Brought

ONE = Brought("registry01:5000", "golden/app", "sha256:a", "app", "1", "2026-11-24T10:00:00Z", ("sha256:a",))


def test_a_signature_is_remembered_with_its_image_and_stays_when_that_comes_again(tmp_path: Path) -> None:
    directory = ClusterDirectory(tmp_path)
    mirrored.remember(directory, ONE)
    assert "signature" not in json.loads(mirrored.path(directory).read_text())[0]
    mirrored.remember_signature(directory, ONE.registry, ONE.repository, ONE.digest, "sha256:s")
    mirrored.remember(directory, ONE)
    assert mirrored.brought(directory) == [replace(ONE, signature="sha256:s")]


def test_the_signature_of_an_image_that_others_brought_makes_it_none_of_ours(tmp_path: Path) -> None:
    directory = ClusterDirectory(tmp_path)
    mirrored.remember_signature(directory, "elsewhere:5000", ONE.repository, ONE.digest, "sha256:s")
    assert mirrored.brought(directory) == []
