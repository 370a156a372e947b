"""A site's own image is built, pushed, and locked by the digest that was pushed."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import signal
import time
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.image_builds import BASE, NOTEBOOK, A, archive, digest, inventory_of, layer

from clusterctl.cluster.lock import Lock, LockedImage
from clusterctl.engine.bounded_log import BoundedLog
from clusterctl.errors import ClusterctlError
from clusterctl.registry.images import building, gate, recipe, saved
from clusterctl.registry.images.declared import declared_images
from clusterctl.registry.oci import manifest
from clusterctl.registry.oci.errors import RegistryError
from clusterctl.registry.oci.manifest import Blob, Manifest

TAR = "application/vnd.oci.image.layer.v1.tar"


@pytest.mark.parametrize("script", ["exec sleep 60", "sleep 60\ntrue", "sleep 60 &"])
def test_an_engine_that_saves_nothing_more_is_not_waited_for_for_ever(tmp_path: Path, script: str) -> None:
    silent = tmp_path / "docker"
    silent.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    silent.chmod(0o755)
    engine = building.Engine(tmp_path / "log", str(silent), limit_s=0.5)
    began = time.monotonic()
    ends_itself = script.endswith("&")
    expected = contextlib.nullcontext() if ends_itself else pytest.raises(ClusterctlError, match="not save")
    with expected as caught, engine.saved("x:1") as stream:
        assert stream.read() == b""
    assert ends_itself or caught.value.code == "images.build-archive"
    assert time.monotonic() - began < 30


def engine_of(tmp_path: Path, script: str, limit_s: float = 60.0) -> building.Engine:
    program = tmp_path / "engine"
    program.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    program.chmod(0o755)
    return building.Engine(tmp_path / "log", str(program), limit_s)


def test_words_of_an_engine_that_are_no_text_are_an_error_as_any_other(tmp_path: Path) -> None:
    with pytest.raises(ClusterctlError, match="no engine answers") as caught:
        engine_of(tmp_path, "printf 'no \\377\\376 proxy' >&2; exit 1").require()
    assert caught.value.code == "images.build-engine"


def test_what_a_build_prints_is_kept_up_to_a_size_and_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        building, "BoundedLog", partial(BoundedLog, max_bytes=10_000, tail_bytes=100), raising=False
    )
    printing = engine_of(
        tmp_path, "echo first; head -c 5000000 /dev/zero | tr '\\0' x; echo; echo last; exit 3"
    )
    with pytest.raises(ClusterctlError, match=r"exit code 3(?s:.)*last") as caught:
        printing.build({"Dockerfile": "FROM scratch"}, "a:b")
    assert caught.value.code == "images.build"
    text = printing.log.read_text(encoding="utf-8")
    assert text.startswith("first\n") and "bytes are left out here" in text
    assert len(text) < 11_000


@pytest.mark.parametrize("script", ["exec sleep 600", "while :; do echo more; done"])
def test_a_build_ends_at_its_limit_whatever_it_prints(script: str, tmp_path: Path) -> None:
    with pytest.raises(ClusterctlError, match=r"exit code 124(?s:.)*not done within"):
        engine_of(tmp_path, script, limit_s=0.5).build({}, "a:b")


def test_what_a_build_leaves_behind_does_not_keep_its_end_waiting(tmp_path: Path) -> None:
    engine_of(tmp_path, "sleep 600 & echo $! > $0.child; echo done").build({}, "a:b")
    os.kill(int((tmp_path / "engine.child").read_text(encoding="utf-8")), signal.SIGKILL)
    assert (tmp_path / "log").read_text(encoding="utf-8") == "done\n"


def test_a_build_is_locked_by_its_building_and_by_nothing_else(tmp_path: Path) -> None:
    (declared,) = declared_images(inventory_of(tmp_path, NOTEBOOK))
    assert (declared.name, str(declared.source), declared.built) == (
        "notebook", "registry01:5000/site/notebook:1", True,
    )  # fmt: skip
    assert gate.stale(Lock(), [declared], "") == []
    built = BASE.model_copy(
        update={"name": "notebook", "source": str(declared.source), "target": "site/notebook", "tag": "1"}
    )
    assert gate.stale(Lock(images=(built,)), [declared], "") == []
    assert gate.stale(Lock(images=(built,)), [], "") == ["notebook is declared no more"]


def test_a_build_is_remembered_before_its_manifest_is_there(tmp_path: Path) -> None:
    (one,) = recipe.declared_recipes(inventory_of(tmp_path, NOTEBOOK))
    layers = [layer("base"), layer("new")]
    image = saved.read(archive(layers, "classic"), tmp_path, {digest(layers[0]): 0})
    remembered: list[str] = []

    class Full:
        """A registry that has every blob, and dies over the manifest."""

        def has_blob(self, *_: object) -> bool:
            return True

        def put_manifest(self, _repository: str, found: Manifest, _name: str) -> None:
            assert remembered == [found.digest]
            raise KeyboardInterrupt

    base = {
        "config": {"mediaType": "application/vnd.oci.image.config.v1+json"},
        "layers": [{"digest": A, "size": 5, "mediaType": TAR}],
    }
    order = building.Order(one, BASE, {})
    for said in (base, {**base, "mediaType": None}):
        remembered.clear()
        with pytest.raises(KeyboardInterrupt):
            building.push(order, image, said, Full(), remembered.append)  # type: ignore[arg-type]


class Pushed:
    """A registry that keeps what is pushed; ``under_tag`` is what it answers to a tag afterwards."""

    endpoint = SimpleNamespace(host="registry01:5000")

    def __init__(self, under_tag: Manifest | None = None) -> None:
        self.manifests: dict[str, Manifest] = {}
        self.blobs: dict[str, bytes] = {}
        self.under_tag = under_tag

    def has_blob(self, _repository: str, digest: str) -> bool:
        return digest == A

    def put_blob(self, _repository: str, blob: Blob, content: Any) -> None:
        self.blobs[blob.digest] = b"".join(content())

    def put_manifest(self, _repository: str, found: Manifest, tag: str) -> None:
        self.manifests |= {found.digest: found, tag: found}

    def manifest(self, repository: str, wanted: str) -> Manifest:
        if self.under_tag is not None and not wanted.startswith("sha256:"):
            return self.under_tag
        if wanted not in self.manifests:
            raise RegistryError("it is not there", code="images.not-found", where=repository)
        return self.manifests[wanted]

    def small_blob(self, _repository: str, blob: Blob) -> bytes:
        return self.blobs[blob.digest]


def pushed(tmp_path: Path, registry: Pushed) -> tuple[building.Order, LockedImage]:
    """A build that was pushed there, with its label, and as the lock keeps it."""
    (one,) = recipe.declared_recipes(inventory_of(tmp_path, NOTEBOOK))
    order = building.Order(one, BASE, {"Dockerfile": f'{recipe.RECIPE_LABEL}="{"1" * 64}"'})
    said = {
        "architecture": "amd64", "os": "linux", "rootfs": {"type": "layers", "diff_ids": []},
        "config": {"Labels": {recipe.RECIPE_LABEL: recipe.recipe_of(order.context)}},
    }  # fmt: skip
    image = saved.SavedImage(json.dumps(said).encode(), (), ())
    kind = "application/vnd.oci.image.manifest.v1+json"
    base = {"mediaType": kind, "config": {}, "layers": []}
    digest, _ = building.push(order, image, base, registry)  # type: ignore[arg-type]
    return order, building.locked(one, registry, "registry01:5000", digest)  # type: ignore[arg-type]


def another_with_the_label(registry: Pushed, order: building.Order) -> Manifest:
    """Another image, with the label that anybody can read off the first."""
    said = {
        "rootfs": {"diff_ids": []}, "history": "of another",
        "config": {"Labels": {recipe.RECIPE_LABEL: recipe.recipe_of(order.context)}},
    }  # fmt: skip
    config = json.dumps(said).encode()
    registry.blobs[digest(config)] = config
    raw = {
        "schemaVersion": 2, "mediaType": manifest.OCI_MANIFEST, "layers": [],
        "config": {"mediaType": "c", "digest": digest(config), "size": len(config)},
    }  # fmt: skip
    return manifest.read(json.dumps(raw).encode(), manifest.OCI_MANIFEST, "test")


def test_what_is_locked_is_what_was_pushed_whatever_the_tag_says_by_then(tmp_path: Path) -> None:
    registry = Pushed()
    order, honest = pushed(tmp_path, registry)
    hostile = Pushed(another_with_the_label(registry, order))
    hostile.blobs |= registry.blobs
    _, image = pushed(tmp_path, hostile)
    assert image == honest
    assert (image.digest, image.tag) == (registry.manifests["1"].digest, "1")
    assert image.source == "registry01:5000/site/notebook:1"


def test_only_the_image_of_the_lock_is_there_already(tmp_path: Path) -> None:
    registry = Pushed()
    order, image = pushed(tmp_path, registry)

    def there(order: building.Order, known: LockedImage) -> bool:
        return building.there_already(order, registry, known)  # type: ignore[arg-type]

    assert there(order, image)
    # Whoever can push there can move the tag: it is not asked.
    registry.under_tag = another_with_the_label(registry, order)
    registry.manifests[registry.under_tag.digest] = registry.under_tag
    assert there(order, image)
    # Another recipe, another place, and one that the registry has no more are built.
    other = {"Dockerfile": f'{recipe.RECIPE_LABEL}="{"2" * 64}"'}
    assert not there(dataclasses.replace(order, context=other), image)
    assert not there(order, image.model_copy(update={"tag": "2"}))
    del registry.manifests[image.digest]
    assert not there(order, image)
