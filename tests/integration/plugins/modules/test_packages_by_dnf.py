"""Repositories and packages on RHEL 9 by real dnf: pinned keys, versions, locks, and those of others."""

from __future__ import annotations

import base64
import functools
import json
import shutil
import stat
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.clusterctl.cluster.plugins.module_utils import (
    openpgp_keys,
    package_task,
    rpm_database,
)
from ansible_collections.clusterctl.cluster.plugins.modules import rpm_packages, rpm_repository
from tests.support import rpm_archive
from tests.support.played_module import PlayedModule, result_of

from clusterlab.sources import signing

pytestmark = pytest.mark.needs("dnf", "rpmbuild", "createrepo_c", "modifyrepo_c", "gpg", "root")
TOOLKIT = ["nvidia-container-toolkit", "libnvidia-container1"]
LOCKS = "etc/dnf/plugins/versionlock.list"
NO_PROXY = {"http_proxy": "", "https_proxy": "", "no_proxy": ""}


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return rpm_archive.build(tmp_path_factory.mktemp("rpms"), with_driver=False)


class Node(PlayedModule):
    """A node that runs a module; its dnf knows the repository unless it is taken away."""

    def __init__(self, root: Path, repository: Path, patch: pytest.MonkeyPatch) -> None:
        super().__init__()
        self.host = rpm_archive.Host(root, [repository])
        self.run_command = self.host.run
        for module in (rpm_packages, rpm_repository):
            patch.setattr(module, "ROOT", root)
            patch.setattr(module, "AnsibleModule", lambda *_, **__: self)
        patch.setattr(package_task, "HOLDS", root / "var/lib/clusterctl/holds.json")
        real = package_task.alone
        patch.setattr(package_task, "alone", lambda name, seconds: real(name, seconds, root / "locks"))

    def call(self, module: Any, *, check: bool = False, **params: Any) -> dict[str, Any]:
        self.check_mode = check
        self.params = {**NO_PROXY, **params}
        return result_of(module.main)

    def packages(self, *packages: str, check: bool = False, **params: Any) -> dict[str, Any]:
        wanted = {"version": "", "hold": True, "busy": "", "adopt": [], "repository_url": "", **params}
        return self.call(rpm_packages, check=check, packages=list(packages), **wanted)

    @property
    def locks(self) -> list[str]:
        file = self.host.root / LOCKS
        return file.read_text().splitlines() if file.exists() else []


