"""A list of runs keeps little of each, whatever they say; what is left out is read when it is asked for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from clusterctl.cluster.directory import ClusterDirectory
from clusterctl.commands.runs import ending, record_of
from clusterctl.errors import ClusterctlError
from clusterctl.runs import store as runs_store
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
