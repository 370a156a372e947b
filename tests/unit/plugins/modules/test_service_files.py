"""A service's files: written once, private where they are secrets, and shown nowhere."""

from __future__ import annotations

import json
import stat
import subprocess
import sys
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.clusterctl.cluster.plugins.module_utils import service_unit
from ansible_collections.clusterctl.cluster.plugins.modules import service_files as module
from tests.support.tree import ROOT

START = (
    f"import runpy, sys; sys.path.insert(0, {str(ROOT)!r});"
    f"runpy.run_path({module.__file__!r}, run_name='__main__')"
)


LOGS = (
    "import sys; from ansible.module_utils import basic;"
    "basic.AnsibleModule.log = lambda _, said, log_args=None: print(said, log_args, file=sys.stderr);"
)


def encoded(text: str) -> str:
    """As a role hands a secret over."""
    return b64encode(text.encode()).decode()


def run(files: list[dict[str, str]], *, check: bool = False) -> dict[str, Any]:
    """The module as Ansible runs it: a process, arguments on standard input, JSON out."""
    arguments = {"files": files, "_ansible_check_mode": check, "_ansible_diff": True}
    done = subprocess.run(
        [sys.executable, "-c", START],
        input=json.dumps({"ANSIBLE_MODULE_ARGS": arguments}),
        capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip
    return json.loads(done.stdout)


def wanted(directory: Path) -> list[dict[str, str]]:
    """One ordinary file and one secret."""
    return [
        {"path": str(directory / "etc/example.yml"), "content": "port: 5000"},
        {"path": str(directory / "etc/example.key"), "secret_base64": encoded("s3cr3t-key"), "mode": "0600"},
    ]


def test_files_are_written_once_with_their_modes(tmp_path: Path) -> None:
    planned = run(wanted(tmp_path), check=True)
    assert planned["changed"] is True
    assert list(tmp_path.iterdir()) == []
    assert run(wanted(tmp_path))["changed"] is True
    key = tmp_path / "etc/example.key"
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert key.read_text(encoding="utf-8") == "s3cr3t-key\n"
    assert run(wanted(tmp_path))["changed"] is False
    key.chmod(0o644)
    assert run(wanted(tmp_path))["written"] == [str(key)]
    assert stat.S_IMODE(key.stat().st_mode) == 0o600


def test_a_secret_is_in_no_result_and_no_diff(tmp_path: Path) -> None:
    assert "s3cr3t" not in json.dumps(run(wanted(tmp_path)))
    (tmp_path / "etc/example.key").write_text("s3cr3t-old\n", encoding="utf-8")
    assert "s3cr3t" not in json.dumps(run(wanted(tmp_path)))


def test_a_secret_of_several_lines_is_not_in_the_log_of_the_node(tmp_path: Path) -> None:
    """What Ansible has a module log of its arguments is the text of a list, with every line feed escaped."""
    secret = '-----BEGIN-----\n"s3cr3t"\'s line\n-----END-----\n'
    arguments = {"files": [{"path": str(tmp_path / "key"), "secret_base64": encoded(secret), "mode": "0600"}]}
    done = subprocess.run(
        [sys.executable, "-c", LOGS + START], input=json.dumps({"ANSIBLE_MODULE_ARGS": arguments}),
        capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip
    assert json.loads(done.stdout)["changed"] is True
    assert (tmp_path / "key").read_text(encoding="utf-8") == secret
    assert "Invoked with" in done.stderr
    assert str(tmp_path / "key") in done.stderr
    assert "s3cr3t" not in done.stderr
    assert encoded(secret) not in done.stderr


@pytest.mark.parametrize(
    ("state", "pid", "verbs"),
    [
        ({"UnitFileState": "enabled", "ActiveState": "active"}, 7, []),
        ({"UnitFileState": "disabled", "ActiveState": "active"}, 7, ["enable"]),
        ({"UnitFileState": "enabled", "ActiveState": "failed"}, 0, ["restart"]),
        ({}, 0, ["enable", "restart"]),
    ],
)
def test_a_unit_gets_only_what_it_lacks(
    monkeypatch: pytest.MonkeyPatch, state: dict[str, str], pid: int, verbs: list[str]
) -> None:
    monkeypatch.setattr(module, "show", lambda *_: state)
    monkeypatch.setattr(module, "main_pid", lambda *_: pid)
    assert module.lacking(None, "example.service", []) == verbs


def test_a_unit_that_started_before_its_file_changed_is_restarted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(module, "show", lambda *_: {"UnitFileState": "enabled", "ActiveState": "active"})
    monkeypatch.setattr(module, "main_pid", lambda *_: 7)
    path = tmp_path / "example.yml"
    path.touch()
    changed = path.stat().st_ctime
    monkeypatch.setattr(module, "started_at", lambda _: changed - 5)
    assert module.lacking(None, "example.service", [str(path)]) == ["restart"]
    monkeypatch.setattr(module, "started_at", lambda _: changed + 5)
    assert module.lacking(None, "example.service", [str(path)]) == []


def test_a_process_start_is_known_to_a_fraction_of_a_second(tmp_path: Path) -> None:
    before = tmp_path / "before"
    before.touch()
    child = subprocess.Popen(["sleep", "30"])
    try:
        started = service_unit.started_at(child.pid)
        assert before.stat().st_ctime - 0.1 < started < before.stat().st_ctime + 5
        assert service_unit.newer([str(before), str(tmp_path / "none")], started - 1) == [str(before)]
    finally:
        child.kill()
        child.wait()
    assert service_unit.started_at(child.pid) == 0.0


@pytest.mark.parametrize(
    ("state", "files", "comes"),
    [
        ({"LoadState": "not-found"}, [], True),
        ({}, [], True),
        ({"LoadState": "loaded"}, [], False),
        ({"LoadState": "not-found"}, ["/etc/systemd/system/example.service"], False),
        ({"LoadState": "not-found"}, ["/etc/systemd/system/example.service.d/proxy.conf"], True),
    ],
)
def test_in_check_mode_a_unit_of_a_package_that_is_not_there_yet_is_no_change_of_ours(
    monkeypatch: pytest.MonkeyPatch, state: dict[str, str], files: list[str], comes: bool
) -> None:
    monkeypatch.setattr(module, "show", lambda *_: state)
    assert module.started_by_package(None, "example.service", [{"path": path} for path in files]) is comes
