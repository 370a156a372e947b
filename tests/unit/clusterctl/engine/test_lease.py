"""The lease on a node, on real files and through real ansible-playbook; and what the run keeps of it."""

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
from ansible.module_utils import job_files, lease_file

from clustercheck.probe import busy
from clustercheck.probe import lease as probe_lease
from clusterctl.cluster.directory import ClusterDirectory
from clusterctl.engine import lease as lease_module
from clusterctl.engine import lease_book
from clusterctl.engine.lease import Lease, Life, comes_from, from_record, lease_of, life
from clusterctl.engine.lease_nodes import LeaseNodes
from clusterctl.engine.lease_protocol import Answer, Free, Note, Take, carry_out, taking
from clusterctl.runs.store import RunStore

OURS = Lease("20260101T000000000-apply-aaaa", "n1", "ops", "here", "apply", "2026-01-01T00:00:00Z")
THEIRS = replace(OURS, run="20260101T000000000-apply-bbbb", nonce="n2", who="anna", where="there")
HOSTS = ("gpu01", "gpu02", "gpu03")

RACER = """
import json, sys, types
sys.path.insert(0, sys.argv[1])
from pathlib import Path
import lease_file
sys.stdin.readline()
print(lease_file.take(Path(sys.argv[2]), json.loads(sys.argv[3])) is None)
"""


@pytest.fixture
def node(tmp_path: Path) -> Path:
    """Where a node keeps its lease."""
    return tmp_path / "root" / ".clusterctl" / "lease.json"


def test_a_lease_is_taken_once_and_freed_by_its_own_name_alone(node: Path) -> None:
    ours, theirs = OURS.as_record(), THEIRS.as_record()
    assert lease_file.read(node) is None
    assert lease_file.take(node, ours) is None
    assert lease_file.take(node, ours) is None, "the first answer may have been lost"
    assert lease_file.take(node, theirs) == ours
    assert not lease_file.free(node, theirs)
    assert not lease_file.free(node, {**ours, "nonce": "another"})
    assert not lease_file.free(node, {})
    assert from_record(lease_file.read(node) or {}) == OURS
    assert lease_file.free(node, ours)
    assert lease_file.take(node, theirs) is None


def test_a_lease_is_roots_alone_and_leaves_nothing_beside_it(node: Path) -> None:
    node.parent.mkdir(parents=True, mode=0o755)
    (node.parent / "lease.json.new").write_text("a taker that died")
    lease_file.take(node, OURS.as_record())
    assert node.stat().st_mode & 0o777 == 0o600
    assert node.parent.stat().st_mode & 0o777 == 0o700
    assert [path.name for path in node.parent.iterdir()] == ["lease.json"]


@pytest.mark.parametrize("text", ["", "{", "[]", "null"])
def test_a_lease_that_cannot_be_read_holds_all_the_same(node: Path, text: str) -> None:
    node.parent.mkdir(parents=True)
    node.write_text(text)
    holder = lease_file.take(node, OURS.as_record())
    assert holder is not None
    assert from_record(holder).run == ""
    assert not lease_file.free(node, OURS.as_record())


def test_of_many_processes_one_takes_the_node(node: Path, repository: Path) -> None:
    for _ in range(5):
        racers = [
            subprocess.Popen(
                [sys.executable, "-c", RACER, repository / "plugins" / "module_utils", node,
                 json.dumps(replace(OURS, nonce=str(number)).as_record())],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            )
            for number in range(6)
        ]  # fmt: skip
        for racer in racers:
            assert racer.stdin is not None
            racer.stdin.write("\n")
            racer.stdin.flush()
        said = [racer.communicate(timeout=60)[0].strip() for racer in racers]
        assert sorted(said) == ["False"] * 5 + ["True"]
        assert lease_file.free(node, {"run": OURS.run, "nonce": str(said.index("True"))})


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


def test_nodes_are_taken_in_one_order_whatever_the_order_they_were_named_in() -> None:
    steps = taking(OURS, ("gpu03", "gpu01", "gpu02"))
    step = next(steps)
    while isinstance(step, Note):
        step = steps.send({})
    assert isinstance(step, Take)
    assert step.batches == (("gpu01",), ("gpu02", "gpu03"))


