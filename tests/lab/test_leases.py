"""Two controllers, each with a copy of the inventory, on the same nodes at the same time."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from clusterctl.cluster.directory import ClusterDirectory
from clusterctl.engine.process import descendants
from clusterctl.runs.store import Run, RunStore

from .conftest import PROGRAM, RunningLab, json_lines, run_clusterctl

pytestmark = pytest.mark.lab

NODES = ("gpu01", "gpu02")
PART = ("--limit", ",".join(NODES), "--only", "runtime")
LEASE = "/root/.clusterctl/lease.json"
WAIT_S = 900


@dataclass
class Controller:
    """A machine of an operator: a cluster directory, and what runs from it."""

    directory: Path

    def clusterctl(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """To its end."""
        return run_clusterctl("-C", str(self.directory), *arguments)

    def applies(self, *part: str) -> subprocess.Popen[str]:
        """Next to the test."""
        return subprocess.Popen(
            [str(PROGRAM), "-C", str(self.directory), "apply", "--yes", "--json", *(part or PART)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True,
        )  # fmt: skip

    @property
    def last_run(self) -> Run:
        """Its newest run."""
        return RunStore(ClusterDirectory(self.directory)).get("last")


@pytest.fixture
def controllers(applied_lab: RunningLab, tmp_path: Path) -> Iterator[tuple[Controller, Controller]]:
    """The lab's own, and one with a copy of its cluster directory; afterwards no node is held."""
    copy = tmp_path / "copy"
    shutil.copytree(applied_lab.cluster, copy, symlinks=True)
    both = Controller(applied_lab.cluster), Controller(copy)
    yield both
    for node in NODES:
        applied_lab.ssh(node, f"sudo rm -f {LEASE}")


def lease_on(lab: RunningLab, node: str) -> dict[str, Any] | None:
    text = lab.ssh(node, f"sudo cat {LEASE} || true")
    return json.loads(text) if text else None


def until_it_changes(apply: subprocess.Popen[str]) -> None:
    """Read on to the first task of the first wave."""
    assert apply.stdout is not None
    begun = False
    for line in apply.stdout:
        kind = json.loads(line)["type"]
        begun = begun or kind == "wave_started"
        if begun and kind == "task_started":
            return
    pytest.fail(f"apply completed: {apply.communicate()[1][-2000:]}")


def until_it_says(apply: subprocess.Popen[str], kind: str) -> dict[str, Any]:
    """Read on to the first event of that kind."""
    assert apply.stdout is not None
    for line in apply.stdout:
        record: dict[str, Any] = json.loads(line)
        if record["type"] == kind:
            return record
    pytest.fail(f"apply completed: {apply.communicate()[1][-2000:]}")


def reboot(lab: RunningLab, node: str) -> None:
    """Restart a node, and wait until it answers as another boot."""
    ask = "cat /proc/sys/kernel/random/boot_id"
    before = lab.ssh(node, ask)
    lab.ssh(node, "sudo systemctl reboot", check=False)
    deadline = time.monotonic() + WAIT_S
    while lab.ssh(node, ask, check=False) in ("", before):
        assert time.monotonic() < deadline, f"{node} did not come back"
        time.sleep(0.5)


def refused(controller: Controller, holder: Run, *part: str) -> bool:
    """Whether an apply from there is refused with the holder's name, and has touched nothing."""
    done = controller.clusterctl("apply", "--yes", "--json", *(part or PART))
    assert done.returncode == 2, done.stderr
    said = f"run {holder.id} (apply) of {holder.operator} on {holder.controller}, since {holder.started}"
    assert said in done.stderr
    assert f"clusterctl leases release {holder.id}" in done.stderr
    return not [line for line in json_lines(done) if line["type"] == "wave_started"]


@pytest.mark.drawn("interrupted and concurrent applies")
def test_of_two_who_apply_at_once_one_goes_on_and_the_other_touches_nothing(applied_lab, controllers):
    for _ in range(3):  # on a slow machine one may complete before the other has looked
        applies = [controller.applies() for controller in controllers]
        ended = [apply.communicate(timeout=WAIT_S) for apply in applies]
        codes = [apply.returncode for apply in applies]
        assert 0 in codes, ended
        if codes != [0, 0]:
            break
    assert sorted(codes) == [0, 2], ended
    loser = codes.index(2)
    winner = controllers[1 - loser].last_run
    assert f"run {winner.id} (apply) of {winner.operator} on {winner.controller}" in ended[loser][1]
    events = [json.loads(line)["type"] for line in ended[loser][0].splitlines()]
    assert "wave_started" not in events
    assert [lease_on(applied_lab, node) for node in NODES] == [None, None]


