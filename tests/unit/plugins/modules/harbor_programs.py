"""Harbor's modules as Ansible runs them, and the programs of a host that they ask."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.clusterctl.cluster.plugins.module_utils import harbor_host
from ansible_collections.clusterctl.cluster.plugins.modules import harbor_installer
from tests.support.tree import ROOT, UTILS

PLUGINS = Path(harbor_installer.__file__).parents[1]
START = (
    f"import os, runpy, sys; sys.path.insert(0, {str(ROOT)!r});"
    f"from {UTILS} import harbor_certificate as c; c.OWNER = (os.getuid(), os.getgid());"
    "runpy.run_path(sys.argv.pop(), run_name='__main__')"
)
BACKUP = "20260101T000000Z"
INSTALL = """#!/bin/bash
cd "$(dirname "$0")"
echo "install $*" >>../../../../asked
touch docker-compose.yml
mkdir -p ../../../../data/secret/cert
cp ../../../../tls.crt ../../../../data/secret/cert/server.crt
cp ../../../../tls.key ../../../../data/secret/cert/server.key
chmod 600 ../../../../data/secret/cert/server.*
"""


def play(name: str, *, check: bool = False, **params: Any) -> dict[str, Any]:
    """A module as Ansible runs it: a process, arguments on standard input, JSON out."""
    arguments = {**params, "_ansible_check_mode": check}
    done = subprocess.run(
        [sys.executable, "-c", START, str(PLUGINS / "modules" / f"{name}.py")],
        input=json.dumps({"ANSIBLE_MODULE_ARGS": arguments}),
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, install: str) -> dict[str, Any]:
    """A host where docker and systemctl are there and write down what they are asked."""
    log, bin_ = tmp_path / "asked", tmp_path / "bin"
    bin_.mkdir()
    for name in ("docker", "systemctl"):
        (bin_ / name).write_text(f'#!/bin/sh\necho "{name} $*" >>{log}\n', encoding="utf-8")
        (bin_ / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{bin_}:/usr/bin:/bin")
    release = tmp_path / "opt/releases/v2.15.2/harbor"
    release.mkdir(parents=True)
    (release / "install.sh").write_text(install, encoding="utf-8")
    (release / "install.sh").chmod(0o755)
    (release / "harbor.yml").write_text("log: {}\n", encoding="utf-8")
    for name in ("tls.crt", "tls.key"):
        (tmp_path / name).write_text(name, encoding="utf-8")
    return {
        "directory": str(tmp_path / "opt"), "release": str(release), "version": "v2.15.2",
        "data_dir": str(tmp_path / "data"),
        "certificate": str(tmp_path / "tls.crt"), "key": str(tmp_path / "tls.key"),
        "hostname": "registry.example.org", "port": 1,
    }  # fmt: skip


def lines(tmp_path: Path) -> list[str]:
    """What was asked of the programs, in order."""
    path = tmp_path / "asked"
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


def composes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str = "") -> None:
    """A Compose that writes down what it is asked; ``end`` is what it does then."""
    compose = tmp_path / "bin/compose"
    script = f'#!/bin/sh\necho "compose $*" >>{tmp_path}/asked\n{end}\n'
    compose.write_text(script, encoding="utf-8")
    compose.chmod(0o755)
    text = START.replace(
        "runpy.run_path", f"from {UTILS} import harbor_host as h; h.COMPOSE={str(compose)!r}; runpy.run_path"
    )
    monkeypatch.setattr(sys.modules[__name__], "START", text)


def older(tmp_path: Path, wanted: dict[str, Any]) -> dict[str, Any]:
    """v2.14.3 installed next to what is wanted; its record."""
    old = tmp_path / "opt/releases/v2.14.3/harbor"
    old.mkdir(parents=True)
    (old / "docker-compose.yml").touch()
    (old / "harbor.yml").write_text("_version: 2.14.0\nharbor_admin_password: s3cr3t\n", encoding="utf-8")
    record = {"version": "v2.14.3", "release": str(old), "state": "installed"}
    harbor_host.write_record(wanted["directory"], record)
    (tmp_path / "units").mkdir()
    (tmp_path / "units/harbor.service").write_text("the old one\n", encoding="utf-8")
    wanted |= {
        "unit": "the new one\n",
        "unit_directory": str(tmp_path / "units"),
        "backup": BACKUP,
    }
    return record


def docker_does(tmp_path: Path, script: str) -> None:
    """What docker does, after it wrote down what it is asked."""
    text = f'#!/bin/sh\necho "docker $*" >>{tmp_path}/asked\n{script}\n'
    (tmp_path / "bin/docker").write_text(text, encoding="utf-8")