def test_one_playbook_takes_all_nodes_or_none(nodes: LeaseNodes) -> None:
    def do(step):
        return {} if isinstance(step, Note) else nodes(step)

    assert carry_out(taking(OURS, HOSTS), do).held
    assert holders(nodes) == ["n1", "n1", "n1"]
    refused = carry_out(taking(THEIRS, HOSTS), do)
    assert (refused.refused, refused.failed, refused.left) == ({"gpu01": OURS}, {}, {})
    assert holders(nodes) == ["n1", "n1", "n1"]
    assert {host: said.holder for host, said in nodes.show(HOSTS).items()} == dict.fromkeys(HOSTS, OURS)
    assert nodes(Free(OURS, ("gpu01", "gpu02"))) == dict.fromkeys(("gpu01", "gpu02"), Answer(freed=True))
    refused = carry_out(taking(THEIRS, HOSTS), do)
    assert refused.refused == {"gpu03": OURS}
    assert holders(nodes) == ["", "", "n1"], "what it had was given back"


def test_who_is_refused_on_the_first_node_asks_no_other(nodes: LeaseNodes) -> None:
    lease_file.take(nodes.inventory.parent / "gpu01" / "lease.json", THEIRS.as_record())
    answers = nodes(Take(OURS, (("gpu01",), ("gpu02", "gpu03"))))
    assert answers == {"gpu01": Answer(holder=THEIRS)}
    assert holders(nodes) == ["n2", "", ""]


def test_what_a_node_wrote_into_its_lease_is_text_to_us(nodes: LeaseNodes) -> None:
    """Root on a node chooses every word of it; a controller that frees the lease runs none of them."""
    pwned = nodes.inventory.parent / "pwned"
    pipe = f"{{{{ lookup('ansible.builtin.pipe', 'touch {pwned}') }}}}"
    hostile = replace(OURS, who=pipe, where=pipe, nonce=pipe, directory=pipe)
    (nodes.inventory.parent / "gpu01").mkdir()
    (nodes.inventory.parent / "gpu01" / "lease.json").write_text(json.dumps(hostile.as_record()))
    holder = nodes.show(("gpu01",))["gpu01"].holder
    assert holder == hostile
    assert nodes(Free(holder, ("gpu01",))) == {"gpu01": Answer(freed=True)}
    assert nodes(Take(holder, (("gpu01",),)))["gpu01"].taken
    assert not pwned.exists()


@pytest.fixture
def job(tmp_path: Path) -> Iterator[str]:
    """A job that Ansible began on this machine, and that runs until the test is over."""
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


def test_a_node_on_which_a_job_of_a_run_lives_is_nobodys_to_take(
    nodes: LeaseNodes, tmp_path: Path, job: str
) -> None:
    """The lease of the run that began it may be long gone: an unlock, or a version that gave all back."""
    nodes = replace(nodes, extra_vars={"ansible_async_dir": str(tmp_path / "async")})
    taken = carry_out(taking(OURS, ("gpu01",)), lambda step: {} if isinstance(step, Note) else nodes(step))
    assert (taken.held, taken.working, taken.left) == (False, {"gpu01": (job,)}, {})
    assert holders(nodes) == ["", "", ""]
    lease_file.take(tmp_path / "gpu02" / "lease.json", OURS.as_record())
    assert nodes.show(("gpu02",)) == {"gpu02": Answer(holder=OURS, jobs=(job,))}
    assert nodes(Take(OURS, (("gpu02",),)))["gpu02"].taken, "who has begun it holds the node, and goes on"
    assert nodes(Take(THEIRS, (("gpu02",),))) == {"gpu02": Answer(holder=OURS)}


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "7"])
def test_a_jobs_file_that_cannot_be_read_stops_nobody_where_no_process_is_its(
    tmp_path: Path, text: str
) -> None:
    (tmp_path / "j1.2").write_text(text)
    assert job_files.running(tmp_path) == []
    assert job_files.running(tmp_path / "none") == []
    assert job_files.outcome("j1.2", tmp_path, {"j1"})["state"] == "running"


def test_a_node_that_fails_is_said_and_the_others_are_given_back(nodes: LeaseNodes) -> None:
    (nodes.inventory.parent / "gpu02").write_text("no directory")
    outcome = carry_out(taking(OURS, HOSTS), lambda step: {} if isinstance(step, Note) else nodes(step))
    assert "the lease at" in outcome.failed["gpu02"]
    assert list(outcome.left) == ["gpu02"]
    assert not (nodes.inventory.parent / "gpu01" / "lease.json").exists()
    assert not (nodes.inventory.parent / "gpu03" / "lease.json").exists()


def test_an_interruption_gives_back_what_was_asked_before_it_is_heard() -> None:
    done = []

    def do(step):
        done.append(step)
        if isinstance(step, Take):
            raise KeyboardInterrupt
        return {host: Answer(freed=True) for host in step.hosts}

    with pytest.raises(KeyboardInterrupt):
        carry_out(taking(OURS, HOSTS), do)
    assert [type(step) for step in done] == [Note, Take, Free, Note]
    assert done[2].hosts == HOSTS
    assert done[3].hosts == ()


