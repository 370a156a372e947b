"""Which step of a profile is kept, and how much of it."""

from __future__ import annotations

from typing import Any

import pytest

from clustercheck.jobs import step_trace as program


def span(name: str, ts: float, dur: float) -> dict[str, Any]:
    return {"name": name, "ph": "X", "cat": "Kernel", "pid": 1, "tid": "7", "ts": ts, "dur": dur, "args": {}}


EVENTS = [
    {"name": "process", "ph": "M"},
    "no event",
    span("ProfileStep#1[10 us]", 100.0, 10.0),
    span("early[1 us]", 101.0, 1.0),
    span("ProfileStep#2[50 us]", 200.0, 50.0),
    *(span(f"kernel {n}[{n} us]", 200.0 + n / 10, float(n)) for n in range(1, 301)),
    span("late", 251.0, 1.0),
]


def test_the_longest_events_of_the_slowest_step_are_kept_in_order() -> None:
    found = program.slowest_step(EVENTS)
    kept = found["traceEvents"]
    assert (found["step_us"], found["steps"], found["omitted"]) == (50.0, 2, 150)
    assert len(kept) == program.MAX_EVENTS
    assert [each["ts"] for each in kept] == sorted(each["ts"] for each in kept)
    assert {each["name"] for each in kept} == {f"kernel {n}" for n in range(151, 301)}
    assert kept[0] == {
        "name": "kernel 151", "cat": "Kernel", "ph": "X", "pid": "1", "tid": "7", "ts": 15.1, "dur": 151.0,
    }  # fmt: skip


def test_a_profile_without_a_step_is_none() -> None:
    with pytest.raises(ValueError, match="recorded no step"):
        program.slowest_step([span("kernel", 1.0, 1.0)])
