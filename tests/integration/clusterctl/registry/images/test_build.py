"""A site's own image built with a real engine."""

from __future__ import annotations

import io
import json
import shutil
import subprocess
import tarfile
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.loopback_registry import registry

from clusterctl.cluster import lock as lock_file
from clusterctl.cluster.directory import ClusterDirectory
from clusterctl.cluster.inventory import forget_cached
from clusterctl.main import run
from clusterctl.registry.images import mirrored
from clusterctl.registry.images.registries import Destination
from clusterctl.registry.oci.client import Registry
from clusterctl.registry.oci.endpoint import RegistryEndpoint

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
    """What a docker command prints."""
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
                    with Registry(RegistryEndpoint(running.address, plain=True)) as client:
                        yield Destination(client, running.address)

                return opened()

            monkeypatch.setattr("clusterctl.commands.images.build.writable", writable)
            assert run(["-C", str(directory), "lock"]) == 0
            yield directory, running.address
        finally:
            remove_all_on(base)


@pytest.mark.drawn("builds of an image")
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
    again = build("--rebuild")
    assert again["state"] == "built"
    # The other commands take it for an image of the lock like any other.
    assert run(["-C", str(directory), "lock"]) == 0
    after = lock_file.read(ClusterDirectory(directory))
    assert after
    assert after.image("site")
    tags = docker("images", "--format", "{{.Repository}}:{{.Tag}}", "clusterctl/site").split()
    docker("rmi", "--force", *tags)


@pytest.mark.drawn("builds of an image")
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
