"""Nodes on which nothing is installed: what looks at them changes nothing, and says what would be done."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import RunningLab, json_lines

pytestmark = pytest.mark.lab

# What a change would leave behind: packages, and files of /etc by name, size and time of change.
FINGERPRINT = (
    "dpkg-query -W | sha256sum; "
    "sudo find /etc /var/lib/dpkg -type f -printf '%p %s %T@\\n' | sort | sha256sum"
)


@pytest.fixture
def unchanged(lab: RunningLab) -> object:
    """Fails where a host is not as it was before the test."""
    hosts = ("gpu01", "gpu03", "registry01")
    before = {host: lab.ssh(host, FINGERPRINT) for host in hosts}
    yield lab
    assert {host: lab.ssh(host, FINGERPRINT) for host in hosts} == before


def test_preflight_finds_no_error(unchanged: RunningLab) -> None:
    done = unchanged.clusterctl("preflight", "--json")
    assert done.returncode == 0, done.stderr
    findings = [record for record in json_lines(done) if record["type"] == "finding"]
    assert {record["severity"] for record in findings} <= {"warning", "info"}


def test_a_plan_of_bare_nodes_completes_and_changes_nothing(unchanged: RunningLab) -> None:
    done = unchanged.clusterctl("plan", "--json")
    assert done.returncode == 0, done.stderr
    summary = json_lines(done)[-1]
    assert summary["failed"] == summary["unreachable"] == 0
    for host in ("gpu01", "gpu02", "gpu03", "registry01"):
        assert summary["hosts"][host]["changed"] > 0, host


@pytest.mark.drawn("bare nodes")
def test_plain_ansible_in_check_mode_completes(unchanged: RunningLab, repository: Path) -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "ansible",
            "playbook",
            "--check",
            "--diff",
            "-i",
            str(unchanged.cluster / "hosts.yml"),
            "playbooks/site.yml",
        ],
        cwd=repository,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        env={**os.environ, "ANSIBLE_NOCOLOR": "1"},
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    assert "nvidia-driver-cuda" in done.stdout
