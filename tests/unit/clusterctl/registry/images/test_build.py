"""A site's own image: its Dockerfile, what an engine saves of it, and the whole road with a real engine."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import shutil
import subprocess
import tarfile
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.loopback_registry import registry

from clusterctl.cluster import lock as lock_file
from clusterctl.cluster.directory import ClusterDirectory
from clusterctl.cluster.inventory import Host, Inventory, forget_cached
from clusterctl.cluster.lock import Lock, LockedBlob, LockedImage
from clusterctl.errors import ClusterctlError
from clusterctl.main import run
from clusterctl.registry.images import building, gate, mirrored, recipe, saved
from clusterctl.registry.images.declared import declared_images
from clusterctl.registry.images.places import Destination
from clusterctl.registry.oci.client import Registry
from clusterctl.registry.oci.manifest import Manifest
from clusterctl.registry.oci.way import Way

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
    for name, because in (("site.crt", "no certificate alone"), ("absent.crt", "cannot be read")):
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


PROGRAMS = ("sh", "getent", "groupadd", "useradd", "install", "id", "cat")


def base_tar(path: Path) -> None:
    """A system of a few programs of this machine, with what they need."""
    files = {str(Path(found).resolve()) for name in PROGRAMS if (found := shutil.which(name))}
    for program in sorted(files):
        said = subprocess.run(["ldd", program], capture_output=True, text=True, check=False).stdout
        files |= {word for word in said.split() if word.startswith("/")}
    files |= {str(one) for one in Path("/lib").glob("*/libnss_files.so.2")}
    with tarfile.open(path, "w") as tar:
        for name in PROGRAMS:
            member = tarfile.TarInfo(f"bin/{name}")
            member.type, member.linkname = tarfile.SYMTYPE, str(Path(str(shutil.which(name))).resolve())
            if not member.linkname.startswith("/bin/") and member.linkname != f"/bin/{name}":
                tar.addfile(member)
        for file in sorted(files):
            tar.add(Path(file).resolve(), arcname=file.lstrip("/"))
        for name, text in (
            ("etc/passwd", "root:x:0:0::/root:/bin/sh\n"), ("etc/group", "root:x:0:\n"),
            ("etc/shadow", ""), ("etc/gshadow", ""), ("etc/login.defs", "UMASK 022\n"),
            ("etc/nsswitch.conf", "passwd: files\ngroup: files\n"),
        ):  # fmt: skip
            member = tarfile.TarInfo(name)
            member.size = len(text)
            tar.addfile(member, io.BytesIO(text.encode()))
        for name in ("tmp", "home", "root"):
            member = tarfile.TarInfo(name)
            member.type, member.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(member)


def docker(*words: str) -> str:
    command = ["docker", *words]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=300).stdout.strip()


def remove_all_on(base: str) -> None:
    """Remove an image, and what an engine keeps of builds on it that failed."""
    first = json.loads(docker("image", "inspect", "-f", "{{json .RootFS.Layers}}", base))[0]
    for image in docker("images", "--quiet", "--filter", "dangling=true").split():
        if first in docker("image", "inspect", "-f", "{{json .RootFS.Layers}}", image):
            subprocess.run(["docker", "rmi", "--force", image], capture_output=True, check=False)
    subprocess.run(["docker", "rmi", "--force", base], capture_output=True, check=False)


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Path, str]]:
    """A cluster directory with a registry of its own on loopback, which has the base, and the lock of it."""
    directory = tmp_path / "cluster"
    (directory / "group_vars").mkdir(parents=True)
    base_tar(tmp_path / "base.tar")
    with registry(tmp_path / "registry") as running:
        host, port = running.address.split(":")
        base = f"{running.address}/library/base:1"
        docker("import", "-c", "ENV PATH=/bin:/usr/bin:/usr/sbin", str(tmp_path / "base.tar"), base)
        try:
            docker("push", "--quiet", base)
            # By another name it is a source, as for a site that mirrored it, and not the cluster's own.
            (directory / "hosts.yml").write_text(
                textwrap.dedent(f"""\
                    gpu_nodes:
                      hosts:
                        gpu01: {{ansible_host: 192.0.2.1}}
                      vars:
                        registry_hostname: {host}
                        registry_port: {port}
                        images: [{{name: base, source: "http://localhost:{port}/library/base:1"}}]
                        image_builds:
                          - {{name: site, base: base, target: "site/image:1", user: ada,
                             labels: {{made.for: "a $HOME"}}}}
                    """), encoding="utf-8",
            )  # fmt: skip

            def writable(*_: object, **__: object) -> Any:
                from contextlib import contextmanager

                @contextmanager
                def opened() -> Iterator[Destination]:
                    with Registry(Way(running.address, plain=True)) as client:
                        yield Destination(client, running.address)

                return opened()

            monkeypatch.setattr("clusterctl.commands.images.build.writable", writable)
            assert run(["-C", str(directory), "lock"]) == 0
            yield directory, running.address
        finally:
            remove_all_on(base)


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


@pytest.mark.lab
@pytest.mark.usefixtures("engine")
def test_an_image_is_built_pushed_without_its_base_and_locked(
    cluster: tuple[Path, str], capsys: pytest.CaptureFixture[str]
) -> None:
    directory, address = cluster
    capsys.readouterr()

    def build(*words: str) -> dict[str, Any]:
        assert run(["-C", str(directory), "images", "build", "--json", *words]) == 0
        return json.loads(capsys.readouterr().out.splitlines()[0])

    first = build()
    locked = lock_file.read(ClusterDirectory(directory))
    assert locked is not None
    image, base = locked.image("site"), locked.image("base")
    assert image
    assert base
    assert (first["state"], first["digest"]) == ("built", image.digest)
    assert image.digest in [one.digest for one in mirrored.brought(ClusterDirectory(directory))]
    assert image.layers[: len(base.layers)] == base.layers
    assert len(image.layers) > len(base.layers)
    assert first["bytes"] < 100_000 < image.size
    reference = f"{address}/site/image@{image.digest}"
    try:
        assert docker("run", "--rm", "--network", "none", reference, "id", "-un") == "ada"
        labels = json.loads(docker("image", "inspect", "-f", "{{json .Config.Labels}}", reference))
    finally:
        subprocess.run(["docker", "rmi", "--force", reference], capture_output=True, check=False)
    assert labels["org.opencontainers.image.base.digest"] == base.digest
    assert labels["made.for"] == "a $HOME"
    assert build()["state"] == "there"
    again = build("--anew")
    assert again["state"] == "built"
    # The other commands take it for an image of the lock like any other.
    assert run(["-C", str(directory), "lock"]) == 0
    after = lock_file.read(ClusterDirectory(directory))
    assert after
    assert after.image("site")
    tags = docker("images", "--format", "{{.Repository}}:{{.Tag}}", "clusterctl/site").split()
    docker("rmi", "--force", *tags)


@pytest.mark.lab
@pytest.mark.usefixtures("engine")
def test_a_build_that_fails_says_the_engines_own_words(
    cluster: tuple[Path, str], capsys: pytest.CaptureFixture[str]
) -> None:
    directory, _ = cluster
    hosts = directory / "hosts.yml"
    hosts.write_text(hosts.read_text().replace("user: ada", "user: ada, packages: [vim]"), encoding="utf-8")
    forget_cached()
    assert run(["-C", str(directory), "images", "build"]) == 1
    said = capsys.readouterr().err
    assert "apt-get: not found" in said
    assert "images.build" in said
    locked = lock_file.read(ClusterDirectory(directory))
    assert locked
    assert locked.image("site") is None
