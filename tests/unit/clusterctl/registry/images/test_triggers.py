"""A base with ONBUILD instructions is refused before an engine hears of it."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.support.image_builds import BASE, NOTEBOOK, digest, inventory_of

from clusterctl.cluster.lock import LockedImage
from clusterctl.errors import ClusterctlError
from clusterctl.registry.images import building, recipe
from clusterctl.registry.oci import manifest
from clusterctl.registry.oci.manifest import Blob, Manifest

COPY = "COPY --from=private.example.com/secret/model / /stolen"


class BasesRegistry:
    """A registry that has images by their configurations, and lists of them."""

    endpoint = SimpleNamespace(host="registry01:5000")

    def __init__(self) -> None:
        self.manifests: dict[str, Manifest] = {}
        self.blobs: dict[str, bytes] = {}

    def manifest(self, _repository: str, wanted: str) -> Manifest:
        return self.manifests[wanted]

    def small_blob(self, _repository: str, blob: Blob) -> bytes:
        return self.blobs[blob.digest]

    def put(self, document: dict[str, object], kind: str) -> str:
        found = manifest.read(json.dumps({"schemaVersion": 2, **document}).encode(), kind, "test")
        self.manifests[found.digest] = found
        return found.digest

    def image(self, config: str) -> str:
        raw = config.encode()
        self.blobs[digest(raw)] = raw
        return self.put(
            {"config": {"digest": digest(raw), "size": len(raw)}, "layers": []}, manifest.OCI_MANIFEST
        )

    def index(self, *images: str) -> str:
        return self.put({"manifests": [{"digest": one, "size": 1} for one in images]}, manifest.OCI_INDEX)


def configured(config: str) -> str:
    return f'{{"os": "linux", "architecture": "amd64", "rootfs": {{"diff_ids": []}}, {config}}}'


def build(tmp_path: Path, registry: BasesRegistry, base: LockedImage) -> None:
    """A build that gets as far as the engine raises ClusterctlError (``images.build``)."""
    program = tmp_path / "docker"
    program.write_text("#!/bin/sh\nexit 3\n", encoding="utf-8")
    program.chmod(0o755)
    (one,) = recipe.declared_recipes(inventory_of(tmp_path, NOTEBOOK))
    order = building.Order(one, base, {"Dockerfile": f'{recipe.RECIPE_LABEL}="{"1" * 64}"'})
    engine = building.Engine(tmp_path / "log", str(program))
    building.make(order, engine, registry, "registry01:5000", lambda _: None)  # type: ignore[arg-type]


PLAIN = configured('"config": {"OnBuild": null, "Labels": {"onbuild": "no"}}, "history": [{"onbuild": "x"}]')
# Engines match names without case, and merge members of one name.
UNREADABLE = {
    "in another case": f'"Config": {{"ONBUILD": ["{COPY}"]}}',
    "its list in another case": f'"config": {{"ONBUILD": ["{COPY}"]}}',
    "config named twice": f'"config": {{"OnBuild": ["{COPY}"]}}, "config": {{}}',
    "twice, then empty": f'"config": {{"OnBuild": ["{COPY}"], "OnBuild": []}}',
    "no list": f'"config": {{"OnBuild": "{COPY}"}}',
}


@pytest.mark.parametrize("in_list", [False, True], ids=["image", "second of a list"])
def test_a_base_with_triggers_is_not_built_on(tmp_path: Path, in_list: bool) -> None:
    failure, wanted = refused(tmp_path, f'"config": {{"OnBuild": ["{COPY}"]}}', in_list)
    assert (failure.code, COPY in failure.what) == ("images.build-triggers", True)
    assert failure.where == f"registry01:5000/library/paddle@{wanted}"


@pytest.mark.parametrize("config", UNREADABLE.values(), ids=UNREADABLE.keys())
@pytest.mark.parametrize("in_list", [False, True], ids=["image", "second of a list"])
def test_a_base_in_which_an_engine_could_find_triggers_is_not_built_on(
    tmp_path: Path, config: str, in_list: bool
) -> None:
    assert refused(tmp_path, config, in_list)[0].code == "images.manifest"


def refused(tmp_path: Path, config: str, in_list: bool) -> tuple[ClusterctlError, str]:
    """Why a build on that image is refused before an engine hears of it, and the digest of its base."""
    registry = BasesRegistry()
    plain, hostile = registry.image(PLAIN), registry.image(configured(config))
    wanted = registry.index(plain, hostile) if in_list else hostile
    base = BASE.model_copy(update={"manifest": plain if in_list else hostile, "digest": wanted})
    with pytest.raises(ClusterctlError) as caught:
        build(tmp_path, registry, base)
    assert not (tmp_path / "log").exists()
    return caught.value, wanted


def test_a_base_without_triggers_is_built_on(tmp_path: Path) -> None:
    registry = BasesRegistry()
    plain = registry.image(PLAIN)
    with pytest.raises(ClusterctlError) as caught:
        build(
            tmp_path, registry, BASE.model_copy(update={"manifest": plain, "digest": registry.index(plain)})
        )
    assert caught.value.code == "images.build"


def test_a_trigger_is_cleaned_and_cut(tmp_path: Path) -> None:
    registry = BasesRegistry()
    line = json.dumps("RUN \x1b[31m" + "x" * 10_000)
    hostile = registry.image(configured(f'"config": {{"OnBuild": [{line}]}}'))
    with pytest.raises(ClusterctlError) as caught:
        build(tmp_path, registry, BASE.model_copy(update={"manifest": hostile, "digest": hostile}))
    assert "\x1b" not in caught.value.what
    assert len(caught.value.what) < 300
