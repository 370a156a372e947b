"""A run that cannot be read is omitted and named; what it may have left on nodes is still asked for."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.full_disk import leave_room

from clusterctl.cluster.directory import ClusterDirectory
from clusterctl.engine.events import JobFinished, JobStarted
from clusterctl.engine.journal import Journal, open_jobs
from clusterctl.engine.playbook import PlaybookOutcome, PlaybookRequest
from clusterctl.engine.recovery import MAX_HOST_JOBS, left_behind, recover
from clusterctl.errors import ClusterctlError
from clusterctl.runs.events import EventLog, open_containers, read_events
from clusterctl.runs.store import Run, RunStore


@pytest.fixture
def store(tmp_path: Path) -> RunStore:
    return RunStore(ClusterDirectory(tmp_path))


def edited(change: Callable[[dict], object]) -> Callable[[Path], object]:
    def edit(path: Path) -> None:
        record = json.loads(path.read_text())
        path.write_text(json.dumps(change(record) or record))

    return edit


def replaced(make: Callable[[Path], object]) -> Callable[[Path], object]:
    def replace(path: Path) -> None:
        path.unlink()
        make(path)

    return replace


DAMAGE = {
    "empty": lambda path: path.write_text(""),
    "cut short": lambda path: path.write_bytes(path.read_bytes()[:40]),
    "binary": lambda path: path.write_bytes(bytes(range(256))),
    "a list": lambda path: path.write_text("[]"),
    "nested": lambda path: path.write_text("[" * 1_000_000),
    "another's": edited(lambda record: record.update(id="20200101T000000000-apply-0000")),
    "without its pid": edited(lambda record: {k: v for k, v in record.items() if k != "pid"}),
    "a pid of all": edited(lambda record: record.update(pid=-1)),
    "a huge pid": edited(lambda record: record.update(pid=2**80)),
    "a newer version's": edited(lambda record: record.update(new=1)),
    "a number for a text": edited(lambda record: record.update(operator=7)),
    "huge": lambda path: os.truncate(path, 1 << 40),
    "a FIFO": replaced(os.mkfifo),
    "a directory": replaced(os.mkdir),
    "a link to nothing": replaced(lambda path: path.symlink_to("nowhere")),
    "a device": replaced(lambda path: path.symlink_to("/dev/zero")),
    "gone": lambda path: path.unlink(),
}


@pytest.mark.parametrize("how", DAMAGE)
def test_a_damaged_record_hides_no_other_run_and_is_named_once(
    store: RunStore, how: str, capsys: pytest.CaptureFixture[str]
) -> None:
    broken, good = store.create("apply", []), store.create("validate", [])
    EventLog(broken.journal).close()
    DAMAGE[how](broken.path("run.json"))
    assert [run.id for run in store.list()] == [good.id]
    said = capsys.readouterr().err
    assert f"run {broken.id} is omitted: the run's record cannot be read: " in said.replace("\n", " ")
    assert store.get("last").id == store.get(good.id).id == good.id
    with pytest.raises(ClusterctlError) as caught:
        store.get(broken.id)
    assert (caught.value.code, caught.value.exit_code) == ("runs.unreadable", 2)
    assert capsys.readouterr().err == ""


def test_a_record_with_more_values_than_any_is_unreadable(store: RunStore) -> None:
    run = store.create("apply", [])
    record = json.loads((run.directory / "run.json").read_text())
    text = json.dumps({**record, "summary": {"x": []}}).replace("[]}", f"[{'[],' * 300_000}0]}}")
    (run.directory / "run.json").write_text(text)
    (unreadable,) = store.scan().unreadable
    assert "far more values" in unreadable.error.what


def test_what_is_not_a_run_is_not_named(store: RunStore, tmp_path: Path) -> None:
    store.create("apply", [])
    runs = tmp_path / ".clusterctl" / "runs"
    (runs / "a file").write_text("")
    (runs / "an empty directory").mkdir()
    assert store.scan().unreadable == ()


def with_open_job(store: RunStore) -> Run:
    run = store.create("apply", [])
    with Journal(run.journal) as journal:
        journal.write(JobStarted(1.0, "gpu01", "j12.34"))
    return run


def recovered(store: RunStore, said: list[str]) -> list[JobFinished]:
    """What comes of left jobs; no host is asked, since none is declared."""

    def runner(request: PlaybookRequest, on_event: object) -> PlaybookOutcome:
        raise AssertionError("no host is to be asked")

    ours = store.create("apply", [])
    return recover(
        store, left_behind(store, ours, ()), inventory=Path("hosts.yml"), hosts=(), declared=(), forks=1,
        run_directory=ours.directory, say=said.append, runner=runner,
    )  # fmt: skip


def test_the_journal_of_an_unreadable_run_still_tells_of_its_jobs(store: RunStore) -> None:
    run = with_open_job(store)
    run.path("run.json").write_text("")
    said: list[str] = []
    (job,) = recovered(store, said)
    assert (job.host, job.job_id, job.lost) == ("gpu01", "j12.34", True)
    assert said[0] == f"run {run.id}: its record cannot be read; by its journal: outcome of 1 job unknown"
    assert open_jobs(run.journal) == []
    assert run.path("run.json").read_text() == "", "what is damaged is for a person to look at"


def test_all_jobs_of_a_host_that_is_no_longer_declared_end_together_in_one_line(store: RunStore) -> None:
    run, said = store.create("apply", []), []
    with Journal(run.journal) as journal:
        for number in range(MAX_HOST_JOBS + 1):
            journal.write(JobStarted(1.0, "gpu09", f"j{number}.1"))
    assert all(job.lost for job in recovered(store, said))
    assert said[1:] == [f"gpu09: {MAX_HOST_JOBS + 1} jobs lost: the host is no longer in the inventory"]
    assert open_jobs(run.journal) == []


def test_an_unreadable_run_without_open_jobs_is_said_and_no_host_asked(store: RunStore) -> None:
    run, said = store.create("apply", []), []
    run.path("run.json").write_text("{}")
    Journal(run.journal).close()
    assert recovered(store, said) == []
    assert said == [f"run {run.id}: its record cannot be read; by its journal: no open jobs"]


def test_of_an_unreadable_run_without_a_journal_nothing_is_said_to_be_known(store: RunStore) -> None:
    run, said = store.create("apply", []), []
    run.path("run.json").write_text("{}")
    assert recovered(store, said) == []
    assert said == [
        f"run {run.id}: its record cannot be read; it has no journal, so what it started is not known"
    ]


def test_a_run_whose_directory_cannot_be_read_is_not_one_without_jobs(store: RunStore) -> None:
    directory = store.create("apply", []).directory.with_name("20200101T000000000-apply-0000")
    directory.symlink_to(directory.name)
    with pytest.raises(ClusterctlError, match="journal of run 20200101T000000000-apply-0000 cannot be read"):
        open_jobs(directory / "journal.jsonl")


@pytest.mark.parametrize("how", ["a FIFO", "a directory", "a device", "huge", "a link to nothing"])
@pytest.mark.parametrize("record", ["good", "damaged"])
def test_nothing_is_started_where_nobody_knows_what_an_earlier_run_left(
    store: RunStore, how: str, record: str
) -> None:
    run = with_open_job(store)
    if record == "damaged":
        run.path("run.json").write_text("")
    DAMAGE[how](run.journal)
    with pytest.raises(ClusterctlError) as caught:
        recovered(store, [])
    assert (caught.value.code, caught.value.exit_code) == ("runs.journal-unreadable", 2)
    assert str(run.directory) in caught.value.hint


def test_lines_of_a_journal_that_are_no_events_are_passed_over(store: RunStore) -> None:
    run = with_open_job(store)
    lines = [b"[" * 100_000, b"\xff\x00", b"[1]", b"x" * (5 << 20), b'{"event": "job_started", "host": [1]}']
    with run.journal.open("ab") as stream:
        stream.write(b"\n".join(lines) + b"\n")
    with Journal(run.journal) as journal:
        journal.write(JobStarted(2.0, "gpu02", "j5.6"))
    assert [job.host for job in open_jobs(run.journal)] == ["gpu01", "gpu02"]


@pytest.mark.parametrize("kind", ["apply", "validate"])
def test_an_event_of_which_a_full_disk_took_a_part_takes_no_later_one_with_it(
    store: RunStore, kind: str
) -> None:
    path = store.create(kind, []).journal
    events: list[Any]
    if kind == "apply":
        log: Any = Journal(path)
        events = [JobStarted(1.0, f"gpu0{number}", "j5.6") for number in (1, 2)]
    else:
        log = EventLog(path)
        events = [{"type": "job_started", "node": f"gpu0{n}", "job": "a", "container": "c"} for n in (1, 2)]
    with pytest.MonkeyPatch.context() as patch, pytest.raises(ClusterctlError, match="No space left"):
        leave_room(patch, 30)
        log.write(events[0])
    log.write(events[1])
    log.close()
    assert [line["host" if kind == "apply" else "node"] for line in read_events(path)] == ["gpu02"]


def test_only_the_start_of_a_container_must_be_on_the_disk(store: RunStore) -> None:
    log = EventLog(path := store.create("validate", []).journal)
    with pytest.MonkeyPatch.context() as patch:
        leave_room(patch, 30)
        log.write({"type": "verdict"})
        with pytest.raises(ClusterctlError, match="No space left"):
            log.write({"type": "job_started"})
    log.close()
    assert path.read_bytes() == b""


def test_events_of_containers_that_name_none_are_passed_over(store: RunStore) -> None:
    log = EventLog(path := store.create("validate", []).journal)
    for event in (
        {"type": "job_started", "node": "gpu01", "job": "a"},
        {"type": "job_started", "node": ["gpu01"], "job": {}, "container": "c"},
        {"type": "job_started", "node": "gpu01", "job": "b", "container": "c"},
    ):
        log.write(event)
    log.close()
    assert [one["job"] for one in open_containers(path)] == ["b"]


def test_what_ran_on_a_node_is_ended_there_alone_and_a_finished_job_everywhere(store: RunStore) -> None:
    log = EventLog(path := store.create("validate", []).journal)
    for job, node in (("a", "gpu01"), ("b", "gpu01"), ("a", "gpu02"), ("b", "gpu02"), ("c", "gpu02")):
        log.write({"type": "job_started", "node": node, "job": job, "container": "c"})
    log.write({"type": "job_removed", "node": "gpu01"})
    log.write({"type": "job_finished", "job": "b"})
    log.write({"type": "job_started", "node": "gpu01", "job": "b", "container": "c"})
    log.close()
    assert [(one["job"], one["node"]) for one in open_containers(path)] == [
        ("a", "gpu02"), ("c", "gpu02"), ("b", "gpu01")
    ]  # fmt: skip


def test_a_run_of_a_clock_that_was_ahead_is_not_the_newest_for_years(
    store: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = datetime.now(UTC)
    soon = now + timedelta(minutes=10)  # as another operator's clock may be
    made = []
    for moment in (now + timedelta(days=3650), now, soon):
        with monkeypatch.context() as clock:
            clock.setattr(
                "clusterctl.runs.store.datetime", SimpleNamespace(now=lambda _, moment=moment: moment)
            )
            made.append(store.create("apply", []).id)
    assert [run.id for run in store.scan().runs] == made
    assert store.get("last").id == made[-1]


def test_what_a_run_recorded_of_its_end_stays_where_it_is_interrupted_then(store: RunStore) -> None:
    run = store.create("apply", [])
    with pytest.raises(KeyboardInterrupt), store.finished_on_error(run):
        store.finish(run, 0, {"changed": 2})
        raise KeyboardInterrupt
    assert ((kept := store.get(run.id)).exit_code, kept.summary) == (0, {"changed": 2})
    other = store.create("apply", [])
    with pytest.raises(KeyboardInterrupt), store.finished_on_error(other):
        raise KeyboardInterrupt
    assert ((kept := store.get(other.id)).exit_code, kept.summary) == (130, {"error": "interrupted"})
