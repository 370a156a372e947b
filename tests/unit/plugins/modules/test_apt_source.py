"""An apt source comes with the pinned key alone, or not at all."""

from __future__ import annotations

from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from ansible_collections.clusterctl.cluster.plugins.module_utils.openpgp_keys import LARGEST
from ansible_collections.clusterctl.cluster.plugins.modules import apt_source
from tests.support.openpgp import ARMORED, BINARY, FINGERPRINT, armored, foreign_key
from tests.support.played_module import PlayedModule, result_of

FOREIGN = "2" * 40


class Node(PlayedModule):
    """A host whose root is a directory; apt-get is written down."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__()
        self.root = root
        self.asked: list[list[str]] = []
        for name in ("keyrings", "sources.list.d", "apt.conf.d"):
            (root / "etc/apt" / name).mkdir(parents=True)
        monkeypatch.setattr(apt_source, "ROOT", root)
        monkeypatch.setattr(apt_source, "AnsibleModule", lambda *_, **__: self)

    def run_command(self, argv: list[str], **_: Any) -> tuple[int, str, str]:
        self.asked.append(argv)
        return 0, "", ""

    def play(self, key: bytes | str, *pins: str, check: bool = False, **more: str) -> dict[str, Any]:
        """Run the module with this key file, or with one at this URL."""
        if isinstance(key, bytes):
            (self.root / "served.key").write_bytes(key)
            key = f"file://{self.root}/served.key"
        self.params = {
            "name": "docker", "url": "https://download.docker.com/linux/debian", "suite": "bookworm",
            "components": "stable", "key_url": key, "keyring_package_url": "",
            "key_fingerprints": list(pins), "http_proxy": "", "https_proxy": "", "no_proxy": "", **more,
        }  # fmt: skip
        self.check_mode = check
        return result_of(apt_source.main)

    def files(self) -> dict[str, bytes]:
        """What lies under /etc/apt, by name."""
        return {path.name: path.read_bytes() for path in (self.root / "etc/apt").rglob("*") if path.is_file()}


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    return Node(tmp_path, monkeypatch)


@pytest.mark.parametrize(("key", "kind"), [(ARMORED, "asc"), (BINARY, "gpg")])
def test_a_pinned_key_comes_with_its_source_and_a_second_run_changes_nothing(
    key: bytes, kind: str, node: Node
) -> None:
    assert node.play(key, FINGERPRINT, check=True)["changed"]
    assert node.files() == {}
    assert node.play(key, FOREIGN, FINGERPRINT.lower())["changed"]
    found = node.files()
    assert found[f"clusterctl-docker.{kind}"] == key
    assert (
        f"Signed-By: {node.root}/etc/apt/keyrings/clusterctl-docker.{kind}".encode()
        in (found["clusterctl-docker.sources"])
    )
    assert len(node.asked) == 1
    assert not node.play("file:///nowhere", FINGERPRINT)["changed"]
    assert not node.play("file:///nowhere", FINGERPRINT, check=True)["changed"]
    assert len(node.asked) == 1


@pytest.mark.parametrize("check", [False, True])
@pytest.mark.parametrize(
    ("key", "pins", "because"),
    [
        (ARMORED, [FOREIGN], f"holds {FINGERPRINT}, and declared is {FOREIGN}"),
        (ARMORED + armored(foreign_key()), [FINGERPRINT], "is not the declared one"),
        (BINARY + foreign_key(), [FINGERPRINT], "is not the declared one"),
        (b"<html>log in first</html>", [FINGERPRINT], "cannot be judged"),
        (foreign_key(6), [FINGERPRINT], "version 6"),
        (ARMORED, [], "No fingerprint is declared"),
        (ARMORED, [FINGERPRINT[-8:]], "not a fingerprint of 40"),
    ],
)
def test_another_key_is_refused_before_anything_is_written(
    key: bytes, pins: list[str], because: str, check: bool, node: Node
) -> None:
    result = node.play(key, *pins, check=check)
    assert (result["failed"], result["code"]) == (True, "packages.key-refused")
    assert because in result["msg"]
    assert "_repository_key_fingerprints" in result["msg"]
    assert node.files() == {}
    assert node.asked == []


def test_a_key_on_the_host_that_is_pinned_no_more_is_replaced(node: Node) -> None:
    other = armored(foreign_key())
    keyrings = node.root / "etc/apt/keyrings"
    node.play(BINARY, FINGERPRINT)
    (keyrings / "clusterctl-docker.gpg").rename(keyrings / "clusterctl-docker.old")
    (keyrings / "clusterctl-docker.asc").write_bytes(other)
    assert node.play(BINARY, FINGERPRINT, check=True)["changed"]
    assert (keyrings / "clusterctl-docker.asc").read_bytes() == other
    assert node.play(BINARY, FINGERPRINT)["changed"]
    assert [path.name for path in keyrings.iterdir()] == ["clusterctl-docker.gpg"]
    assert not node.play(BINARY, FINGERPRINT)["changed"]


def test_an_adopted_source_keeps_its_key_and_none_is_fetched(node: Node) -> None:
    mine = node.root / "etc/apt/sources.list"
    mine.write_text("deb https://download.docker.com/linux/debian bookworm stable\n")
    result = node.play("file:///nowhere", FINGERPRINT)
    assert (result["changed"], result["adopted"]) == (False, str(mine))


def test_a_key_that_cannot_be_read_yet_fails_an_apply_and_no_plan(node: Node) -> None:
    assert node.play("file:///nowhere", FINGERPRINT, check=True)["changed"]
    assert node.play("file:///nowhere", FINGERPRINT)["code"] == "packages.source-down"
    assert node.files() == {}


class Hostile(BaseHTTPRequestHandler):
    """A server of keys that has its own idea of an end."""

    def do_GET(self) -> None:
        self.send_response(200)
        if self.path == "/short":
            self.send_header("Content-Length", str(len(ARMORED) * 2))
        self.end_headers()
        content = ARMORED if self.path == "/short" else b"A" * (LARGEST + 100_000)
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Nothing."""


