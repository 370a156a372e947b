"""Steps that are timed one by one, and recorded by Paddle's own profiler."""

from __future__ import annotations

from typing import Any

import pytest

pytestmark = pytest.mark.paddle
SIZES = {"layers": 2, "hidden": 32, "heads": 4, "vocabulary": 100, "positions": 16, "classes": 10}
CHOSEN = {
    "steps": 10,
    "warmup": 2,
    "traced": 3,
    "batch": 8,
    "length": 16,
    "precision": "fp32",
    "sizes": SIZES,
}
SMALL = {"seed": 1, "on_cpu": CHOSEN}
REFUSES = (
    "import importlib, step_trace\n"
    "join = step_trace.join\n"
    "def run(world, arguments):\n"
    "    def refuse(*_args, **_more):\n"
    "        raise RuntimeError('CUPTI says no\\nmore of it')\n"
    "    importlib.import_module('paddle.profiler').Profiler = refuse\n"
    "    return step_trace.run(world, arguments)\n"
)


def test_the_slowest_recorded_step_has_paddles_own_events(tmp_path: Any, ranks_of_a_job: Any) -> None:
    for verdict in ranks_of_a_job(tmp_path, "step_trace", SMALL):
        assert verdict["unable"] == ""
        assert 0 < verdict["median_s"] <= verdict["slowest_s"]
        trace = verdict["trace"]
        assert trace["steps"] == 3 and trace["step_us"] > 0
        names = {event["name"] for event in trace["traceEvents"]}
        assert {"Bert", "backward"} <= names
        assert all(0 <= event["ts"] <= trace["step_us"] for event in trace["traceEvents"])


def test_where_the_profiler_fails_the_times_remain(tmp_path: Any, ranks_of_a_job: Any) -> None:
    (verdict,) = ranks_of_a_job(tmp_path, "refuses", SMALL, ranks=1, programs={"refuses": REFUSES})
    assert (verdict["unable"], verdict["trace"]) == ("RuntimeError: CUPTI says no", {})
    assert verdict["median_s"] > 0
