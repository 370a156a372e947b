"""The drift probe against plain Ansible, which changes no host that the probe reports as unchanged.

Each host of the lab is brought into a state that a seed draws. The probe inspects all of them, then
ansible-playbook applies the site to all of them, and has the last word.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from typing import Any

import pytest

from .conftest import REPOSITORY, RunningLab, json_lines
from .drift_states import BACKUP, draw_state
from .inspecting import inspect, play_site
from .on_node import inside

pytestmark = pytest.mark.lab

HOSTS = {"gpu01": "gpu", "gpu02": "gpu", "gpu03": "gpu", "registry01": "registry"}
ROUNDS = 25
LOG = REPOSITORY / ".test-logs" / "drift-differential.jsonl"


@dataclass
class Round:
    """Hosts in their states, and what was found of each."""

    missed: list[str] = field(default_factory=list)
    needless: list[str] = field(default_factory=list)
    agreed: list[str] = field(default_factory=list)


@pytest.fixture(scope="module")
def recorded(applied_lab: RunningLab) -> RunningLab:
    """The applied lab, with a record of each host."""
    record_all(applied_lab)
    return applied_lab


def record_all(lab: RunningLab) -> None:
    """Applies until each host has a record: the apply that changes a host may not record it."""
    for _ in range(3):
        done = lab.clusterctl("apply", "--yes", "--json", "--canary", "0")
        assert done.returncode == 0, done.stderr
        if set(json_lines(done)[-1].get("probed", ())) == set(HOSTS):
            return
    pytest.fail(f"not every host is recorded: {done.stderr}")


def compare(lab: RunningLab, seed: str) -> Round:
    """Brings each host into the state that the seed draws, and compares the two."""
    states = {host: draw_state(role, f"{seed}: {host}") for host, role in HOSTS.items()}
    for host, state in states.items():
        inside(lab, f"rm -rf {BACKUP}; {state.command}", host=host, check=not state.double)
    report = inspect(lab, list(HOSTS))
    played = play_site(lab)
    found = Round()
    for host, state in states.items():
        by_ansible = played[host].changed or (["a task failed"] if played[host].failed else [])
        line = f"{host}: {state.name}: probe {list(report.differing.get(host, ()))}, Ansible {by_ansible}"
        quiet, alone = host in report.quiet, played[host].left_it_alone
        (found.agreed if quiet is alone else found.missed if quiet else found.needless).append(line)
    LOG.parent.mkdir(exist_ok=True)
    with LOG.open("a", encoding="utf-8") as stream:
        stream.write(json.dumps({"seed": seed, **vars(found)}) + "\n")
    for host, state in states.items():
        inside(lab, state.undo, host=host, check=False)
    if set(inspect(lab, list(HOSTS)).quiet) != set(HOSTS):
        record_all(lab)
    return found


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("number", range(ROUNDS))
def test_ansible_changes_no_host_that_the_probe_reports_as_unchanged(recorded: Any, number: int) -> None:
    assert compare(recorded, f"round {number}").missed == []


@pytest.mark.drawn("the site again")
def test_the_states_of_the_day_are_not_missed(recorded: Any) -> None:
    assert compare(recorded, os.environ["CLUSTERCTL_FAULT_SEED"]).missed == []
