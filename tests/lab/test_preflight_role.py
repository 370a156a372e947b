"""Preflight says everything at once, also on a host where it may not become root."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.lab

NODE = "gpu02"
PASSWORD = "correct horse"


@pytest.fixture
def preflight(faults: Any, repository: Path) -> Any:
    """Plays preflight on one node with extra variables: the exit code, and what it printed on one line."""

    def play(**variables: object) -> tuple[int, str]:
        argv = [
            str(Path(sys.executable).with_name("ansible-playbook")),
            "-i",
            str(faults.cluster / "hosts.yml"),
            "playbooks/preflight.yml",
            "--limit",
            NODE,
            "-e",
            json.dumps(variables),
        ]
        done = subprocess.run(argv, cwd=repository, capture_output=True, text=True, timeout=300, check=False)
        return done.returncode, " ".join((done.stdout + done.stderr).split())

    return play


@pytest.fixture
def sudo_wants_a_password(faults: Any) -> Iterator[None]:
    """The log-in user of the node has a password, and sudo asks for it."""
    faults.ssh(NODE, f"echo 'ops:{PASSWORD}' | sudo chpasswd")
    faults.ssh(NODE, "sudo sed -i 's/NOPASSWD: *//' /etc/sudoers.d/ops")
    yield
    faults.ssh(
        NODE, f"echo '{PASSWORD}' | sudo -S sh -c 'echo \"ops ALL=(ALL) NOPASSWD: ALL\" > /etc/sudoers.d/ops'"
    )


@pytest.mark.drawn("preflight")
def test_every_trouble_of_a_node_is_said_at_once(faults: Any, preflight: Any) -> None:
    faults.inject(NODE, "gpu-missing", "--gpu", "3")
    faults.ssh(NODE, "sudo mkdir -p /snap/docker")
    trouble = {
        "preflight_package_sources": ["http://depot/nothing/Release"],
        "preflight_dns_names": ["no-such-host.invalid"],
        "preflight_min_free_gb": 10**6,
        "preflight_max_clock_skew_s": 1e-9,
    }
    try:
        code, printed = preflight(**trouble)
        refused, reason = preflight(**trouble, preflight_report_only=False)
    finally:
        faults.ssh(NODE, "sudo rmdir /snap/docker /snap")
    assert code == 0
    for words in (
        "7 on the PCI bus",
        "installed as a snap",
        "http://depot/nothing/Release: HTTP 404",
        "no-such-host.invalid is unknown",
        "GB free on /",
        "the controller ->",
    ):
        assert words in printed
    assert refused != 0
    assert "GPUs: 7 on the PCI bus (expected: 8)" in reason


def test_a_good_node_has_no_errors(preflight: Any) -> None:
    code, printed = preflight(preflight_report_only=False)
    assert code == 0
    assert "error " not in printed


@pytest.mark.drawn("preflight")
@pytest.mark.usefixtures("sudo_wants_a_password")
def test_sudo_is_one_finding_among_others_and_takes_a_password(preflight: Any) -> None:
    code, printed = preflight(preflight_dns_names=["no-such-host.invalid"])
    assert code == 0
    assert "error sudo Missing sudo password" in printed
    assert "no-such-host.invalid is unknown" in printed

    code, printed = preflight(ansible_become_password=PASSWORD)
    assert code == 0
    assert "error sudo" not in printed