@pytest.mark.drawn("interrupted and concurrent applies")
def test_a_node_with_a_job_of_an_interrupted_run_is_nobody_elses(applied_lab, controllers):
    first, second = controllers
    part = ("--limit", "gpu02", "--only", "images")
    applied_lab.ssh("gpu02", "sudo docker image prune --all --force")
    apply = first.applies(*part)
    job = until_it_says(apply, "job_started")["job_id"]
    # A pattern that its own command line does not fit.
    frozen = f"sudo pkill --signal STOP --full '[j]{job.partition('.')[0][1:]}'"
    applied_lab.ssh("gpu02", frozen)
    apply.send_signal(signal.SIGINT)
    messages = apply.communicate(timeout=WAIT_S)[1]
    holder = first.last_run
    try:
        assert f"gpu02: the lease is kept, and other runs refused: job {job} continues" in messages
        assert refused(second, holder, "--limit", "gpu02", "--only", "runtime")
        kept = second.clusterctl("leases", "release", holder.id, "--yes", "--json")
        assert (kept.returncode, json_lines(kept)[-1]["left"]) == (
            3,
            {"gpu02": f"job {job} still runs on it"},
        )
        lease = lease_on(applied_lab, "gpu02")
        assert lease is not None
        assert lease["run"] == holder.id
        applied_lab.ssh("gpu02", f"sudo mv {LEASE} {LEASE}.aside")
        beside = second.clusterctl("apply", "--yes", "--limit", "gpu02", "--only", "runtime", "--full")
        applied_lab.ssh("gpu02", f"sudo mv {LEASE}.aside {LEASE}")
        assert (beside.returncode, "engine.job-left" in beside.stderr) == (2, True), beside.stderr
    finally:
        applied_lab.ssh("gpu02", frozen.replace("STOP", "CONT"))
    done = first.clusterctl("apply", "--yes", "--json", *part)
    assert done.returncode == 0, done.stderr
    assert f"gpu02: job {job} of the earlier run succeeded" in done.stderr
    assert lease_on(applied_lab, "gpu02") is None


@pytest.mark.drawn("interrupted and concurrent applies")
def test_what_a_dead_controller_holds_is_freed_by_unlock_alone(applied_lab, controllers):
    first, second = controllers
    # All of the site on purpose: a short one may be at its end before we have looked at what it holds.
    apply = first.applies("--full", "--limit", ",".join(NODES))
    until_it_changes(apply)
    holder = first.last_run
    leases = [lease_on(applied_lab, node) for node in NODES]
    assert [lease and lease["run"] for lease in leases] == [holder.id] * 2
    assert applied_lab.ssh("gpu01", f"sudo stat -c %a:%U {LEASE}") == "600:root"
    alive = second.clusterctl("leases", "release", holder.id, "--yes")
    assert (alive.returncode, "is still at work" in alive.stderr) == (2, True), alive.stderr
    below = descendants(apply.pid)
    apply.send_signal(signal.SIGKILL)
    apply.communicate(timeout=WAIT_S)
    deadline = time.monotonic() + WAIT_S
    while any(Path(f"/proc/{pid}").exists() for pid in below):
        assert time.monotonic() < deadline, "ansible outlived clusterctl"
        time.sleep(0.1)
    reboot(applied_lab, "gpu01")
    assert lease_on(applied_lab, "gpu01") == leases[0], "it survives a reboot"
    assert refused(second, holder)
    rows = json_lines(second.clusterctl("status", "--json", "--limit", ",".join(NODES)))
    assert [row["lease"]["run"] for row in rows] == [holder.id] * 2
    assert all(f"held by run {holder.id}" in row["busy"] for row in rows), "validate leaves them alone"
    freed = second.clusterctl("leases", "release", holder.id, "--yes")
    assert freed.returncode == 0, freed.stderr
    assert f"of {holder.operator} on {holder.controller}, since {holder.started}, holds" in freed.stderr
    done = second.clusterctl("apply", "--yes", "--json", *PART)
    assert done.returncode == 0, done.stderr
    assert [lease_on(applied_lab, node) for node in NODES] == [None, None]
