"""What the drift probe reports of hosts of a lab, as apply uses it; and what plain Ansible does to them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field

from clusterctl.cluster import inventory
from clusterctl.cluster.directory import ClusterDirectory
from clusterctl.cluster.ssh import OpenSshTransport
from clusterctl.rollout.drift.records import load_record
from clusterctl.rollout.drift.replay import replay_calls
from clusterctl.rollout.drift.report import DriftReport, build_report

from .conftest import REPOSITORY, RunningLab

PLAYBOOK_S = 900
RECAP = re.compile(r"^(\S+)\s+: ok=(\d+)\s+changed=(\d+)\s+unreachable=(\d+)\s+failed=(\d+)", re.MULTILINE)


def inspect(lab: RunningLab, names: Sequence[str]) -> DriftReport:
    """The report on hosts, all of which must have a record."""
    directory = ClusterDirectory(lab.cluster)
    inventory.forget_cached()
    records = {name: record for name in names if (record := load_record(directory, name))}
    assert set(records) == set(names), "a host has no record"
    calls = {name: record.calls for name, record in records.items()}
    with OpenSshTransport(directory, inventory.load(directory).hosts) as transport:
        return build_report(records, *replay_calls(calls, transport))


@dataclass
class Played:
    """What Ansible did to one host: the tasks that changed it, and whether one of them failed."""

    changed: list[str] = field(default_factory=list)
    failed: bool = False

    @property
    def left_it_alone(self) -> bool:
        """Whether there was nothing to do."""
        return not (self.changed or self.failed)


def play_site(lab: RunningLab) -> dict[str, Played]:
    """Runs playbooks/site.yml with plain ansible-playbook on every host; what it did to each."""
    command = ["-m", "ansible", "playbook", "-i", str(lab.cluster / "hosts.yml"), "playbooks/site.yml"]
    done = subprocess.run(
        [sys.executable, *command], cwd=REPOSITORY, capture_output=True, text=True, timeout=PLAYBOOK_S,
        check=False, env={**os.environ, "ANSIBLE_NOCOLOR": "1"},
    )  # fmt: skip
    played, task = {}, ""
    for name, _, changed, unreachable, failed in RECAP.findall(done.stdout):
        played[name] = Played(["a task"] * int(changed), int(unreachable) + int(failed) > 0)
    assert played, done.stdout[-3000:] + done.stderr[-3000:]
    tasks: dict[str, list[str]] = {name: [] for name in played}
    for line in done.stdout.splitlines():
        if line.startswith("TASK ["):
            task = line.removeprefix("TASK [").partition("]")[0]
        elif line.startswith("changed: ["):
            tasks[line.removeprefix("changed: [").partition("]")[0].split(" ")[0]].append(task)
    for name, found in tasks.items():
        # A task of a loop says it once an item, the recap once.
        played[name].changed = list(dict.fromkeys(found)) if played[name].changed else []
    return played