def test_the_book_keeps_what_may_be_held_and_a_copy_of_it_is_nobodys(tmp_path: Path) -> None:
    directory, copy = ClusterDirectory(tmp_path / "a"), ClusterDirectory(tmp_path / "b")
    for each in (directory, copy):
        each.ensure_state()
    assert lease_book.entries(directory) == []
    run = RunStore(directory).create("apply", [])
    first, second = lease_of(run, directory), replace(lease_of(run, directory), run="another")
    lease_book.note(directory, first, HOSTS)
    lease_book.note(directory, second, ["gpu01"])
    lease_book.note(directory, first, ["gpu02"])
    open_ = {entry.lease.run: entry.hosts for entry in lease_book.entries(directory)}
    assert open_ == {first.run: ("gpu02",), "another": ("gpu01",)}
    (copy.state / lease_book.FILE).write_text((directory.state / lease_book.FILE).read_text())
    assert lease_book.entries(copy) == [], "the original is still at work, for all that the copy knows"
    lease_book.note(directory, first, [])
    lease_book.note(directory, second, [])
    assert lease_book.entries(directory) == []


@pytest.mark.parametrize("text", ["", "{}", "[1]", '[{"lease": {}}]', "null"])
def test_a_book_that_cannot_be_read_is_empty(tmp_path: Path, text: str) -> None:
    directory = ClusterDirectory(tmp_path)
    directory.ensure_state()
    (directory.state / lease_book.FILE).write_text(text)
    assert lease_book.entries(directory) == []


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    """A process that lives until it is told to go."""
    with subprocess.Popen(["sleep", "300"]) as process:
        yield process
        process.kill()


def test_a_run_lives_as_long_as_its_very_process(tmp_path: Path, child: subprocess.Popen[bytes]) -> None:
    directory = ClusterDirectory(tmp_path)
    lease = lease_of(RunStore(directory).create("apply", []), directory)
    assert (lease.pid, lease.where) == (os.getpid(), os.uname().nodename)
    assert life(lease) is Life.HERE
    assert comes_from(lease, directory)
    assert life(replace(lease, pid=child.pid)) is Life.ENDED, "another process has its number now"
    assert life(replace(lease, born="another boot/1")) is Life.ENDED
    assert life(replace(lease, pid=0)) is Life.ENDED
    assert not comes_from(replace(lease, machine="another"), directory)
    assert lease_of(RunStore(directory).create("apply", []), directory).nonce != lease.nonce


def test_a_process_that_cannot_be_seen_is_not_taken_for_dead(
    tmp_path: Path, child: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """/proc with hidepid, another container, or none at all: what the kernel says of a pid of ours counts."""
    directory = ClusterDirectory(tmp_path)
    ours = lease_of(RunStore(directory).create("apply", []), directory)
    alive = replace(ours, pid=child.pid, born=lease_module._born(child.pid))
    boot = alive.born.partition("/")[0]
    with subprocess.Popen(["true"]) as ended:
        pass
    gone = replace(ours, pid=ended.pid, born=f"{boot}/1")
    assert (life(alive), life(gone)) == (Life.HERE, Life.ENDED)
    assert life(replace(gone, space="pid:[1]")) is Life.UNSEEN, "a pid of another container"
    assert life(replace(gone, space="")) is Life.UNSEEN
    assert life(replace(gone, born="")) is Life.ENDED
    monkeypatch.setattr(lease_module, "_born", lambda _pid: "")
    assert (life(alive), life(gone)) == (Life.UNSEEN, Life.ENDED)
    assert life(replace(alive, born="")) is Life.UNSEEN
    assert life(replace(alive, born="", where="elsewhere")) is Life.ENDED

    def refuses(_pid: int, _signal: int) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "kill", refuses)
    assert life(gone) is Life.UNSEEN


@pytest.mark.parametrize("pid", [-1, 0, 2**40, "1"])
def test_a_pid_that_is_none_names_nobody(pid: object) -> None:
    assert from_record({"pid": pid}).pid == 0


def test_validation_sees_whose_apply_it_is(node: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert probe_lease.LEASE == lease_file.LEASE
    lease_file.take(node, THEIRS.as_record())
    monkeypatch.setattr(busy, "lease", lambda: probe_lease.lease(str(node)))
    found = busy.busy(5.0)
    assert f"held by {THEIRS.holder}" in found["reasons"]
    assert found["lease"]["who"] == "anna"
    assert f"held by {THEIRS.holder}" not in busy.busy(5.0, [THEIRS.run])["reasons"]
    node.write_text("{ torn")
    assert [reason for reason in busy.busy(5.0)["reasons"] if "unknown" in reason]
