"""What the tests of the role harbor share: its plays by Ansible itself, all its places in a directory."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml
from ansible_collections.clusterctl.cluster.plugins.module_utils import harbor_kept as kept
from ansible_collections.clusterctl.cluster.plugins.module_utils.node_files import sha256_of
from tests.support.tree import ROOT

PLAY = """
- hosts: localhost
  gather_facts: false
  vars_files: [{role}/defaults/main.yml, {role}/vars/main.yml, {extra}]
  tasks:
    - ansible.builtin.template: {{src: {role}/templates/harbor.yml.j2, dest: {out}, mode: "0600"}}
"""


def render(tmp_path: Path, steps: str = PLAY, **settings: Any) -> tuple[str, dict[str, Any]]:
    """harbor.yml as the role writes it: its text, and what it says."""
    state = tmp_path / "state/secrets"
    state.mkdir(parents=True, exist_ok=True)
    for name in ("harbor-admin", "harbor-database"):
        (state / f"{name}.password").write_text("Kept1234\n", encoding="utf-8")
    extra, out, play = (tmp_path / name for name in ("extra.json", "harbor.yml", "play.yml"))
    base = {"harbor_hostname": "registry01", "harbor_address": "10.0.0.5",
            "harbor_controller_dir": str(tmp_path / "state")}  # fmt: skip
    extra.write_text(json.dumps({**base, **settings}), encoding="utf-8")
    play.write_text(steps.format(role=ROOT / "roles/harbor", extra=extra, out=out), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "ansible", "playbook", "-i", "localhost,", "-c", "local",
         "-e", f"ansible_python_interpreter={sys.executable}", str(play)],
        env={**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg")},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    text = out.read_text(encoding="utf-8")
    return text, yaml.safe_load(text)


def play_registry(
    tmp_path: Path, playbook: str, check: bool = True, **settings: Any
) -> subprocess.CompletedProcess[str]:
    """A playbook of the registry's host, with all its places in a directory."""
    inventory = tmp_path / "hosts.yml"
    host = {
        "ansible_connection": "local",
        "ansible_python_interpreter": sys.executable,
        "ansible_become": False,
    }
    declared = {
        "registry_kind": "harbor", "registry_address": "10.0.0.5", "harbor_version": "v2.15.2",
        "registry_controller_dir": str(tmp_path / "state"), "harbor_directory": str(tmp_path / "opt"),
        "harbor_data_dir": str(tmp_path / "data"), "harbor_backup_dir": str(tmp_path / "backups"),
        "harbor_installer_url": "http://nowhere.invalid/h.tgz", "harbor_installer_sha256": "0" * 64,
        "harbor_manage_engine": False, "harbor_min_free_gb": 0, **settings,
    }  # fmt: skip
    groups = {"registry": {"hosts": {"registry01": host}, "vars": declared}}
    inventory.write_text(yaml.safe_dump({"all": {"children": groups}}), encoding="utf-8")
    asked = ["--check", "--diff"] if check else []
    return subprocess.run(
        [sys.executable, "-m", "ansible", "playbook", *asked, "-i", str(inventory),
         "-e", "ansible_become=false", str(ROOT / "playbooks" / playbook)],
        env={**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg")},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


def said(done: subprocess.CompletedProcess[str]) -> str:
    """On one line, whatever Ansible wrapped."""
    return " ".join(done.stdout.split())


def installed(tmp_path: Path, version: str, **more: Any) -> Path:
    """A Harbor on this host, by its record; its release's directory."""
    release = tmp_path / f"opt/releases/{version}/harbor"
    release.mkdir(parents=True)
    (release / "harbor.yml").write_text("hostname: registry01\n", encoding="utf-8")
    record = {"version": version, "release": str(release), "state": "installed", "settings": "0" * 64,
              "data_dir": str(tmp_path / "data"), "trivy": False, **more}  # fmt: skip
    (tmp_path / "opt/installed.json").write_text(json.dumps(record), encoding="utf-8")
    return release


BACKUP = "20260101T000000Z"
PORTS = {"registry_port": 61443, "harbor_http_port": 61080, "harbor_metrics_port": 61090}


def backed_up(tmp_path: Path) -> Path:
    """A whole backup in its place; what Harbor encrypts with, in it."""
    backup = tmp_path / "backups" / BACKUP
    key = backup / kept.DATA / kept.KEY_FILE
    key.parent.mkdir(parents=True)
    key.write_text("0123456789abcdef", encoding="utf-8")
    owned = kept.Kept(kept.KEY_FILE, 16, sha256_of(key), 0o600, os.getuid(), os.getgid())
    kept.write_files(backup, [owned])
    (backup / kept.DUMP).write_bytes(gzip.compress(kept.DUMPED))
    kept.write_manifest(backup, {"version": "v2.15.2", "database": "own"})
    return key
