"""Harbor on its host: what is refused before anything is touched, what is done, and when nothing is."""

from __future__ import annotations

import hashlib
import io
import socket
import subprocess
import sys
import tarfile
import threading
from collections.abc import Collection
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.clusterctl.cluster.plugins.module_utils import harbor_host
from ansible_collections.clusterctl.cluster.plugins.module_utils.apt_view import Proxies
from ansible_collections.clusterctl.cluster.plugins.modules import harbor_installer, harbor_preflight

from .harbor_programs import INSTALL, composes, docker_does, lines, older, play, programs

PREPARE = "#!/bin/sh\nexec docker run goharbor/prepare:{version} prepare\n"


# --- the installer


def tarball(
    path: Path, version: str = "v2.15.2", extra: dict[str, bytes] | None = None, *, online: bool = False
) -> str:
    """Write an installer; returns its SHA-256."""
    files = {
        "harbor/install.sh": b"#!/bin/bash\n",
        "harbor/prepare": PREPARE.format(version=version).encode(),
        "harbor/common.sh": b"#\n",
        "harbor/harbor.yml.tmpl": b"hostname: reg.mydomain.com\n",
        **({} if online else {f"harbor/harbor.{version}.tar.gz": b"images"}),
        **(extra or {}),
    }
    with tarfile.open(path, "w:gz") as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), 0o755
            archive.addfile(entry, io.BytesIO(content))
    return hashlib.sha256(path.read_bytes()).hexdigest()


def installer(tmp_path: Path, sha256: str, *, check: bool = False, **more: Any) -> dict[str, Any]:
    wanted = {"version": "v2.15.2", "directory": str(tmp_path / "opt"), "archive": str(tmp_path / "h.tgz")}
    return play("harbor_installer", check=check, sha256=sha256, **{**wanted, **more})


def test_an_installer_is_unpacked_once_and_settings_beside_it_stay(tmp_path: Path) -> None:
    sha256 = tarball(tmp_path / "h.tgz")
    planned = installer(tmp_path, sha256, check=True)
    assert planned["wanted"]
    assert not (tmp_path / "opt").exists()
    release = tmp_path / "opt/releases/v2.15.2/harbor"
    release.mkdir(parents=True)
    (release / "harbor.yml").write_text("ours\n", encoding="utf-8")
    assert installer(tmp_path, sha256)["changed"]
    assert not (tmp_path / "h.tgz").exists()
    assert (release / "install.sh").stat().st_mode & 0o111
    assert (release / "harbor.yml").read_text(encoding="utf-8") == "ours\n"
    assert installer(tmp_path, sha256)["changed"] is False


@pytest.mark.parametrize(
    ("version", "extra", "said"),
    [
        ("v2.14.0", {}, "it is of v2.14.0, and v2.15.2 is declared"),
        ("v2.15.2", {"harbor/../../etc/cron.d/x": b"* * * * *"}, "which no installer of Harbor does"),
        ("v2.15.2", {"elsewhere/x": b""}, "which no installer of Harbor does"),
    ],
)
def test_an_archive_that_is_no_installer_of_this_release_is_refused(
    tmp_path: Path, version: str, extra: dict[str, bytes], said: str
) -> None:
    sha256 = tarball(tmp_path / "h.tgz", version, extra)
    answer = installer(tmp_path, sha256)
    assert answer["failed"]
    assert said in answer["msg"]
    assert not (tmp_path / "opt/releases/v2.15.2/harbor/install.sh").exists()
    assert not list(tmp_path.rglob("x"))


def test_an_installer_is_downloaded_as_a_whole_or_not_at_all(tmp_path: Path) -> None:
    served = tmp_path / "served"
    served.mkdir()
    sha256 = tarball(served / "h.tgz")
    handler = partial(SimpleHTTPRequestHandler, directory=str(served))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_address[1]}"
        missing = installer(tmp_path, sha256, url=f"{url}/nothing.tgz")
        assert "404" in missing["msg"]
        assert installer(tmp_path, sha256, url=f"{url}/h.tgz")["changed"]
        server.shutdown()
    assert installer(tmp_path, sha256, url=f"{url}/h.tgz")["changed"] is False, "it is not asked for again"
    assert not list(tmp_path.glob(".*.part"))
    dead = installer(tmp_path, "1" * 64, url="http://ops:s3cr3t@127.0.0.1:1/h.tgz")
    assert "was not unpacked" in dead["msg"]
    assert "s3cr3t" not in dead["msg"]


