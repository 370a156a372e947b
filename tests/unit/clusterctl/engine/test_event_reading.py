"""Lines of the callback and of journals: bounded, cleaned, and a broken one costs its own host alone."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.hostile import TEXTS, acting_characters

from clustercheck.parse.reading import CannotReadError
from clusterctl.engine.event_reading import MAX_LINE, parse, read_event
from clusterctl.engine.events import JobFinished, PlayStarted, Stats, TaskResult, TaskStarted, as_line
from clusterctl.engine.ledger import HostState, Ledger
from clusterctl.engine.process import LineSplitter

GOOD = {"event": "result", "at": 2.0, "host": "gpu01", "task_id": "t1", "status": "ok"}
COUNTS = {"ok": 1, "changed": 0, "skipped": 0, "failures": 0, "unreachable": 0}


def nested(depth):
    return {"a": nested(depth - 1)} if depth else {}


@pytest.mark.parametrize(
    "broken",
    [
        {"clusterctl": [1]},
        {"clusterctl": {"busy": {"a": 1}}},
        {"clusterctl": {"findings": {"a": 1}}},
        {"clusterctl": {"findings": [1, None]}},
        {"clusterctl": {"findings": [{}] * 1000}},
        {"clusterctl": {"facts": [1]}},
        {"clusterctl": {"facts": nested(20)}},
        {"clusterctl": {"facts": {"jobs": [0] * 60_000}}},
        {"clusterctl": {"facts": {"pull": {"bytes": 10**30}}}},
        {"msg": {"a": 1}},
        {"rc": "0"},
        {"rc": 10**12},
        {"stderr": "a line"},
        {"stderr": [1]},
        {"items": [{"label": 1, "msg": [2]}]},
        {"items": [{"stderr": 7}]},
        {"hidden": "no"},
        {"unreadable": "it has 2000000 characters"},
    ],
    ids=str,
)  # fmt: skip
def test_an_answer_that_breaks_its_bounds_fails_its_own_host_even_if_ansible_takes_it_for_good(broken):
    ledger = Ledger(["gpu01", "gpu02"])
    ledger.record(PlayStarted(0, "p", ["gpu01", "gpu02"]))
    ledger.record(TaskStarted(1.0, "t1", "Install packages", "nvidia_driver", "apt", "x.yml:3"))
    for record in ({**GOOD, **broken}, {**GOOD, "host": "gpu02"}):
        ledger.record(read_event(json.dumps(record)))
    ledger.record(Stats(3.0, {"gpu01": COUNTS, "gpu02": COUNTS}))
    one = ledger.hosts["gpu01"]
    assert (ledger.state("gpu01"), one.failure.code) == (HostState.FAILED, "task.unreadable")
    assert "cannot be read" in one.failure.message
    assert len(one.failure.message) < 600
    assert one.failure.task == "nvidia_driver: Install packages"
    assert ledger.hosts["gpu02"].failure is None


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"\xff\xfe",
        b"[1]",
        b"{",
        b'{"event": "result"',
        b'{"event": {"a": 1}}',
        b'{"event": "other", "at": 1.0}',
        b'{"event": "result", "at": NaN, "host": "gpu01", "task_id": "t", "status": "ok"}',
        b'{"event": "result", "at": 1.0, "host": ["gpu01"], "task_id": "t", "status": "ok"}',
        b'{"event": "result", "at": 1.0, "host": "gpu01\\u001b[2J", "task_id": "t", "status": "ok"}',
        b'{"event": "stats", "at": 1.0, "hosts": {"gpu01": {"ok": 1}}}',
        b'{"event": "stats", "at": 1.0, "hosts": {"gpu01": 1}}',
        b'{"event": "job_started", "at": 1.0, "host": "gpu01", "job_id": "../x"}',
        b'{"event": "job_finished", "at": 1.0, "host": "gpu01", "job_id": "j1.2", "rc": "x"}',
        b'{"event": "result", "msg": ' + b"[" * 100_000,
        b'{"event": "play_started", "play": "' + b"x" * MAX_LINE + b'"}',
        b'{"event": "result", "rc": ' + b"9" * 10_000 + b"}",
    ],
    ids=range(17),
)
def test_a_line_that_is_nobodys_is_refused_in_words(line):
    with pytest.raises(CannotReadError):
        read_event(line)
    assert parse(line) is None


def test_the_callbacks_empty_play_says_nothing_of_a_host():
    assert read_event(b'{"event": "play_empty", "at": 1.0}') is None


@pytest.mark.parametrize("text", TEXTS)
def test_text_of_a_host_is_cleaned_on_arrival(text):
    about = {"busy": text, "findings": [{"found": text}], "facts": {"pull": {"digest": [text], text: 1}}}
    line = json.dumps({**GOOD, "status": "failed", "msg": text, "stderr": [text], "clusterctl": about})
    event = read_event(line)
    assert isinstance(event, TaskResult)
    parts = [event.msg, *event.stderr, json.dumps(event.clusterctl, ensure_ascii=False)]
    assert acting_characters("".join(parts)) == []
    assert "\n" not in event.clusterctl["busy"]
    assert parse(as_line(event)) == event


def test_a_long_text_is_shortened_and_not_refused():
    event = read_event(json.dumps({**GOOD, "msg": "x" * 100_000}))
    assert isinstance(event, TaskResult)
    assert len(event.msg) <= 8_000
    assert "characters omitted" in event.msg


@pytest.mark.parametrize(
    "item", [{"label": "curl", "msg": "no"}, {"label": "x", "stderr": ["a", "b"], "rc": 1}]
)
def test_failed_items_of_a_loop_are_read(item):
    event = read_event(json.dumps({**GOOD, "status": "failed", "items": [item]}))
    assert isinstance(event, TaskResult)
    assert (event.code, event.items) == ("", [item])


def test_a_job_has_an_exit_code_or_none():
    line = {"event": "job_finished", "at": 1.0, "host": "gpu01", "job_id": "j1.2"}
    assert read_event(json.dumps({**line, "rc": 3})) == JobFinished(1.0, "gpu01", "j1.2", rc=3)


@given(st.lists(st.binary(max_size=30)), st.integers(1, 7))
def test_lines_come_whole_however_the_stream_is_cut(lines, size):
    lines = [line.replace(b"\n", b"") for line in lines]
    stream = b"".join(line + b"\n" for line in lines)
    cut = LineSplitter(10)
    found = [line for at in range(0, len(stream), size) for line in cut.feed(stream[at : at + size])]
    assert found == [line[:11] for line in lines]
