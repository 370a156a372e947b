"""The whole module against a Docker and a systemd that are played by scripts."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils import basic
from ansible_collections.clusterctl.cluster.plugins.module_utils import docker_daemon
from ansible_collections.clusterctl.cluster.plugins.modules import docker_daemon_config as module
from tests.support.called_module import called

INFO = {"ContainersRunning": 0, "LiveRestoreEnabled": False, "Runtimes": {}, "ServerVersion": "28.0"}
NOFILE = {"nofile": {"Name": "nofile", "Soft": 1048576, "Hard": 1048576}}
MEMLOCK = {"memlock": {"Name": "memlock", "Soft": -1, "Hard": -1}}


class Host:
    """A host with a Docker that runs, whose unit has ``flags``, and that may refuse to start."""

    def __init__(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
        self.file, self.log, self._tmp, self._capsys = (
            tmp_path / "daemon.json",
            tmp_path / "log",
            tmp_path,
            capsys,
        )
        self.flags = ""
        self.refuses = tmp_path / "refuses"
        self.bin = bin_ = tmp_path / "bin"
        bin_.mkdir()
        scripts = {
            "docker": f"echo '{json.dumps(INFO)}'",
            "journalctl": "echo 'unable to configure the Docker daemon: no such directory'",
            "systemctl": f"""
echo "$*" >>{self.log}
case "$1" in
show) echo MainPID={os.getpid()} ;;
cat) cat {tmp_path}/unit ;;
restart) [ ! -e {self.refuses} ] ;;
esac""",
        }
        for name, script in scripts.items():
            (bin_ / name).write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
            (bin_ / name).chmod(0o755)
        monkeypatch.setenv("PATH", f"{bin_}:/usr/bin:/bin")
        monkeypatch.setattr(docker_daemon, "STATE", tmp_path / "state.json")
        self.warnings: list[str] = []
        monkeypatch.setattr(basic.AnsibleModule, "warn", lambda _, text: self.warnings.append(text))

    def apply(self, *, check: bool = False, **params: Any) -> dict[str, Any]:
        """What the module answers."""
        (self._tmp / "unit").write_text(f"ExecStart=/usr/bin/dockerd {self.flags}\n", encoding="utf-8")
        return called(module, {"path": str(self.file), **params}, self._tmp, self._capsys, check=check)

    def restarts(self) -> int:
        """How often Docker was restarted."""
        return self.log.read_text(encoding="utf-8").splitlines().count("restart docker.service")

    def content(self) -> dict[str, Any]:
        """daemon.json as it is."""
        found: dict[str, Any] = json.loads(self.file.read_text(encoding="utf-8"))
        return found


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> Host:
    return Host(tmp_path, monkeypatch, capsys)


def test_a_file_that_this_run_did_not_change_stays_when_docker_does_not_start(host: Host) -> None:
    host.file.write_text('{"data-root": "/raid/docker"}', encoding="utf-8")
    host.refuses.touch()
    answer = host.apply(restart_for=["its proxies were removed"])
    assert answer["failed"]
    assert host.content() == {"data-root": "/raid/docker"}
    assert "no such directory" in answer["msg"]
    assert "its proxies were removed" in answer["msg"]
    assert "undone" not in answer["msg"]
    assert host.restarts() == 1


def test_check_mode_foretells_the_restart_of_a_docker_that_comes_with_its_package(host: Host) -> None:
    (host.bin / "systemctl").write_text("#!/bin/sh\necho MainPID=0\n", encoding="utf-8")
    reason = ["its proxy settings change"]
    foretold = host.apply(restart_for=reason, check=True)
    assert (foretold["changed"], foretold["action"], foretold["because"]) == (True, "restart", reason)
    assert not host.apply(restart_for=[], check=True)["changed"]


def test_a_file_that_this_run_made_goes_when_docker_does_not_start_with_it(host: Host) -> None:
    host.refuses.touch()
    answer = host.apply(options={"log-driver": "journald"})
    assert "undone" in answer["msg"]
    assert not host.file.exists()
    assert host.restarts() == 2


def test_a_file_that_this_run_changed_is_put_back_when_docker_does_not_start_with_it(host: Host) -> None:
    host.file.write_text('{"data-root": "/raid/docker"}', encoding="utf-8")
    host.refuses.touch()
    answer = host.apply(options={"log-driver": "journald"})
    assert "undone" in answer["msg"]
    assert host.content() == {"data-root": "/raid/docker"}


def test_a_key_that_an_earlier_version_wrote_although_a_flag_has_it_is_removed(host: Host) -> None:
    """Docker would not start at its next restart; the one that runs has it from the flag: no restart."""
    host.flags = "--default-ulimit memlock=-1:-1"
    host.file.write_text(json.dumps({"default-ulimits": MEMLOCK, "data-root": "/raid"}), encoding="utf-8")
    answer = host.apply(options={"default-ulimits": MEMLOCK})
    assert answer["changed"]
    assert answer["action"] == "none"
    assert host.content() == {"data-root": "/raid"}
    assert not host.apply(options={"default-ulimits": MEMLOCK})["changed"]


def test_a_key_in_the_file_that_a_flag_contradicts_is_named_and_left(host: Host) -> None:
    host.flags = "--data-root /raid"
    host.file.write_text('{"data-root": "/var/lib/docker"}', encoding="utf-8")
    answer = host.apply(options={"runtimes": {"nvidia": {"path": "n"}}})
    assert answer["failed"]
    assert "flags for data-root" in answer["msg"]
    assert host.content() == {"data-root": "/var/lib/docker"}


def test_a_default_of_ours_gives_way_to_a_flag_and_a_setting_of_the_site_does_not(host: Host) -> None:
    host.flags = "--default-ulimit nofile=1048576"
    answer = host.apply(
        options={"default-ulimits": MEMLOCK, "log-driver": "journald"}, optional=["default-ulimits"]
    )
    assert not answer.get("failed")
    assert "nofile=1048576" in host.warnings[0]
    assert host.content() == {"log-driver": "journald"}
    assert host.apply(options={"default-ulimits": MEMLOCK})["failed"]
    assert not host.apply(options={"default-ulimits": NOFILE})["changed"]


PROXIES = {"proxies": {"https-proxy": "http://ops:s3cret@proxy:3128"}}


@pytest.mark.parametrize(
    ("before", "options", "mode"),
    [
        (None, PROXIES, 0o600),
        (None, {"log-driver": "journald"}, 0o644),
        (0o644, PROXIES, 0o640),
        (0o600, PROXIES, 0o600),
        (0o644, {"log-driver": "journald"}, 0o644),
    ],
)
def test_a_file_with_a_password_of_ours_is_not_for_others_to_read(
    host: Host, before: int | None, options: dict[str, Any], mode: int
) -> None:
    if before is not None:
        host.file.write_text('{"data-root": "/raid"}', encoding="utf-8")
        host.file.chmod(before)
    host.apply(options=options)
    assert stat.S_IMODE(host.file.stat().st_mode) == mode
    assert not any(
        one.stat().st_mode & 0o007 for one in host.file.parent.glob("daemon.json.*") if mode != 0o644
    )
    host.file.chmod(0o644)
    is_open = options == PROXIES
    assert host.apply(options=options, check=True)["changed"] is is_open
    assert stat.S_IMODE(host.file.stat().st_mode) == 0o644
    again = host.apply(options=options)
    assert (again["changed"], again["changed_file"]) == (is_open, False)
    assert stat.S_IMODE(host.file.stat().st_mode) == (0o640 if is_open else 0o644)
    assert host.apply(options=options)["changed"] is False
