"""The lease on a node through real ansible-playbook."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from ansible_collections.clusterctl.cluster.plugins.module_utils import job_files, lease_file
from tests.unit.clusterctl.engine.test_lease import HOSTS, OURS, THEIRS

from clusterctl.engine.lease_nodes import LeaseNodes
from clusterctl.engine.lease_protocol import (
    Acquire,
    LeaseAnswer,
    RecordHolders,
    Release,
    acquire_steps,
    run_steps,
)


@pytest.fixture
def nodes(tmp_path: Path) -> LeaseNodes:
    """Three nodes on this machine, each with a lease of its own, reached by Ansible."""
    hosts = {host: {"clusterctl_lease_path": str(tmp_path / host / "lease.json")} for host in reversed(HOSTS)}
    common = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    inventory = {"all": {"vars": {**common, "clusterctl_become": False}, "hosts": hosts}}
    (tmp_path / "hosts.yml").write_text(json.dumps(inventory))
    (tmp_path / "run").mkdir()
    return LeaseNodes(tmp_path / "hosts.yml", tmp_path / "run")


def holders(nodes: LeaseNodes) -> list[str]:
    """Whose nonce is on each node."""
    path = nodes.inventory.parent
    found = [lease_file.read(path / host / "lease.json") for host in HOSTS]
    return [str(one.get("nonce")) if one else "" for one in found]


@pytest.mark.drawn("leases by a playbook")
def test_one_playbook_takes_all_nodes_or_none(nodes: LeaseNodes) -> None:
    def do(step):
        return {} if isinstance(step, RecordHolders) else nodes(step)

    assert run_steps(acquire_steps(OURS, HOSTS), do).held
    assert holders(nodes) == ["n1", "n1", "n1"]
    refused = run_steps(acquire_steps(THEIRS, HOSTS), do)
    assert (refused.refused, refused.failed, refused.left) == ({"gpu01": OURS}, {}, {})
    assert holders(nodes) == ["n1", "n1", "n1"]
    assert {host: said.holder for host, said in nodes.show(HOSTS).items()} == dict.fromkeys(HOSTS, OURS)
    assert nodes(Release(OURS, ("gpu01", "gpu02"))) == dict.fromkeys(
        ("gpu01", "gpu02"), LeaseAnswer(freed=True)
    )
    refused = run_steps(acquire_steps(THEIRS, HOSTS), do)
    assert refused.refused == {"gpu03": OURS}
    assert holders(nodes) == ["", "", "n1"], "what it had was released"


@pytest.mark.drawn("leases by a playbook")
def test_who_is_refused_on_the_first_node_asks_no_other(nodes: LeaseNodes) -> None:
    lease_file.take(nodes.inventory.parent / "gpu01" / "lease.json", THEIRS.as_record())
    answers = nodes(Acquire(OURS, (("gpu01",), ("gpu02", "gpu03"))))
    assert answers == {"gpu01": LeaseAnswer(holder=THEIRS)}
    assert holders(nodes) == ["n2", "", ""]


@pytest.mark.drawn("leases by a playbook")
def test_what_a_node_wrote_into_its_lease_is_text_to_us(nodes: LeaseNodes) -> None:
    """Root on a node chooses every word of it; a controller that frees the lease runs none of them."""
    pwned = nodes.inventory.parent / "pwned"
    pipe = f"{{{{ lookup('ansible.builtin.pipe', 'touch {pwned}') }}}}"
    hostile = replace(OURS, who=pipe, where=pipe, nonce=pipe, directory=pipe)
    (nodes.inventory.parent / "gpu01").mkdir()
    (nodes.inventory.parent / "gpu01" / "lease.json").write_text(json.dumps(hostile.as_record()))
    holder = nodes.show(("gpu01",))["gpu01"].holder
    assert holder == hostile
    assert nodes(Release(holder, ("gpu01",))) == {"gpu01": LeaseAnswer(freed=True)}
    assert nodes(Acquire(holder, (("gpu01",),)))["gpu01"].taken
    assert not pwned.exists()


@pytest.mark.drawn("leases by a playbook")
def test_an_answer_of_the_first_node_that_is_no_yes_or_no_fails_that_node_alone(nodes: LeaseNodes) -> None:
    """All others go by its answer: evaluated in their tasks, it would fail them."""
    place = nodes.inventory.parent
    lease = {"taken": True, "freed": False, "holder": OURS.as_record(), "jobs": []}
    said = {**lease, "taken": "yes", "changed": True, "clusterctl": {"facts": {"lease": lease}}}
    (place / "said.json").write_text(json.dumps(said))
    (place / "python").write_text(f"#!/bin/sh\nexec cat {place}/said.json\n")
    (place / "python").chmod(0o755)
    inventory = json.loads(nodes.inventory.read_text())
    inventory["all"]["hosts"]["gpu01"]["ansible_python_interpreter"] = str(place / "python")
    nodes.inventory.write_text(json.dumps(inventory))
    answers = nodes(Acquire(OURS, (("gpu01",), ("gpu02", "gpu03"))))
    assert [host for host, answer in answers.items() if answer.failed] == ["gpu01"]
    assert holders(nodes) == ["", "", ""]


@pytest.fixture
def job(tmp_path: Path) -> Iterator[str]:
    """A job that Ansible started on this machine, and that runs until the test is over."""
    book = [{"hosts": "all", "gather_facts": False, "tasks": [
        {"ansible.builtin.command": {"argv": ["sleep", "300"]}, "async": 300, "poll": 0, "register": "job"},
        {"ansible.builtin.copy": {"content": "{{ job.ansible_job_id }}", "dest": str(tmp_path / "job")}},
    ]}]  # fmt: skip
    (tmp_path / "job.yml").write_text(json.dumps(book))
    subprocess.run(
        [Path(sys.executable).with_name("ansible-playbook"), "-i", "localhost,", "-c", "local",
         "-e", f"ansible_async_dir={tmp_path / 'async'} ansible_python_interpreter={sys.executable}",
         tmp_path / "job.yml"],
        check=True, capture_output=True,
    )  # fmt: skip
    yield (tmp_path / "job").read_text()
    number = (tmp_path / "job").read_text().partition(".")[0].encode()
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and number in (entry / "cmdline").read_bytes().split(b"\0"):
                os.killpg(os.getpgid(int(entry.name)), signal.SIGKILL)


@pytest.mark.drawn("leases by a playbook")
def test_a_node_on_which_a_job_of_a_run_lives_is_nobodys_to_take(
    nodes: LeaseNodes, tmp_path: Path, job: str
) -> None:
    """The lease of the run that started it may be long gone: an unlock, or a version that gave all back."""
    nodes = replace(nodes, extra_vars={"ansible_async_dir": str(tmp_path / "async")})
    taken = run_steps(
        acquire_steps(OURS, ("gpu01",)), lambda step: {} if isinstance(step, RecordHolders) else nodes(step)
    )
    assert (taken.held, taken.working, taken.left) == (False, {"gpu01": (job,)}, {})
    assert holders(nodes) == ["", "", ""]
    lease_file.take(tmp_path / "gpu02" / "lease.json", OURS.as_record())
    assert nodes.show(("gpu02",)) == {"gpu02": LeaseAnswer(holder=OURS, jobs=(job,))}
    assert nodes(Acquire(OURS, (("gpu02",),)))["gpu02"].taken, (
        "who has started it holds the node, and continues"
    )
    assert nodes(Acquire(THEIRS, (("gpu02",),))) == {"gpu02": LeaseAnswer(holder=OURS)}


@pytest.mark.needs("root")
@pytest.mark.parametrize("owner", [0, 10_000])
def test_the_words_of_another_users_process_keep_no_job_running(tmp_path: Path, owner: int) -> None:
    """It forbids to be dumped: on Linux its directory in /proc is root's then."""
    (tmp_path / "j123456789012.4711").write_text('{"started": 1, "finished": 0}')
    program = (
        f"import ctypes, os, sys; os.setgid({owner}); os.setuid({owner});"
        "ctypes.CDLL(None).prctl(4, 0, 0, 0, 0); print(flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, "async_wrapper", "j123456789012"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ) as process:  # fmt: skip
        assert process.stdout
        process.stdout.readline()
        assert bool(job_files.running(tmp_path)) == (owner == 0)
        process.communicate()


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "7"])
def test_a_jobs_file_that_cannot_be_read_stops_nobody_where_no_process_is_its(
    tmp_path: Path, text: str
) -> None:
    (tmp_path / "j1.2").write_text(text)
    assert job_files.running(tmp_path) == []
    assert job_files.running(tmp_path / "none") == []
    assert job_files.outcome("j1.2", tmp_path, {"j1"})["state"] == "running"


@pytest.mark.drawn("leases by a playbook")
def test_a_node_that_fails_is_said_and_the_others_are_given_back(nodes: LeaseNodes) -> None:
    (nodes.inventory.parent / "gpu02").write_text("no directory")
    outcome = run_steps(
        acquire_steps(OURS, HOSTS), lambda step: {} if isinstance(step, RecordHolders) else nodes(step)
    )
    assert "the lease at" in outcome.failed["gpu02"].failed
    assert list(outcome.left) == ["gpu02"]
    assert not (nodes.inventory.parent / "gpu01" / "lease.json").exists()
    assert not (nodes.inventory.parent / "gpu03" / "lease.json").exists()
