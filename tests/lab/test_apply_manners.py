"""Apply on hosts that other people use: cut off, refused, left out, with passwords, through a jump host."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

pytestmark = pytest.mark.lab

PROGRAM = Path(sys.executable).with_name("clusterctl")
NODE = "gpu02"
PASSWORD = "correct-horse-canary"


def lines(done: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in done.stdout.splitlines()]


class Apply:
    """`clusterctl apply --json` running next to the test."""

    def __init__(self, lab: Any, *arguments: str) -> None:
        from clusterctl.engine import process

        self._descendants = process.descendants
        command = [str(PROGRAM), "-C", str(lab.cluster), "apply", "--yes", "--json", *arguments]
        self._child = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True
        )

    def until(self, kind: str) -> dict[str, Any]:
        """Read on to the first event of that kind."""
        assert self._child.stdout is not None
        for line in self._child.stdout:
            record: dict[str, Any] = json.loads(line)
            if record["type"] == kind:
                return record
        pytest.fail(f"apply ended without {kind}: {self._child.communicate()[1][-2000:]}")

    def end(self, number: signal.Signals) -> tuple[int, str, float]:
        """Send a signal; exit code, messages, and the seconds until it and all below it were gone."""
        below = self._descendants(self._child.pid)
        begun = time.monotonic()
        self._child.send_signal(number)
        messages = self._child.communicate(timeout=60)[1]
        while any(Path(f"/proc/{pid}").exists() for pid in below):
            assert time.monotonic() - begun < 30, "ansible outlived clusterctl"
            time.sleep(0.05)
        return self._child.returncode, messages, time.monotonic() - begun


@pytest.fixture
def without_image(applied_lab: Any) -> Any:
    """The applied lab, with the training image gone from one node: there is a pull to be interrupted."""
    applied_lab.ssh(NODE, "sudo docker image prune --all --force")
    return applied_lab


def image_is_there(lab: Any) -> bool:
    (status,) = lines(lab.clusterctl("status", "--json", "--limit", NODE))
    return bool(status["image"])


@pytest.mark.drawn("interrupted and concurrent applies")
@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGKILL, -9), (signal.SIGTERM, 130), (signal.SIGINT, 130)]
)
def test_a_controller_that_ends_in_the_middle_finds_its_job_again(without_image, number, code):
    part = ("--only", "images", "--limit", NODE)
    running = Apply(without_image, *part)
    job = running.until("job_started")
    ended, messages, seconds = running.end(number)
    assert ended == code
    assert seconds < 15
    if number is not signal.SIGKILL:
        assert f"{NODE}: job {job['job_id']} continues by itself" in messages
        assert f"{NODE}: the lease is kept, and other runs refused: job {job['job_id']} continues" in messages
    again = without_image.clusterctl("apply", "--yes", "--json", *part)
    assert again.returncode == 0, again.stderr
    assert f"{NODE}: job {job['job_id']} of the earlier run succeeded" in again.stderr
    assert f"releasing the lease on {NODE}, left by run " in again.stderr, (
        "its work went on there: nobody else came in"
    )
    assert not [line for line in lines(again) if line["type"] == "job_started"], "no second pull was started"
    assert image_is_there(without_image)
    assert "earlier run" not in without_image.clusterctl("apply", "--yes", *part).stderr


@pytest.mark.drawn("interrupted and concurrent applies")
def test_a_second_operator_is_refused_while_the_first_works(applied_lab):
    running = Apply(applied_lab, "--only", "driver")
    running.until("play_started")
    refused = applied_lab.clusterctl("apply", "--yes")
    running.end(signal.SIGINT)
    applied_lab.done("apply", "--yes", "--only", "driver")  # releases what was interrupted in a task
    assert refused.returncode == 2
    assert "has been running apply on this cluster since" in refused.stderr


@pytest.mark.drawn("nodes left out")
def test_one_dead_node_stops_a_fleet_until_it_is_quarantined(faults):
    faults.inject(NODE, "node-down")
    stopped = faults.clusterctl("apply", "--yes", "--json")
    assert stopped.returncode == 1
    summary = lines(stopped)[-1]
    assert summary["hosts"][NODE]["unreachable"] is True
    assert (summary["changed"], summary["unreachable"]) == (0, 1)
    assert not [line for line in lines(stopped) if line["type"] == "wave_started"]
    faults.done("hosts", "quarantine", NODE, "--reason", "a broken fan")
    try:
        gone_on = faults.clusterctl("apply", "--yes", "--json", "--only", "driver")
        (row,) = lines(faults.clusterctl("status", "--json", "--limit", NODE))
    finally:
        faults.done("hosts", "release", NODE)
    assert gone_on.returncode == 0, gone_on.stderr
    assert f"{NODE}: skipped, in quarantine: a broken fan" in gone_on.stderr
    assert NODE not in lines(gone_on)[-1]["hosts"]
    assert row["quarantined"] == "a broken fan"


@pytest.mark.drawn("nodes left out")
def test_a_node_that_computes_is_left_alone_and_said(applied_lab):
    hold = "exec 3</dev/nvidia0; exec sleep 900"
    applied_lab.ssh(NODE, f"sudo systemd-run --unit=job sh -c '{hold}'")
    try:
        done = applied_lab.clusterctl("apply", "--yes", "--json", "--only", "driver")
    finally:
        applied_lab.ssh(NODE, "sudo systemctl stop job")
    assert done.returncode == 3, done.stderr
    assert f"{NODE}: skipped, busy: " in done.stderr
    touched = {host for line in lines(done) if line["type"] == "wave_started" for host in line["hosts"]}
    assert NODE not in touched
    assert touched
    assert lines(done)[-1]["hosts"][NODE]["ok"] == 0


@pytest.fixture
def sudo_with_password(applied_lab: Any, tmp_path: Path) -> Iterator[Path]:
    """One node's sudo asks for a password; the file that holds it."""
    secret = tmp_path / "password"
    secret.touch(mode=0o600)
    secret.write_text(PASSWORD + "\n")
    container = ["docker", "exec", "-i", applied_lab.container(NODE)]
    subprocess.run([*container, "chpasswd"], input=f"ops:{PASSWORD}\n", text=True, check=True)
    policy = "/etc/sudoers.d/ops"
    before = subprocess.run([*container, "cat", policy], capture_output=True, text=True, check=True).stdout
    rule = "ops ALL=(ALL) ALL\nDefaults:ops timestamp_timeout=0\n"
    subprocess.run([*container, "tee", policy], input=rule, text=True, check=True, capture_output=True)
    yield secret
    subprocess.run([*container, "tee", policy], input=before, text=True, check=True, capture_output=True)