def test_a_download_ends_at_its_size_and_at_its_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "served").mkdir()
    tarball(tmp_path / "served/h.tgz")
    handler = partial(SimpleHTTPRequestHandler, directory=str(tmp_path / "served"))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url, place = f"http://127.0.0.1:{server.server_address[1]}/h.tgz", tmp_path / "h.tgz"
        for name, value, because in (("MAX_ARCHIVE_BYTES", 10, "10 bytes"), ("DOWNLOAD_S", 0, "arrive")):
            with monkeypatch.context() as patched, pytest.raises((ValueError, TimeoutError), match=because):
                patched.setattr(harbor_installer, name, value)
                harbor_installer.download(url, Proxies(), place)
            assert not list(tmp_path.glob("*h.tgz*"))
        server.shutdown()


def test_a_server_that_speaks_no_http_and_a_key_that_is_none_are_refused_in_words(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def babble() -> None:
            client, _ = server.accept()
            with client:
                client.recv(4096)
                client.sendall(b"220 ftp.example.org ready\r\n")

        threading.Thread(target=babble, daemon=True).start()
        answer = installer(tmp_path, "1" * 64, url=f"http://127.0.0.1:{server.getsockname()[1]}/h.tgz")
    assert "was not unpacked" in answer["msg"]
    sha256 = tarball(tmp_path / "h.tgz")
    key = "-----BEGIN PGP PUBLIC KEY BLOCK-----\n\nA\n-----END PGP PUBLIC KEY BLOCK-----\n"
    assert "was not unpacked" in installer(tmp_path, sha256, key=key, signature="none")["msg"]


def test_an_archive_with_another_checksum_is_refused_and_removed(tmp_path: Path) -> None:
    tarball(tmp_path / "h.tgz")
    answer = installer(tmp_path, "0" * 64)
    assert "is declared" in answer["msg"]
    assert not (tmp_path / "h.tgz").exists()


def test_a_cut_off_archive_is_refused_even_with_its_own_checksum(tmp_path: Path) -> None:
    tarball(tmp_path / "h.tgz", extra={"harbor/big": bytes(range(256)) * 400})
    whole = (tmp_path / "h.tgz").read_bytes()
    (tmp_path / "h.tgz").write_bytes(whole[: len(whole) // 2])
    sha256 = hashlib.sha256(whole[: len(whole) // 2]).hexdigest()
    assert "was not unpacked" in installer(tmp_path, sha256)["msg"]


def test_an_installer_without_images_is_refused_where_no_setting_allows_it(tmp_path: Path) -> None:
    online = {"harbor/docs/harbor.v2.15.2.tar.gz": b"", "harbor/harbor.tar.gz/x": b""}
    sha256 = tarball(tmp_path / "h.tgz", extra=online, online=True)
    refused = installer(tmp_path, sha256)
    assert refused["failed"]
    assert (refused["code"], "harbor_images_by_tag" in refused["msg"]) == ("harbor.installer", True)
    assert not (tmp_path / "opt/releases/v2.15.2/harbor/install.sh").exists()
    sha256 = tarball(tmp_path / "h.tgz", extra=online, online=True)
    assert installer(tmp_path, sha256, images_by_tag=True)["changed"]
    assert installer(tmp_path, sha256, images_by_tag=True)["changed"] is False
    for check in (False, True):
        assert "is not used" in installer(tmp_path, sha256, check=check)["msg"], "its setting was taken away"


def test_images_that_came_may_be_removed_once_docker_has_them(tmp_path: Path) -> None:
    sha256 = tarball(tmp_path / "h.tgz")
    release = Path(installer(tmp_path, sha256)["release"])
    (release / "harbor.v2.15.2.tar.gz").unlink()
    assert installer(tmp_path, sha256)["changed"] is False


@pytest.mark.parametrize("online", [False, True], ids=["offline", "online"])
def test_an_installer_of_which_an_earlier_version_recorded_no_images_is_asked_for_again(
    tmp_path: Path, online: bool
) -> None:
    sha256 = tarball(tmp_path / "h.tgz", online=online)
    again = (tmp_path / "h.tgz").read_bytes()
    release = Path(installer(tmp_path, sha256, images_by_tag=online)["release"])
    (release / harbor_installer.MARK).write_text(f'{{"sha256": "{sha256}"}}', encoding="utf-8")
    allowed = installer(tmp_path, sha256, images_by_tag=online)
    assert allowed["changed"] is False, "its images are there, or it is allowed"
    for images in release.glob("harbor*.tar.gz"):
        images.unlink()
    (tmp_path / "h.tgz").write_bytes(again)
    assert ("failed" in installer(tmp_path, sha256)) is online


def test_an_online_installer_that_is_allowed_brings_no_images_and_is_unpacked_and_upgraded_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = programs(tmp_path, monkeypatch, INSTALL)
    sha256 = tarball(tmp_path / "h.tgz", extra={"harbor/install.sh": INSTALL.encode()}, online=True)
    release = installer(tmp_path, sha256, images_by_tag=True)["release"]
    assert release == wanted["release"]
    older(tmp_path, wanted)
    composes(tmp_path, monkeypatch)
    assert play("harbor_release", **wanted, upgrade=True)["done"][0].startswith("install: v2.14.3 is here")
    asked = lines(tmp_path)
    assert any("goharbor/prepare:v2.15.2 migrate" in line for line in asked)
    assert not any("docker load" in line for line in asked)


# --- before anything is touched


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        ("v2.14.3", "v2.15.2", ""),
        ("v2.13.0", "v2.15.2", ""),
        ("v2.15.1", "v2.15.2", ""),
        ("v2.12.4", "v2.15.2", "go to a 2.14 release first"),
        ("v2.15.2", "v2.14.3", "no way back"),
        ("v2.11.0", "v2.13.0", "not a hop that is known here"),
        ("v2.15.0", "v2.16.0", "not a hop that is known here"),
    ],
)
def test_the_hops_that_harbor_documents_are_the_ones_that_are_made(before: str, after: str, why: str) -> None:
    said = harbor_host.why_no_upgrade(before, after)
    assert why in said
    assert bool(said) == bool(why)


def test_ports_that_are_held_are_found_with_their_holder() -> None:
    header = "  sl  local_address rem_address   st\n"
    row = "   0: 00000000:{port:04X} 00000000:0000 {state} 0:0 00:0 0 0 0 {inode} 1\n"
    table = header + row.format(port=443, state="0A", inode=77) + row.format(port=80, state="01", inode=78)
    assert harbor_host.listeners([table]) == {443: "77"}
    (said,) = harbor_preflight.taken({"https": 443, "http": 80}, {443: "apache2"})
    assert "port 443 (https) is held by apache2" in said
    assert "wanted twice" in harbor_preflight.twice({"https": 443, "metrics": 443})[0]


def held_by(monkeypatch: pytest.MonkeyPatch, programs: dict[str, str]) -> None:
    """Sockets that programs have, by inode."""

    def holders(inodes: Collection[str]) -> dict[str, str]:
        return {inode: programs[inode] for inode in inodes}

    monkeypatch.setattr(harbor_preflight, "holders", holders)


@pytest.mark.parametrize(
    ("says", "left"),
    [
        ("nginx\t/opt/harbor/releases/v2.15.2/harbor\t0.0.0.0:8443->8443/tcp, [::]:8443->8443/tcp", {}),
        ("web\t/srv/web\t0.0.0.0:8443->443/tcp", {8443: "container web"}),
        ("web\t\t0.0.0.0:8440-8445->40-45/tcp", {8443: "container web"}),
        ("nginx\t/opt/harbor-of-others/harbor\t:::8443->8443/tcp", {8443: "container nginx"}),
        ("nginx\t/opt/harbor/releases/v2.15.2/harbor\t0.0.0.0:443->8443/tcp, 8443/tcp",
         {8443: "docker-proxy"}),
    ],
)  # fmt: skip
def test_a_containers_port_is_harbors_where_docker_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: str, left: dict[int, str]
) -> None:
    programs(tmp_path, monkeypatch, "")
    docker_does(tmp_path, f"printf '{says}\\n'")
    held_by(monkeypatch, {"7": "docker-proxy", "8": "sshd"})
    assert harbor_preflight.others({8443: "7"}, "/opt/harbor", begun=True) == left
    assert harbor_preflight.others({22: "8"}, "/opt/harbor", begun=True) == {22: "sshd"}


@pytest.mark.parametrize("begun", [False, True])
def test_where_docker_does_not_answer_the_record_says_whose_a_containers_port_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, begun: bool
) -> None:
    programs(tmp_path, monkeypatch, "")
    docker_does(tmp_path, "exit 1")
    held_by(monkeypatch, {"7": "docker-proxy", "8": "sshd"})
    held = {22: "sshd"} if begun else {443: "docker-proxy", 22: "sshd"}
    assert harbor_preflight.others({443: "7", 22: "8"}, "/opt/harbor", begun=begun) == held


def test_harbors_own_ports_are_known_however_many_files_users_have_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before Harbor starts again: a search that ends for lack of time is none that found somebody else."""
    programs(tmp_path, monkeypatch, "")
    docker_does(tmp_path, "printf 'nginx\t/opt/harbor/releases/v2.15.2/harbor\t0.0.0.0:443->8443/tcp\n'")
    monkeypatch.setattr(harbor_host, "HOLDERS_S", 0)
    assert harbor_preflight.others({443: "7"}, "/opt/harbor", begun=True) == {}
    assert harbor_preflight.others({443: "7", 80: "8"}, "/opt/harbor", begun=True) == {80: "somebody"}


def test_one_search_finds_the_programs_of_all_sockets_within_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for pid, program, inode in ((1, "init", 5), (20, "nginx", 7), (21, "nginx-worker", 7), (30, "sshd", 8)):
        (tmp_path / f"{pid}/fd").mkdir(parents=True)
        (tmp_path / f"{pid}/comm").write_text(f"{program}\n", encoding="utf-8")
        (tmp_path / f"{pid}/fd/3").symlink_to(f"socket:[{inode}]")
    ids = iter([[1, 20, 21, 30], [1, 20, 21, 30]])
    monkeypatch.setattr(harbor_host, "process_ids", lambda _: next(ids))
    assert harbor_host.holders(["7", "8", "9"], tmp_path) == {"7": "nginx", "8": "sshd"}
    monkeypatch.setattr(harbor_host, "HOLDERS_S", 0)
    assert harbor_host.holders(["7"], tmp_path) == {}


def test_a_port_that_another_program_holds_is_refused_with_its_name(tmp_path: Path) -> None:
    program = (
        "import socket; s = socket.create_server(('127.0.0.1', 0));"
        "print(s.getsockname()[1], flush=True); input()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        port = int(child.stdout.readline())
        answer = play(
            "harbor_preflight", directory=str(tmp_path), data_dir=str(tmp_path / "data"), version="v2.15.2",
            ports={"https": port}, min_free_gb=0,
        )  # fmt: skip
        child.communicate("\n", timeout=20)
    assert f"port {port} (https) is held by python" in answer["msg"]
    assert "nothing was touched" in answer["msg"]


def test_data_of_an_unknown_release_and_a_full_disk_are_refused(tmp_path: Path) -> None:
    (tmp_path / "data/database/pg15").mkdir(parents=True)
    looked = {
        "directory": str(tmp_path),
        "data_dir": str(tmp_path / "data"),
        "version": "v2.15.2",
        "ports": {},
    }
    answer = play("harbor_preflight", **looked, min_free_gb=10**9)
    assert "of an unknown release" in answer["msg"]
    assert "GB free" in answer["msg"]
    harbor_host.write_record(str(tmp_path), {"version": "v2.15.2", "state": "installed"})
    assert play("harbor_preflight", **looked, min_free_gb=10**9)["installed"] == "v2.15.2"
    harbor_host.write_record(str(tmp_path), {"version": "v2.14.3", "state": "installed"})
    assert "`clusterctl registry upgrade`" in play("harbor_preflight", **looked)["msg"]
    assert play("harbor_preflight", **looked, upgrade=True, min_free_gb=0)["installed"] == "v2.14.3"


def test_data_that_are_elsewhere_are_not_left_behind_by_a_setting(tmp_path: Path) -> None:
    harbor_host.write_record(
        str(tmp_path), {"version": "v2.15.2", "state": "installed", "data_dir": "/srv/harbor"}
    )
    looked = {"directory": str(tmp_path), "version": "v2.15.2", "ports": {}}
    answer = play("harbor_preflight", **looked, data_dir=str(tmp_path / "data"))
    assert "Harbor's data are in /srv/harbor" in answer["msg"]
    assert play("harbor_preflight", **looked, data_dir="/srv/harbor/")["installed"] == "v2.15.2"


def test_a_record_that_cannot_be_read_is_no_absent_harbor(tmp_path: Path) -> None:
    (tmp_path / "installed.json").write_text("{", encoding="utf-8")
    answer = play("harbor_preflight", directory=str(tmp_path), data_dir="/x", version="v2.15.2", ports={})
    assert "installed.json cannot be read" in answer["msg"]
