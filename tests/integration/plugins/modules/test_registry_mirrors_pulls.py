"""Mirrors: containerd and skopeo themselves pull by the files that are written for them."""

from __future__ import annotations

import ipaddress
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import bcrypt
import pytest
from ansible_collections.clusterctl.cluster.plugins.module_utils import registry_mirrors
from cryptography import x509
from tests.support.certificates import DAY, own_authority
from tests.support.loopback_registry import Registry, needs_registry, push_tiny, registry
from tests.support.mirrors_declared import model, needs_containerd

needs_skopeo = pytest.mark.needs("skopeo")


def hashed(user: str, password: str) -> str:
    return f"{user}:{bcrypt.hashpw(password.encode(), bcrypt.gensalt(4, b'2b')).decode()}\n"


@pytest.fixture
def upstream(tmp_path: Path) -> Iterator[Registry]:
    """The registry that must not be asked, with an image that the mirror lacks."""
    with registry(tmp_path / "upstream") as running:
        push_tiny(f"{running.address}/library/only-there:1", tmp_path / "a")
        push_tiny(f"{running.address}/library/tiny:1", tmp_path / "b")
        yield running


@contextmanager
def mirroring(tmp_path: Path, tls: tuple[Path, Path] | None = None) -> Iterator[Registry]:
    """The mirror: its images stand below a path, and it needs a password."""
    with registry(tmp_path / "mirror", hashed("robot$nodes", "Aa1secret"), tls) as running:
        push_tiny(
            f"{running.address}/hub/library/tiny:1", tmp_path / "c", "--dest-creds", "robot$nodes:Aa1secret"
        )
        yield running


@pytest.fixture
def mirror(tmp_path: Path) -> Iterator[Registry]:
    with mirroring(tmp_path) as running:
        yield running


@pytest.fixture
def secure_mirror(tmp_path: Path) -> Iterator[tuple[Registry, Path]]:
    """The same over TLS, and its certificate."""
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    files = (tmp_path / "mirror.crt", tmp_path / "mirror.key")
    for path, text in zip(files, own_authority(address, DAY), strict=True):
        path.write_bytes(text)
    with mirroring(tmp_path, files) as running:
        yield running, files[0]


@pytest.fixture
def ctr(tmp_path: Path) -> Iterator[list[str]]:
    """A containerd of its own, and how to speak to it."""
    address = tmp_path / "c.sock"
    config = tmp_path / "containerd.toml"
    config.write_text('version = 2\ndisabled_plugins = ["io.containerd.grpc.v1.cri"]\n', encoding="utf-8")
    with (tmp_path / "containerd.log").open("wb") as log:
        running = subprocess.Popen(
            ["containerd", "--config", str(config), "--root", str(tmp_path / "root"),
             "--state", str(tmp_path / "state"), "--address", str(address)],
            stdout=log, stderr=log,
        )  # fmt: skip
    deadline = time.monotonic() + 30
    while True:
        try:
            with socket.socket(socket.AF_UNIX) as there:
                there.connect(str(address))
            break
        except OSError:
            assert running.poll() is None and time.monotonic() < deadline
            time.sleep(0.05)
    yield ["ctr", "--address", str(address)]
    running.terminate()
    running.wait(20)


@pytest.mark.drawn("pulls through a mirror")
@needs_registry
@needs_skopeo
@needs_containerd
@pytest.mark.parametrize("fail_closed", [False, True])
def test_containerd_pulls_through_the_mirror_as_the_robot(
    fail_closed: bool,
    upstream: Registry,
    secure_mirror: tuple[Registry, Path],
    ctr: list[str],
    tmp_path: Path,
) -> None:
    mirror, certificate = secure_mirror
    token = "cm9ib3Qkbm9kZXM6QWExc2VjcmV0"
    declared = {"upstream": "up.test", "url": f"https://{mirror.address}/hub"}
    mirrors = model(declared, fail_closed=fail_closed)["up.test"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(registry_mirrors.UPSTREAM_SERVERS, "up.test", f"http://{upstream.address}")
        credentials = {mirror.address: f"Basic {token}"}
        text = registry_mirrors.hosts_toml("up.test", mirrors, str(certificate), credentials)
    tree = tmp_path / "trees/up.test"
    tree.mkdir(parents=True)
    (tree / "hosts.toml").write_text(text, encoding="utf-8")
    before = len(upstream.asked())

    def fetch(image: str) -> int:
        command = [*ctr, "content", "fetch", "--hosts-dir", str(tree.parent), f"up.test/library/{image}:1"]
        return subprocess.run(command, capture_output=True, timeout=60, check=False).returncode

    assert fetch("tiny") == 0
    assert any(line.startswith("GET /v2/hub/library/tiny/blobs/") for line in mirror.asked())
    assert upstream.asked()[before:] == []
    assert (fetch("only-there") == 0) is not fail_closed
    assert (upstream.asked()[before:] == []) is fail_closed


@pytest.mark.drawn("pulls through a mirror")
@needs_registry
@needs_skopeo
@needs_containerd
def test_containerd_asks_the_clusters_registry_for_what_has_no_file(
    upstream: Registry, ctr: list[str], tmp_path: Path
) -> None:
    ours = registry_mirrors.Mirror("any", "http", upstream.address, "", fallback=False)
    tree = tmp_path / "trees" / registry_mirrors.ANY_OTHER
    tree.mkdir(parents=True)
    (tree / "hosts.toml").write_text(registry_mirrors.hosts_toml("any", [ours], "", {}), encoding="utf-8")

    def fetch(image: str) -> str:
        command = [*ctr, "content", "fetch", "--hosts-dir", str(tree.parent), f"undeclared.invalid/{image}:1"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        return done.stderr if done.returncode else ""

    assert fetch("library/tiny") == ""
    assert "not found" in fetch("library/nobody-has-it")
    assert any("/v2/library/nobody-has-it/manifests/1" in line for line in upstream.asked())


@pytest.mark.drawn("pulls through a mirror")
@needs_registry
@needs_skopeo
@pytest.mark.parametrize("fail_closed", [False, True])
def test_registries_conf_sends_skopeo_to_the_mirror(
    fail_closed: bool, upstream: Registry, mirror: Registry, tmp_path: Path
) -> None:
    declared = {"upstream": upstream.address, "url": f"http://{mirror.address}/hub"}
    # An older skopeo looks at no variable for it, but all look at their user's own file.
    conf = tmp_path / ".config/containers/registries.conf"
    conf.parent.mkdir(parents=True)
    conf.write_text(
        registry_mirrors.registries_conf(model(declared, fail_closed=fail_closed)), encoding="utf-8"
    )
    auth = tmp_path / "auth.json"
    auth.write_text(
        f'{{"auths": {{"{mirror.address}": {{"auth": "cm9ib3Qkbm9kZXM6QWExc2VjcmV0"}}}}}}', encoding="utf-8"
    )
    before = len(upstream.asked())

    def inspect(image: str) -> int:
        command = ["skopeo", "inspect", "--raw", "--authfile", str(auth), "--tls-verify=false"]
        return subprocess.run(
            [*command, f"docker://{upstream.address}/library/{image}:1"],
            env={**os.environ, "HOME": str(tmp_path)},
            capture_output=True, timeout=60, check=False,
        ).returncode  # fmt: skip

    assert inspect("tiny") == 0
    assert "GET /v2/hub/library/tiny/manifests/1" in mirror.asked()
    assert upstream.asked()[before:] == []
    assert (inspect("only-there") == 0) is not fail_closed
    assert (upstream.asked()[before:] == []) is fail_closed
