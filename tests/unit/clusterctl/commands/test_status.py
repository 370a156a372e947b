"""`clusterctl status` says how secrets are kept, for people and for scripts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from clusterctl.cluster import quarantine
from clusterctl.cluster.directory import ClusterDirectory
from clusterctl.main import cli


def status(root: Path, *options: str) -> str:
    done = CliRunner().invoke(cli, ["-C", str(root), "status", *options], standalone_mode=False)
    assert done.exception is None, done.exception
    assert done.return_value == 0
    return done.stdout


def test_how_secrets_are_kept_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ANSIBLE_VAULT_PASSWORD_FILE", raising=False)
    monkeypatch.delenv("ANSIBLE_VAULT_IDENTITY_LIST", raising=False)
    (tmp_path / "hosts.yml").write_text("gpu_nodes:\n  hosts:\n    gpu01:\n      ansible_host: 192.0.2.1\n")
    directory = ClusterDirectory(tmp_path)
    directory.ensure_state()
    quarantine.put(directory, "gpu01", "test")
    plain = "plain files of mode 0600 (no vault password is configured)"
    assert f"secrets at rest: {plain}\n" in status(tmp_path)
    assert json.loads(status(tmp_path, "--json"))["secrets_at_rest"] == plain
    (tmp_path / "word").write_text("golden\n")
    monkeypatch.setenv("ANSIBLE_VAULT_PASSWORD_FILE", str(tmp_path / "word"))
    assert "secrets at rest: encrypted by Ansible Vault\n" in status(tmp_path)