@pytest.fixture
def node(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    return Node(tmp_path / "root", repository, monkeypatch)


def test_packages_come_in_a_version_are_locked_and_follow_the_next_version(node: Node) -> None:
    foretold = node.packages(*TOOLKIT, version="1.17.8", check=True)
    assert foretold["changed"] is True
    assert node.host.rpms() == {}
    first = node.packages(*TOOLKIT, version="1.17.8")
    assert (first["changed"], sorted(first["held"])) == (True, sorted(TOOLKIT))
    assert first["changes"] == foretold["changes"]
    assert first["changes"].keys() == node.host.rpms().keys() > set(TOOLKIT)
    assert "python3-dnf-plugin-versionlock" in node.host.rpms()
    assert node.locks == [f"{name}-0:1.17.8-1.*" for name in sorted(TOOLKIT)]
    assert node.packages(*TOOLKIT, version="1.17.8")["changed"] is False
    newer = node.packages(*TOOLKIT, version="1.18.1")
    assert (newer["changed"], newer["versions"]) == (True, dict.fromkeys(TOOLKIT, "1.18.1-1"))
    assert node.locks == [f"{name}-0:1.18.1-1.*" for name in sorted(TOOLKIT)]
    assert node.packages(*TOOLKIT, hold=False)["released"] == TOOLKIT
    assert node.locks == []


def test_check_mode_reads_a_repository_that_is_not_configured_yet(node: Node, repository: Path) -> None:
    for file in (node.host.root / "etc/yum.repos.d").glob("*"):
        file.unlink()
    url = f"file://{repository}"
    foretold = node.packages(*TOOLKIT, version="1.17.8", check=True, repository_url=url)
    assert set(TOOLKIT) <= foretold["changes"].keys()
    assert node.warned == []
    unknown = node.packages(*TOOLKIT, version="1.17.8", check=True)
    assert (unknown["changed"], unknown["changes"]) == (True, {})
    (warning,) = node.warned
    assert "would change is not known" in warning


def test_docker_of_an_epoch_and_what_stands_in_its_way(node: Node) -> None:
    docker = ["docker-ce=29.1.3", "docker-ce-cli", "containerd.io"]
    assert node.packages(*docker)["versions"]["docker-ce"] == "3:29.1.3-1.el9"
    assert node.packages(*docker)["changed"] is False
    assert node.packages("podman", adopt=["docker-ce"])["adopted"] == "docker-ce"
    refused = node.packages("podman")
    assert "could not be installed" in refused["msg"]
    assert "containerd.io" in refused["msg"]
    assert "podman" not in node.host.rpms()


def test_somebody_elses_lock_is_respected(node: Node) -> None:
    node.packages(*TOOLKIT, version="1.17.8", hold=False)
    (node.host.root / LOCKS).write_text("libnvidia-container1-0:1.17.8-1.*\n")
    refused = node.packages(*TOOLKIT, version="1.18.1")
    assert refused["code"] == "packages.held"
    assert "dnf versionlock delete libnvidia-container1" in refused["msg"]
    busy = node.packages(TOOLKIT[0], version="1.18.1", busy="2 containers run")
    assert "2 containers run" in busy["clusterctl"]["busy"]


def test_a_repository_is_written_with_its_pinned_key_and_read(
    node: Node, repository: Path, tmp_path: Path
) -> None:
    signed = tmp_path / "signed"
    shutil.copytree(repository, signed)
    key = signing.ensure(repository.parent / "key")
    (tmp_path / "key.asc").write_bytes(key.armored.read_bytes())
    (node.host.root / "etc/yum.repos.d/site0.repo").unlink()
    wanted = {
        "name": "toolkit", "url": f"file://{signed}", "key_url": f"file://{tmp_path}/key.asc",
        "key_fingerprints": [signing.fingerprint(key)], "signed": "index", "packages": ["*nvidia-container*"],
    }  # fmt: skip
    file = node.host.root / "etc/yum.repos.d/clusterctl-toolkit.repo"
    assert node.call(rpm_repository, check=True, **wanted)["changed"] is True
    assert not file.exists()
    foreign = node.call(rpm_repository, **{**wanted, "key_fingerprints": ["AB" * 20]})
    assert (foreign["code"], file.exists()) == ("packages.key-refused", False)
    assert node.call(rpm_repository, **wanted)["changed"] is True
    assert "repo_gpgcheck=1" in file.read_text()
    assert "includepkgs=*nvidia-container*" in file.read_text()
    assert node.call(rpm_repository, **wanted)["changed"] is False
    assert node.packages(*TOOLKIT, version="1.18.1", hold=False)["changed"] is True
    other = node.packages("dkms", hold=False)
    assert "could not be installed" in other["msg"]

    (signed / "repodata/repomd.xml.asc").write_text("no signature")
    file.write_text(file.read_text() + "# changed by hand\n")
    unsigned = node.call(rpm_repository, **wanted)
    assert (unsigned.get("code"), file.exists()) == ("packages.source-down", False)


@pytest.mark.parametrize("signed", ["packages", "index"])
def test_a_key_that_is_pinned_no_more_signs_nothing(
    node: Node, repository: Path, tmp_path: Path, signed: str
) -> None:
    """RPM and dnf keep what they have imported; a mirror may have a key that leaked."""
    (node.host.root / "etc/yum.repos.d/site0.repo").unlink()
    leaked, fresh = signing.ensure(repository.parent / "key"), signing.ensure(tmp_path / "fresh")
    of_the_site = signing.ensure(tmp_path / "site")
    assert node.host.run(["rpm", "--import", str(of_the_site.armored)])[0] == 0

    def declared(key: signing.SigningKey, url: str) -> dict[str, Any]:
        fingerprints = [signing.fingerprint(key)]
        return {"name": "toolkit", "url": url, "key_url": f"file://{key.armored}", "signed": signed,
                "packages": [], "key_fingerprints": fingerprints}  # fmt: skip

    def known() -> set[str]:
        keys = rpm_database.public_keys(node.host.run).values()
        return {one for key in keys for one in openpgp_keys.fingerprints(key)}

    url = f"file://{repository}"
    assert node.call(rpm_repository, **declared(leaked, url))["changed"] is True
    assert node.packages(*TOOLKIT, version="1.17.8", hold=False)["changed"] is True
    assert (signing.fingerprint(leaked) in known()) is (signed == "packages")
    rotated = node.call(rpm_repository, **declared(fresh, url))
    assert known() == {signing.fingerprint(of_the_site)}
    if signed == "index":
        assert rotated["code"] == "packages.source-down"
    else:
        assert rotated["changed"] is True
        assert "GPG check FAILED" in node.packages(*TOOLKIT, version="1.18.1", hold=False)["msg"]
    assert node.host.rpms()[TOOLKIT[0]] == "1.17.8-1"


def test_a_repository_that_is_there_already_is_adopted(node: Node, repository: Path, tmp_path: Path) -> None:
    (tmp_path / "key.asc").write_text("never read")
    wanted = {
        "name": "toolkit", "url": f"file://{repository}/", "key_url": f"file://{tmp_path}/key.asc",
        "key_fingerprints": ["AB" * 20], "signed": "packages", "packages": [],
    }  # fmt: skip
    adopted = node.call(rpm_repository, **wanted)
    assert (adopted["changed"], adopted["adopted"]) == (
        False, str(node.host.root / "etc/yum.repos.d/site0.repo"),
    )  # fmt: skip


class Mirror(SimpleHTTPRequestHandler):
    """Asks for the login of a site."""

    def do_GET(self) -> None:
        if self.headers.get("Authorization") != f"Basic {base64.b64encode(b'ops:s3cret').decode()}":
            self.send_error(401)
        else:
            super().do_GET()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def test_the_password_of_a_repository_is_in_no_log(node: Node, repository: Path) -> None:
    (node.host.root / "etc/yum.repos.d/site0.repo").unlink()
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Mirror, directory=str(repository)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    key = signing.ensure(repository.parent / "key")
    url = f"http://ops:s3cret@127.0.0.1:{server.server_port}/"
    wanted = {
        "name": "toolkit", "url": url, "key_url": f"file://{key.armored}", "signed": "index", "packages": [],
        "key_fingerprints": [signing.fingerprint(key)],
    }  # fmt: skip
    try:
        foretold = node.packages(*TOOLKIT, check=True, repository_url=url)
        assert set(TOOLKIT) <= foretold["changes"].keys()
        answer = node.call(rpm_repository, **wanted)
        assert (answer["changed"], "s3cret" in str(answer)) == (True, False)
        assert node.packages(*TOOLKIT, repository_url=url)["changed"] is True
    finally:
        server.shutdown()
        server.server_close()
    texts = {path: path.read_bytes() for path in node.host.root.rglob("*") if path.is_file()}
    assert any(b"Downloading: http://127.0.0.1" in text for text in texts.values())
    (file,) = (path for path, text in texts.items() if b"s3cret" in text)
    assert (file.name, stat.S_IMODE(file.stat().st_mode)) == ("clusterctl-toolkit.repo", 0o600)


def test_a_passwords_of_a_proxy_is_roots_alone_and_holds_are_on_record(node: Node) -> None:
    text = rpm_repository.content(
        {"name": "cuda", "url": "http://depot/cuda/", "signed": "packages", "packages": []},
        "/key",
        "http://u:p@proxy:3128",
    )
    assert "proxy=http://u:p@proxy:3128" in text
    assert "gpgcheck=1\nrepo_gpgcheck=0" in text
    node.packages(TOOLKIT[0])
    record = node.host.root / "var/lib/clusterctl/holds.json"
    assert json.loads(record.read_text()) == [TOOLKIT[0]]
