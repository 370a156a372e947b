"""What goes into images, byte for byte."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import subprocess
import tarfile
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from clusterlab import docker
from clusterlab.cache import content_hash
from clusterlab.images import debian, depot, node, storage, training, trees
from clusterlab.images.storage import store_image
from clusterlab.images.trees import ImageFile, pack, wanted_by


def members(packed: bytes) -> dict[str, tarfile.TarInfo]:
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        return {member.name: member for member in archive.getmembers()}


def test_programs_are_executable_files_are_roots_and_units_are_enabled() -> None:
    found = members(pack([node.ROOTFS], [ImageFile("/home/ops/.ssh/authorized_keys", b"k", 0o600, 1000)]))
    early = "etc/systemd/system/clusterlab-early-boot.service"
    assert found["usr/local/lib/clusterlab/bin/early-boot"].mode == 0o755
    assert found["etc/sudoers.d/ops"].mode == 0o440, "sudo refuses one that others can write"
    assert found[early].mode == 0o644
    link = found["etc/systemd/system/sysinit.target.wants/clusterlab-early-boot.service"]
    assert link.linkname == f"/{early}"
    key = found["home/ops/.ssh/authorized_keys"]
    assert (key.mode, key.uid, key.size) == (0o600, 1000, 1)


def test_nothing_that_would_hide_a_directory_link_of_the_base_is_packed() -> None:
    tops = {name.split("/")[0] for name in members(pack([node.ROOTFS, *node.firmware()]))}
    assert not tops & {"bin", "sbin", "lib", "lib64"}, "these are links to /usr in Debian"


@pytest.mark.parametrize(
    ("text", "targets"),
    [("[Install]\nWantedBy=a.target b.target\n", ["a.target", "b.target"]), ("[Unit]\n", [])],
)
def test_wanted_by(text: str, targets: list[str]) -> None:
    assert wanted_by(text) == targets


def test_a_stored_image_is_what_a_registry_expects(tmp_path: Path) -> None:
    content = tmp_path / "root.tar"
    content.write_bytes(pack([], [ImageFile("/etc/motd", b"hello\n" * 1000)]))
    root = tmp_path / "registry"
    digest = store_image(root, "paddlepaddle/paddle", "3.3.1", content, {"Cmd": ["python3"]})
    blobs = root / "docker" / "registry" / "v2" / "blobs" / "sha256"
    for data in blobs.rglob("data"):
        assert data.parent.name == hashlib.sha256(data.read_bytes()).hexdigest()
        assert data.parent.parent.name == data.parent.name[:2]

    def blob(reference: str) -> bytes:
        value = reference.removeprefix("sha256:")
        return (blobs / value[:2] / value / "data").read_bytes()

    manifest = json.loads(blob(digest))
    config = json.loads(blob(manifest["config"]["digest"]))
    layer = blob(manifest["layers"][0]["digest"])
    assert manifest["layers"][0]["size"] == len(layer)
    assert gzip.decompress(layer) == content.read_bytes()
    assert config["rootfs"]["diff_ids"] == [f"sha256:{hashlib.sha256(content.read_bytes()).hexdigest()}"]
    repository = root / "docker" / "registry" / "v2" / "repositories" / "paddlepaddle" / "paddle"
    assert (repository / "_manifests" / "tags" / "3.3.1" / "current" / "link").read_text() == digest
    for reference in (manifest["config"]["digest"], manifest["layers"][0]["digest"]):
        link = repository / "_layers" / "sha256" / reference.removeprefix("sha256:") / "link"
        assert link.read_text() == reference
    assert not list(root.glob("*.part"))


def test_every_python_package_of_the_training_image_is_pinned_by_hash() -> None:
    lines = [line for line in training.REQUIREMENTS.read_text().splitlines() if not line.startswith("#")]
    assert all("==" in line and " --hash=sha256:" in line for line in lines)
    numpy = next(line for line in lines if line.startswith("numpy=="))
    assert tuple(int(part) for part in numpy.split("==")[1].split()[0].split(".")[:2]) < (2, 4)
    assert training.paddle_version() == "3.3.1"


def test_the_content_hash_sees_contents_modes_names_and_links(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "a").write_text("one")
    seen = [content_hash([tree])]
    (tree / "a").write_text("two")
    seen.append(content_hash([tree]))
    (tree / "a").chmod(0o755)
    seen.append(content_hash([tree]))
    (tree / "a").rename(tree / "b")
    seen.append(content_hash([tree]))
    (tree / "c").symlink_to("b")
    seen.append(content_hash([tree]))
    (tree / "__pycache__").mkdir()
    (tree / "__pycache__" / "b.pyc").write_text("compiled")
    assert content_hash([tree]) == seen[-1]
    assert len(set(seen)) == len(seen)
    assert content_hash(["ab", "c"]) != content_hash(["a", "bc"])


def test_a_mirror_is_taken_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert any("-security" in line for line in debian.sources("debian12"))
    monkeypatch.setenv(debian.MIRROR_VARIABLE, "http://mirror.example/debian")
    assert all("mirror.example" in line for line in debian.sources("debian13"))
    assert {"trixie", "trixie-updates"} == {line.split()[2] for line in debian.sources("debian13")}


@pytest.mark.parametrize(
    ("image", "modules"),
    [
        (node, {node, debian, trees}),
        (depot, {depot, debian, trees}),
        (training, {training, debian, storage}),
    ],
)
def test_the_code_that_makes_an_image_is_part_of_what_names_it(image: Any, modules: set[ModuleType]) -> None:
    assert set(image.BUILDERS) == {Path(str(module.__file__)) for module in modules}


def test_another_builder_makes_another_image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = [node.node_tag("debian12"), node.base_tag("debian12"), depot.depot_tag(), training._home().name]
    changed = tmp_path / "debian.py"
    changed.write_text("# another way to do it\n")
    for image in (node, depot, training):
        monkeypatch.setattr(image, "BUILDERS", [*image.BUILDERS[:1], changed])
    after = [node.node_tag("debian12"), node.base_tag("debian12"), depot.depot_tag(), training._home().name]
    assert not set(before) & set(after)


def test_only_the_containers_of_builds_that_have_ended_are_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    gone = f"clusterlab-build-{ended.pid}"
    listed = f"{gone}\nclusterlab-build-{os.getpid()}\nclusterlab-build-other\nclusterlab-0badcafe-gpu01\n"
    monkeypatch.setattr(docker, "output", lambda _arguments: listed)
    removed: list[list[str]] = []
    monkeypatch.setattr(docker, "run", lambda arguments, **_options: removed.append(arguments))
    node.remove_abandoned_builds()
    assert removed == [["rm", "--force", gone]]