def test_a_key_file_without_end_and_one_that_is_cut_off_are_refused(node: Node) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), Hostile) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        said = {}
        for path in ("endless", "short"):
            result = node.play(f"http://127.0.0.1:{server.server_port}/{path}", FINGERPRINT)
            said[path] = (result["code"], result["msg"])
        server.shutdown()
    assert {code for code, _ in said.values()} == {"packages.source-down"}
    assert "more than" in said["endless"][1]
    assert "last byte" in said["short"][1]
    assert node.files() == {}


@pytest.mark.parametrize("login", ["", "ops:secret@"])
def test_a_source_that_apt_cannot_read_is_a_failure(
    node: Node, monkeypatch: pytest.MonkeyPatch, login: str
) -> None:
    """apt ends with 0 where it reaches nobody, and prints no user and password."""
    said = "W: Failed to fetch https://mirror.lan/debian/dists/bookworm/InRelease  Could not connect\n"
    monkeypatch.setattr(node, "run_command", lambda *_, **__: (0, "", said))
    result = node.play(ARMORED, FINGERPRINT, url=f"https://{login}mirror.lan/debian")
    assert result["code"] == "packages.source-down"
    assert "clusterctl-docker.sources" not in node.files()


def test_a_source_of_the_operators_takes_the_place_of_ours(node: Node) -> None:
    assert node.play(ARMORED, FINGERPRINT)["changed"]
    theirs = node.root / "etc/apt/sources.list.d/docker.list"
    theirs.write_text("deb [signed-by=/k.asc] https://download.docker.com/linux/debian bookworm stable\n")
    planned = node.play(ARMORED, FINGERPRINT, check=True)
    assert (planned["changed"], planned["adopted"], planned["diff"]["after"]) == (True, str(theirs), "")
    assert node.play(ARMORED, FINGERPRINT)["changed"]
    assert "clusterctl-docker.sources" not in node.files()
    assert not node.play(ARMORED, FINGERPRINT)["changed"]
    theirs.write_text("deb https://download.docker.com/linux/debian trixie stable\n")
    assert node.play(ARMORED, FINGERPRINT)["adopted"] == ""


def test_the_lists_are_read_by_the_sites_proxies(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []

    def run_command(argv: list[str], environ_update: dict[str, str]) -> tuple[int, str, str]:
        read.append(Path(environ_update["APT_CONFIG"]).read_text())
        assert argv[-1] == "update"
        return 0, "", ""

    monkeypatch.setattr(node, "run_command", run_command)
    node.play(ARMORED, FINGERPRINT, https_proxy="http://proxy:3128")
    assert 'Acquire::https::Proxy "http://proxy:3128";' in read[0]
