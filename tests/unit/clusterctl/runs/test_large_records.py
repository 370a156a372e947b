"""A list of runs keeps little of each, whatever they say; what is left out is read when it is asked for."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from clusterctl.cluster.directory import ClusterDirectory
from clusterctl.commands.runs import ending, record_of
from clusterctl.engine.events import JobStarted, as_line
from clusterctl.engine.journal import open_jobs
from clusterctl.engine.recovery import MAX_HOST_JOBS, left_behind
from clusterctl.errors import ClusterctlError
from clusterctl.runs import events
from clusterctl.runs import store as runs_store
from clusterctl.runs.events import open_containers
from clusterctl.runs.store import Run, RunStore

LARGE = {"verdict": "fail", "culprits": [f"gpu{number:05}" for number in range(10_000)]}


@pytest.fixture
def store(tmp_path: Path) -> RunStore:
    return RunStore(ClusterDirectory(tmp_path))


def ended(store: RunStore, summary: dict[str, Any], *arguments: str) -> Run:
    return store.finish(store.create("validate", arguments), 1, summary)


def kept(runs: tuple[Run, ...]) -> int:
    return sum(len(json.dumps(dict(run.summary))) for run in runs)


def test_a_large_summary_is_read_when_it_is_asked_for(store: RunStore) -> None:
    made = [ended(store, LARGE), ended(store, {"verdict": "pass"})]
    large, small = store.scan().runs
    assert kept((large, small)) < 1000
    assert [run.whole_summary() for run in (large, small)] == [one.summary for one in made]
    assert (ending(large)[:13], ending(small)) == ("fail: gpu0000", "pass")
    assert record_of(large)["summary"] == LARGE


def test_what_is_written_of_a_large_run_is_whole(store: RunStore) -> None:
    ended(store, LARGE)
    (large,) = store.scan().runs
    store.annotate(large, {**large.whole_summary(), "open_jobs": 0})
    (again,) = store.scan().runs
    assert again.whole_summary() == {**LARGE, "open_jobs": 0}


def test_small_summaries_are_kept_up_to_a_size_together(
    store: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs_store, "MAX_KEPT_BYTES", 10_000)
    summaries = [{"verdict": "pass", "words": str(number) * 2000} for number in range(9)]
    for summary in summaries:
        ended(store, summary)
    runs = store.scan().runs
    assert 5000 < kept(runs) < 10_000
    assert [run.whole_summary() for run in runs] == summaries


def test_arguments_are_kept_up_to_a_size_together(store: RunStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs_store, "MAX_KEPT_CHARACTERS", 150_000)
    long = [ended(store, {}, "x" * 100_000).id for _ in range(2)]
    short = ended(store, {}, "--limit", "gpu01").id
    listing = store.scan()
    assert [run.id for run in listing.runs] == [long[0], short]
    (refused,) = listing.unreadable
    assert (refused.id, refused.error.code) == (long[1], "runs.unreadable")
    assert "are too long" in refused.error.what


HOSTILE = {
    "objects": ("summary", [{}] * 800_000),
    "a long word": ("operator", "x" * 20_000),
    "a long argument": ("arguments", ["x" * (3 << 20)]),
    "many arguments": ("arguments", [""] * 300_000),
}


@pytest.mark.parametrize(("name", "value"), HOSTILE.values(), ids=HOSTILE.keys())
def test_a_record_beyond_any_that_is_written_is_named(store: RunStore, name: str, value: Any) -> None:
    run = ended(store, {})
    path = run.path("run.json")
    record = json.loads(path.read_text(encoding="utf-8"))
    record[name] = {"a": value} if name == "summary" else value
    path.write_text(
        json.dumps(record, separators=(",", ":")).replace("{}", "{}" + " " * 14), encoding="utf-8"
    )
    with pytest.raises(ClusterctlError) as caught:
        store.get(run.id)
    assert caught.value.code == "runs.unreadable"


def journal(path: Path, *lines: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def container_started(number: int, more: str = "") -> str:
    return f'{{"type": "job_started", "node": "gpu{number}", "container": "c", "job": "j"{more}}}'


def host_started(number: int) -> str:
    return as_line(JobStarted(1.0, f"gpu{number}", f"j{number}.1")).strip()


def test_of_an_open_container_only_its_place_is_kept(tmp_path: Path) -> None:
    path = journal(tmp_path / "run/journal.jsonl", container_started(1, ', "x": [[], [], []]'))
    assert open_containers(path) == [{"node": "gpu1", "container": "c", "job": "j"}]
    path = journal(path, container_started(1), '{"type": "job_finished", "job": "j"}', container_started(2))
    assert [one["node"] for one in open_containers(path)] == ["gpu2"]
    removed = '{"type": "job_removed", "node": "gpu1"}'
    path = journal(path, container_started(1), container_started(2), removed)
    assert [one["node"] for one in open_containers(path)] == ["gpu2"]


@pytest.mark.parametrize(("read", "line"), [(open_containers, container_started), (open_jobs, host_started)])
def test_a_journal_with_more_open_jobs_than_there_can_be_is_refused(
    read: Callable[[Path], list[Any]],
    line: Callable[[int], str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(events, "MAX_OPEN", 10)
    path = journal(tmp_path / "run/journal.jsonl", *map(line, range(10)))
    assert len(read(path)) == 10
    with pytest.raises(ClusterctlError, match="more than 10 jobs") as refused:
        read(journal(path, *map(line, range(11))))
    assert refused.value.code == "runs.journal-unreadable"


def test_a_line_of_a_journal_with_far_too_many_values_is_refused(tmp_path: Path) -> None:
    path = journal(tmp_path / "run/journal.jsonl", container_started(1, ', "x": [' + "[]," * 300_000 + "0]"))
    with pytest.raises(ClusterctlError, match="far more values") as refused:
        open_containers(path)
    assert refused.value.code == "runs.journal-unreadable"


def test_what_all_runs_left_behind_has_a_limit_together(
    store: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "MAX_OPEN", 10)
    for _ in range(2):
        journal(store.create("apply", []).journal, *map(host_started, range(6)))
    with pytest.raises(ClusterctlError, match="more than 10 jobs"):
        left_behind(store, store.create("apply", []), [f"gpu{number}" for number in range(6)])


def test_one_host_with_jobs_without_end_leaves_those_of_the_others_to_be_read(
    store: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "MAX_OPEN", 2 * MAX_HOST_JOBS)
    for run in range(3):
        made_up = [as_line(JobStarted(1.0, "liar", f"j{n}.{run}")).strip() for n in range(MAX_HOST_JOBS)]
        journal(store.create("apply", []).journal, *made_up, host_started(run))
    declared = ("liar", "gpu0", "gpu1", "gpu2")
    jobs = [job for one in left_behind(store, store.create("apply", []), declared) for job in one.jobs]
    assert Counter(job.host for job in jobs) == {"liar": MAX_HOST_JOBS, "gpu0": 1, "gpu1": 1, "gpu2": 1}
