"""A site's own image: its Dockerfile, what an engine saves of it, and the whole road with a real engine."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import tarfile
import time
from pathlib import Path
from typing import Any

import pytest

from clusterctl.cluster.directory import ClusterDirectory
from clusterctl.cluster.inventory import Host, Inventory
from clusterctl.cluster.lock import Lock, LockedBlob, LockedImage
from clusterctl.errors import ClusterctlError
from clusterctl.registry.images import building, gate, recipe, saved
from clusterctl.registry.images.declared import declared_images
from clusterctl.registry.oci.manifest import Manifest

A = "sha256:" + "a" * 64
TAR = "application/vnd.oci.image.layer.v1.tar"
BASE = LockedImage(
    name="training", source="docker.io/x/paddle:1", target="library/paddle", digest=A, manifest=A,
    platforms=("linux/amd64",), config=LockedBlob(digest=A, size=1), layers=(LockedBlob(digest=A, size=5),),
)  # fmt: skip
NOTEBOOK = {
    "name": "notebook", "base": "training", "target": "site/notebook:1",
    "packages": ["vim", "git=1:2.39.5-0"],
    "requirements": ["pandas==2.3.*", "numpy>=1,<3"], "jupyterlab": "4.4.5",
    "pip_index_url": "https://pypi.site/simple",
}  # fmt: skip


def inventory_of(tmp_path: Path, *builds: dict[str, Any]) -> Inventory:
    variables = {"image_builds": list(builds), "registry_hostname": "registry01", "registry_port": 5000}
    host = Host("gpu01", "192.0.2.1", 22, "ops", ("gpu_nodes", "all"), variables)
    return Inventory(ClusterDirectory(tmp_path), (host,))


def test_an_engine_that_saves_nothing_more_is_not_waited_for_for_ever(tmp_path: Path) -> None:
    silent = tmp_path / "docker"
    silent.write_text("#!/bin/sh\nexec sleep 60\n", encoding="utf-8")
    silent.chmod(0o755)
    engine = building.Engine(tmp_path / "log", str(silent), limit_s=0.5)
    began = time.monotonic()
    with pytest.raises(ClusterctlError, match="did not save") as caught, engine.saved("x:1") as stream:
        assert stream.read() == b""
    assert caught.value.code == "images.build-archive"
    assert time.monotonic() - began < 30


def test_the_dockerfile_holds_all_that_is_declared_and_the_same_each_time(tmp_path: Path) -> None:
    (one,) = recipe.declared_recipes(inventory_of(tmp_path, NOTEBOOK))
    context = recipe.context_of(one, BASE, "registry01:5000")
    text = context["Dockerfile"]
    assert f"FROM registry01:5000/library/paddle@{A}\n" in text
    assert "      git=1:2.39.5-0 \\\n      vim \\\n" in text
    assert 'CMD ["jupyter", "lab", "--ip=0.0.0.0", "--no-browser"]' in text
    assert text.index("USER root") < text.index("apt-get") < text.index("USER 1000:1000")
    assert context["requirements.txt"] == "pandas==2.3.*\nnumpy>=1,<3\njupyterlab==4.4.5\n"
    assert context["pip.conf"] == "[global]\nindex-url = https://pypi.site/simple\n"
    assert f'org.opencontainers.image.base.digest="{A}"' in text
    assert len(recipe.recipe_of(context)) == 64
    assert recipe.context_of(one, BASE, "registry01:5000") == context
    other = BASE.model_copy(update={"digest": "sha256:" + "b" * 64})
    assert recipe.recipe_of(recipe.context_of(one, other, "registry01:5000")) != recipe.recipe_of(context)


def test_an_index_that_the_sites_authority_signed_is_trusted_by_it(tmp_path: Path) -> None:
    (tmp_path / "site.crt").write_text(f"{recipe.PEM}\nQUJD\n-----END CERTIFICATE-----\n", encoding="utf-8")
    (one,) = recipe.declared_recipes(inventory_of(tmp_path, {**NOTEBOOK, "pip_ca_file": "site.crt"}))
    context = recipe.context_of(one, BASE, "registry01:5000")
    assert f"cert = {recipe.PIP_CA}\n" in context["pip.conf"]
    assert f"COPY pip-ca.crt {recipe.PIP_CA}\n" in context["Dockerfile"]
    assert context["pip-ca.crt"].startswith(recipe.PEM)
    (tmp_path / "site.crt").write_text(f"{recipe.PEM}\n-----BEGIN PRIVATE KEY-----\n", encoding="utf-8")
    for name, because in (("site.crt", "must contain certificates"), ("absent.crt", "cannot be read")):
        with pytest.raises(ClusterctlError, match=because):
            recipe.declared_recipes(inventory_of(tmp_path, {**NOTEBOOK, "pip_ca_file": name}))


def test_what_is_not_declared_leaves_no_line(tmp_path: Path) -> None:
    bare = {key: NOTEBOOK[key] for key in ("name", "base", "target")}
    (one,) = recipe.declared_recipes(inventory_of(tmp_path, bare))
    context = recipe.context_of(one, BASE, "registry01:5000")
    assert set(context) == {"Dockerfile"}
    for word in ("apt-get", "pip", "CMD", "EXPOSE"):
        assert word not in context["Dockerfile"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"packages": ["vim; curl evil"]}, {"packages": ["--allow-unauthenticated"]},
        {"requirements": ["-e ."]},
        {"requirements": ["x\n--index-url=http://evil"]}, {"target": "site/notebook"}, {"user": "root; x"},
        {"pip_index_url": "https://me:word@pypi.site/simple"}, {"jupyterlab": ">=4"}, {"uid": -1},
        {"labels": {"a": "x\nUSER root"}}, {"name": ""},
    ],
)  # fmt: skip
def test_a_word_that_would_be_more_than_a_word_is_refused(wrong: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(ClusterctlError) as refused:
        recipe.declared_recipes(inventory_of(tmp_path, {**NOTEBOOK, **wrong}))
    assert refused.value.code == "images.build-declared"
    assert "word@" not in refused.value.what


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


def digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def layer(name: str, size: int = 3000) -> bytes:
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as archive:
        member = tarfile.TarInfo(name)
        member.size = size
        archive.addfile(member, io.BytesIO(os.urandom(size)))
    return raw.getvalue()


def archive(layers: list[bytes], style: str) -> io.BytesIO:
    """What `docker save` writes: Docker 20 (`classic`), 25 (`blobs`), the containerd store (`packed`)."""
    config = json.dumps({"rootfs": {"diff_ids": [digest(one) for one in layers]}}).encode()
    stored = [gzip.compress(one, mtime=0) for one in layers] if style == "packed" else layers
    classic = style == "classic"
    names = [
        f"{n}/layer.tar" if classic else f"blobs/sha256/{digest(one)[7:]}" for n, one in enumerate(stored)
    ]
    described = json.dumps([{"Config": "config.json", "Layers": names}]).encode()
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        seen: dict[bytes, str] = {}
        descriptions = [("config.json", config), ("manifest.json", described)]
        for name, content in [*zip(names, stored, strict=True), *descriptions]:
            member = tarfile.TarInfo(name)
            if classic and content in seen:
                member.type, member.linkname = tarfile.SYMTYPE, f"../{seen[content]}"
                tar.addfile(member)
                continue
            seen[content] = name
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    out.seek(0)
    return out


@pytest.mark.parametrize("style", ["classic", "blobs", "packed"])
def test_of_a_saved_image_only_the_new_layers_are_kept(style: str, tmp_path: Path) -> None:
    base, added = [layer("a"), layer("b")], [layer("c"), layer("d")]
    known = {digest(one) for one in base} | {digest(gzip.compress(one, mtime=0)) for one in base}
    image = saved.read(archive([*base, *added], style), tmp_path, known)
    assert image.diff_ids == tuple(digest(one) for one in [*base, *added])
    assert [gzip.decompress(b"".join(one.pieces())) for one in image.new] == added
    assert [one.blob.digest for one in image.new] == [digest(b"".join(one.pieces())) for one in image.new]
    again = saved.read(archive([*base, *added], style), tmp_path, known)
    assert [one.blob for one in again.new] == [one.blob for one in image.new]
    described = {
        "mediaType": "application/vnd.oci.image.manifest.v1+json", "config": {"mediaType": "c"},
        "layers": [{"digest": "one"}, {"digest": "two"}],
    }  # fmt: skip
    layers = json.loads(saved.manifest_of(image, described))["layers"]
    assert [one["digest"] for one in layers[:2]] == ["one", "two"]
    assert [one["size"] for one in layers[2:]] == [one.blob.size for one in image.new]


def test_one_layer_that_stands_twice_is_found_twice(tmp_path: Path) -> None:
    same = layer("same")
    image = saved.read(archive([layer("a"), same, same], "classic"), tmp_path, set())
    assert len(image.new) == 3
    assert image.new[1].blob == image.new[2].blob


@pytest.mark.parametrize("cut", [10, 5000])
def test_an_archive_that_was_cut_off_is_refused(cut: int, tmp_path: Path) -> None:
    whole = archive([layer("a"), layer("b")], "classic").getvalue()
    with pytest.raises(ClusterctlError) as refused:
        saved.read(io.BytesIO(whole[:cut]), tmp_path, set())
    assert refused.value.code == "images.build-archive"


def tar_of(*members: tuple[tarfile.TarInfo, bytes]) -> io.BytesIO:
    """An archive whose members say of themselves what they want."""
    out = b""
    for member, content in members:
        member.size = member.size or len(content)
        out += member.tobuf(tarfile.GNU_FORMAT) + content + b"\0" * (-len(content) % 512)
    return io.BytesIO(out + b"\0" * 1024)


def named(name: str, kind: bytes = tarfile.REGTYPE, size: int = 0) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.size = kind, size
    return member


DEEP = b"[" * 20_000


@pytest.mark.parametrize(
    "members",
    [
        # A name of 8 GB, which tarfile would read into memory; the other forms of the same.
        [(named("x", kind, 8 << 30), b"x" * 512) for kind in (tarfile.GNUTYPE_LONGNAME,)],
        [(named("x", tarfile.XHDTYPE, 8 << 30), b"x" * 512)],
        [(named("x", tarfile.GNUTYPE_SPARSE, 512), b"x" * 512)],
        [(named(str(number)), b"") for number in range(60)],
        [(named("large"), b"x" * 20_000)],
        [(named("manifest.json"), DEEP)],
        [(named("manifest.json"), b'[{"Config": "c", "Layers": [7]}]')],
        [(named("manifest.json"), b'[{"Config": "../../c", "Layers": []}]')],
        [(named("c"), DEEP), (named("manifest.json"), b'[{"Config": "c", "Layers": []}]')],
        [(named("c"), b'{"rootfs": {"diff_ids": []}}'), (named("manifest.json"), b"[]")],
    ],
)
def test_an_archive_with_a_trap_is_refused_and_read_no_further(
    members: list[tuple[tarfile.TarInfo, bytes]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(saved, "MAX_MEMBERS", 50)
    monkeypatch.setattr(
        saved, "MAX_LAYER_BYTES", 30_000 if members[-1][0].name == "manifest.json" else 10_000
    )
    with pytest.raises(ClusterctlError) as refused:
        saved.read(tar_of(*members), tmp_path, set())
    assert refused.value.code == "images.build-archive"
    assert refused.value.what.isprintable()


def test_a_layer_that_unpacks_without_end_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bomb = b"\0" * (4 << 20)
    monkeypatch.setattr(saved, "MAX_LAYER_BYTES", 1 << 20)
    with pytest.raises(ClusterctlError, match="unpacked") as refused:
        saved.read(archive([bomb], "packed"), tmp_path, set())
    assert refused.value.code == "images.build-archive"


def test_the_manifest_of_a_base_that_does_not_say_what_its_configuration_is_serves(tmp_path: Path) -> None:
    image = saved.read(archive([layer("a")], "classic"), tmp_path, set())
    kind = "application/vnd.oci.image.manifest.v1+json"
    raw = saved.manifest_of(image, {"mediaType": kind, "config": {}, "layers": []})
    assert json.loads(raw)["config"]["mediaType"] == "application/vnd.oci.image.config.v1+json"


def test_a_build_is_remembered_before_its_manifest_is_there(tmp_path: Path) -> None:
    (one,) = recipe.declared_recipes(inventory_of(tmp_path, NOTEBOOK))
    layers = [layer("base"), layer("new")]
    image = saved.read(archive(layers, "classic"), tmp_path, {digest(layers[0])})
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
    with pytest.raises(KeyboardInterrupt):
        building.push(order, image, base, Full(), remembered.append)  # type: ignore[arg-type]
