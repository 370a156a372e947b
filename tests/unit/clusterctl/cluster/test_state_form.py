"""`.clusterctl` is a directory of plain files, and its keys and passwords are their owner's alone."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.unit.clusterctl.cluster.settings.cluster_directories import cluster

from clusterctl.cluster.directory import ClusterDirectory, find_cluster_directory
from clusterctl.cluster.opened import opened
from clusterctl.engine import mutex
from clusterctl.engine.events import JobFinished
from clusterctl.engine.journal import Journal
from clusterctl.errors import ClusterctlError
from clusterctl.runs import chain
from clusterctl.runs.events import event_log
from clusterctl.runs.store import Run, RunStore


@pytest.fixture
def directory(tmp_path: Path) -> ClusterDirectory:
    made = cluster(tmp_path / "site")
    made.ensure_state()
    return made


def refused(call: Callable[[], object]) -> ClusterctlError:
    with pytest.raises(ClusterctlError) as caught:
        call()
    assert caught.value.exit_code == 2
    assert caught.value.hint
    return caught.value


@pytest.mark.parametrize(
    "name", ["", "runs", "secrets", "ca", "probe", "images", "images/spool", "images/packages"]
)
def test_a_link_in_place_of_a_directory_is_refused(
    directory: ClusterDirectory, tmp_path: Path, name: str
) -> None:
    elsewhere = tmp_path / "elsewhere"
    path = directory.state / name
    if path.exists():
        path.rename(elsewhere)
    else:
        elsewhere.mkdir()
        path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(elsewhere)
    error = refused(lambda: find_cluster_directory(directory.root))
    assert (error.code, error.where) == ("cluster.state-form", str(path))
    assert "is a link" in error.what


@pytest.mark.parametrize("name", ["", "runs", "ca"])
def test_a_file_in_place_of_a_directory_is_refused(directory: ClusterDirectory, name: str) -> None:
    path = directory.state / name
    if path.exists():
        path.rename(directory.root / "away")
    path.write_text("")
    assert "not a directory" in refused(lambda: find_cluster_directory(directory.root)).what


def a_fifo(path: Path) -> Path:
    fifo = path.parent.parent / "fifo"
    os.mkfifo(fifo)
    return fifo


@pytest.mark.parametrize("name", ["known_hosts", "mutex", "quarantine.yml", "anything"])
@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to(a_fifo(path))])
def test_what_nobody_can_read_to_its_end_is_refused(
    directory: ClusterDirectory, name: str, make: Callable[[Path], None]
) -> None:
    make(directory.state / name)
    error = refused(lambda: find_cluster_directory(directory.root))
    assert (error.code, error.where) == ("cluster.state-form", str(directory.state / name))


def test_a_known_hosts_file_of_the_operators_own_may_be_a_link(
    directory: ClusterDirectory, tmp_path: Path
) -> None:
    (tmp_path / "known_hosts").write_text("")
    directory.known_hosts.symlink_to(tmp_path / "known_hosts")
    assert find_cluster_directory(directory.root) == directory


@pytest.mark.parametrize(
    "name",
    [
        "mutex",
        "chain.jsonl",
        "baseline.json",
        "own",
        "runs/r1",
        "images/anything",
        "images/packages/0123456789abcdef",
        "images/spool/journal.jsonl",
        "probe/0123456789abcdef.json",
        "secrets/robots",
        "secrets/.lock",
        "ca/.lock",
    ],
)
def test_a_link_is_refused_wherever_it_leads(directory: ClusterDirectory, tmp_path: Path, name: str) -> None:
    victim, path = tmp_path / "victim", directory.state / name
    victim.write_text("mine\n")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(victim)
    error = refused(lambda: find_cluster_directory(directory.root))
    assert (error.code, error.where) == ("cluster.state-form", str(path))
    assert f"{path.name} is a link" in error.what


def hold_mutex(directory: ClusterDirectory, _run: Run) -> None:
    with mutex.held(directory, "apply"):
        pass


def write_log(_directory: ClusterDirectory, run: Run) -> None:
    with event_log(run.journal) as log:
        log.write({"type": "x"})


def write_journal(_directory: ClusterDirectory, run: Run) -> None:
    with Journal(run.journal) as journal:
        journal.write(JobFinished(0.0, "gpu02", "j1.2"))


@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("mutex", hold_mutex),
        ("chain.jsonl", lambda directory, run: chain.append(directory, run.id)),
        ("journal.jsonl", write_log),
        ("journal.jsonl", write_journal),
    ],
)
def test_nothing_is_written_through_a_link_that_came_meanwhile(
    directory: ClusterDirectory, tmp_path: Path, name: str, write: Callable[[ClusterDirectory, Run], object]
) -> None:
    run = RunStore(directory).create("apply", [])
    path = run.journal if name == run.journal.name else directory.state / name
    (tmp_path / "victim").write_text("mine\n")
    path.symlink_to(tmp_path / "victim")
    error = refused(lambda: write(directory, run))
    assert (error.code, error.where) == ("cluster.state-form", str(path))
    assert (tmp_path / "victim").read_text() == "mine\n"


def test_a_mutex_of_brackets_alone_is_that_of_another_process(directory: ClusterDirectory) -> None:
    with mutex.held(directory, "apply"):
        directory.mutex.write_text("[" * 4096)
        error = refused(lambda: hold_mutex(directory, RunStore(directory).create("apply", [])))
    assert error.code == "engine.held"


@pytest.mark.parametrize("name", ["", "runs", "secrets", "secrets/robots", "ca", "ca/ca.crt"])
def test_what_others_can_write_in_it_is_not_trusted(directory: ClusterDirectory, name: str) -> None:
    path = directory.state / name
    path.mkdir(parents=True, exist_ok=True)
    assert find_cluster_directory(directory.root) == directory
    path.chmod(0o777)
    error = refused(lambda: find_cluster_directory(directory.root))
    assert (error.code, error.where) == ("cluster.not-trusted", str(path))


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o660])
@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("ca/ca.key", "cluster.secret-exposed"),
        ("secrets/registry-reg01.key", "cluster.secret-exposed"),
        ("secrets/harbor-admin.password", "registry.secret-file"),
        ("secrets/robots/nodes.password", "registry.secret-file"),
    ],
)
def test_a_secret_that_others_may_read_is_refused(
    directory: ClusterDirectory, name: str, code: str, mode: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = directory.state / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("x")
    path.chmod(mode)
    error = refused(lambda: opened(directory.root))
    if mode == 0o660:  # a group may write it: it is not even read
        assert error.code in (code, "cluster.not-trusted")
        return
    assert (error.code, error.where) == (code, str(path))
    assert f"{mode:04o}" in error.what
    assert "chmod 600" in error.hint
    path.chmod(0o600)
    monkeypatch.setattr("clusterctl.cluster.opened.load", lambda _: "read")
    assert opened(directory.root) == "read"


def test_a_certificate_may_be_read_by_all(
    directory: ClusterDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory.authority.mkdir()
    (directory.authority / "ca.crt").write_text("x")
    (directory.authority / "ca.crt").chmod(0o644)
    monkeypatch.setattr("clusterctl.cluster.opened.load", lambda _: "read")
    assert opened(directory.root) == "read"