@pytest.mark.drawn("other people's hosts")
def test_sudo_with_a_password_serves_and_the_password_is_written_nowhere(applied_lab, sudo_with_password):
    limit = ("--limit", NODE)
    refused = applied_lab.clusterctl("preflight", "--json", *limit)
    assert refused.returncode == 1
    assert [line for line in lines(refused) if line["type"] == "finding" and line["subject"] == "sudo"]
    secret = ("--become-pass-file", str(sudo_with_password))
    done = applied_lab.clusterctl("apply", "--yes", "--json", "--only", "driver", *limit, *secret)
    assert done.returncode == 0, done.stderr
    assert applied_lab.clusterctl("status", "--json", *limit, *secret).returncode == 0
    state = applied_lab.cluster / ".clusterctl"
    found = [path for path in state.rglob("*") if path.is_file() and PASSWORD.encode() in path.read_bytes()]
    assert found == []
    assert PASSWORD not in done.stdout + done.stderr


@pytest.mark.drawn("other people's hosts")
def test_hosts_behind_a_jump_host_are_reached_with_keys_checked(applied_lab, tmp_path):
    cluster = applied_lab.cluster
    config = tmp_path / "ssh_config"
    settings = cluster / "group_vars" / "gpu_nodes.yml"
    before = settings.read_text()
    groups = yaml.safe_load((cluster / "hosts.yml").read_text())["all"]["children"]
    registry = groups["registry"]["hosts"]["registry01"]["ansible_host"]
    known = f"UserKnownHostsFile {cluster}/.clusterctl/known_hosts\n  StrictHostKeyChecking yes\n"
    config.write_text(
        f"Host jump\n  HostName {registry}\n  User ops\n  IdentityFile {cluster}/ssh/id_ed25519\n  {known}"
        f"Host * !jump\n  ProxyJump jump\n  {known}"
    )
    settings.write_text(before + f"\nansible_ssh_common_args: -F {config}\n")
    try:
        done = applied_lab.clusterctl("apply", "--yes", "--json", "--only", "driver")
    finally:
        settings.write_text(before)
    assert done.returncode == 0, done.stderr
    assert lines(done)[-1]["changed"] == 0
