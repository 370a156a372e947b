"""Whether an image fits where Docker keeps images: which directory that is, and what of it is there."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible_collections.clusterctl.cluster.plugins.module_utils import image_room
from ansible_collections.clusterctl.cluster.plugins.modules import container_image
from tests.support.called_module import called

GB = 10**9
LAYERS = {f"sha256:{name * 64}": size * GB for name, size in (("a", 2), ("b", 3), ("c", 1))}
A, B, C = LAYERS
DIGEST = "sha256:" + "ab" * 32


def classic(root: Path) -> dict[str, Any]:
    return {"DockerRootDir": str(root), "Driver": "overlay2", "DriverStatus": [["Supports d_type", "true"]]}


def with_containerd(root: Path, address: str = "/run/containerd/containerd.sock") -> dict[str, Any]:
    status = [["driver-type", "io.containerd.snapshotter.v1"]]
    return {"DockerRootDir": str(root), "DriverStatus": status, "Containerd": {"Address": address}}


def keep_classic(root: Path, *digests: str) -> None:
    """What Docker has of layers that stand on each other."""
    kept, chain = root / "image/overlay2", ""
    for digest in digests:
        unpacked = "sha256:" + hashlib.sha256(digest.encode()).hexdigest()
        record = kept / "distribution/diffid-by-digest/sha256" / digest.partition(":")[2]
        record.parent.mkdir(parents=True, exist_ok=True)
        record.write_text(unpacked, encoding="utf-8")
        chain = "sha256:" + hashlib.sha256(f"{chain} {unpacked}".encode()).hexdigest() if chain else unpacked
        (kept / "layerdb/sha256" / chain.partition(":")[2]).mkdir(parents=True)


@pytest.fixture
def dumped(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What `containerd config dump` answers."""
    answer: dict[str, Any] = {"rc": 0, "text": "root = '/srv/containerd'\nstate = '/run/containerd'\n"}
    monkeypatch.setattr(image_room, "run_bounded", lambda *_: (answer["rc"], answer["text"], ""))
    return answer


def test_images_are_kept_where_the_store_in_use_has_them(dumped: dict[str, Any]) -> None:
    root = Path("/data/docker")
    assert image_room.store(classic(root)) == root
    assert image_room.store(with_containerd(root)) == Path("/srv/containerd")
    dumped["rc"] = 1
    assert image_room.store(with_containerd(root)) == Path("/var/lib/containerd")
    own = with_containerd(root, "/var/run/docker/containerd/containerd.sock")
    assert image_room.store(own) == root / "containerd/daemon"
    assert image_room.store({}) == Path("/var/lib/docker")


def test_a_layer_is_here_only_on_top_of_those_below_it(tmp_path: Path) -> None:
    info = classic(tmp_path)
    assert image_room.missing(LAYERS, info) == LAYERS
    keep_classic(tmp_path, A, B)
    assert image_room.missing(LAYERS, info) == {C: GB}
    # What a removed image has left: its digest is remembered, its layer is gone.
    shutil.rmtree(tmp_path / "image/overlay2/layerdb")
    assert image_room.missing(LAYERS, info) == LAYERS


def test_of_containerds_store_a_whole_blob_is_here(tmp_path: Path, dumped: dict[str, Any]) -> None:
    dumped["text"] = f'root = "{tmp_path}"\n'
    blobs = tmp_path / image_room.CONTENT
    blobs.mkdir(parents=True)
    (blobs / B.partition(":")[2]).touch()
    assert image_room.missing(LAYERS, with_containerd(Path("/x"))) == {A: 2 * GB, C: GB}


def test_what_is_missing_must_fit_packed_and_unpacked_beside_what_is_to_remain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = SimpleNamespace(free=25 * GB)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: free)
    info = classic(tmp_path / "not-made-yet")

    def too_little(factor: float = 4.3, to_remain_gb: float = 0.0) -> str:
        return image_room.too_little(LAYERS, info, factor=factor, to_remain_gb=to_remain_gb)

    said = too_little()
    assert said.startswith(f"{tmp_path}/not-made-yet has 25.0 GB free, the image needs 25.8 GB (6.0 GB of")
    assert too_little(4.0) == ""
    assert "and 2.0 GB must stay free (training_image_min_free_gb)" in too_little(4.0, 2.0)
    assert too_little(0) == ""
    assert too_little(0, 26.0)
    keep_classic(tmp_path / "not-made-yet", A)
    assert too_little() == ""


def test_a_size_that_is_not_known_leaves_what_is_to_remain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=GB))
    info = classic(tmp_path)
    assert image_room.too_little({}, info, factor=4.3, to_remain_gb=0) == ""
    said = image_room.too_little({}, info, factor=4.3, to_remain_gb=2)
    assert said == f"{tmp_path} has 1.0 GB free, and 2.0 GB must stay free (training_image_min_free_gb)"


DOCKER = """#!/bin/sh
echo "$*" >>{log}
case "$1" in
info) cat {info} ;;
image) exit 1 ;;
*) echo pulled; exit 1 ;;
esac
"""


@pytest.mark.parametrize("check", [True, False])
def test_a_node_without_room_refuses_before_anything_moves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *, check: bool
) -> None:
    log, docker = tmp_path / "log", tmp_path / "bin/docker"
    docker.parent.mkdir()
    (tmp_path / "info").write_text(json.dumps(classic(tmp_path)), encoding="utf-8")
    docker.write_text(DOCKER.format(log=log, info=tmp_path / "info"), encoding="utf-8")
    docker.chmod(0o755)
    monkeypatch.setenv("PATH", f"{docker.parent}:/usr/bin:/bin")
    monkeypatch.setattr(container_image, "look", lambda *_: {"digest": DIGEST, "layers": LAYERS})
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=25 * GB))
    arguments = {"repository": "r:5000/library/paddle", "digest": DIGEST}
    said = called(container_image, arguments, tmp_path, capsys, check=check)
    assert said["failed"]
    assert "has 25.0 GB free, the image needs 25.8 GB" in said["msg"]
    assert "Nothing was pulled. Make room there" in said["msg"]
    assert said["code"] == "host.disk-full"
    assert "pull" not in log.read_text(encoding="utf-8")
