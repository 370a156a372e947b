"""The runner of lanes: what is red, what is ended, and that every test is in some tier."""

from __future__ import annotations

import gc
import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import lanes
import pytest
import run_lanes
from lanes import Lane
from run_lanes import Runner, Running

PASSED = {"test": "a::b", "outcome": "passed", "call": 1.0}


@pytest.fixture(autouse=True)
def _own_logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Logs of the test's own, and the signal handlers of before."""
    monkeypatch.setattr(run_lanes, "LOGS", tmp_path)
    monkeypatch.setattr(run_lanes, "QUIET_FILE", tmp_path / "quiet")
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def lane(
    name: str, program: str, records: str = json.dumps(PASSED), *, empty: bool = False, **more: object
) -> Running:
    """A lane whose process is a few lines of Python, which first records tests."""
    record = "import os; open(os.environ['CLUSTERCTL_TEST_RECORD'], 'w').write(os.environ['RECORDS'])\n"
    command = ["env", f"RECORDS={records}", sys.executable, "-c", record + program]
    return Running(Lane(name, (), "", **more), command, empty)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("running", "code"),
    [
        (lane("good", ""), 0),
        (lane("failed", "raise SystemExit(1)"), 1),
        (lane("killed", "os.kill(os.getpid(), 9)"), 1),
        (lane("empty", "raise SystemExit(5)", ""), 1),
        (lane("empty as asked", "raise SystemExit(5)", empty=True), 0),
        (lane("cut record", "", json.dumps(PASSED) + '\n{"test": "a::'), 0),
        (lane("no record", "os.unlink(os.environ['CLUSTERCTL_TEST_RECORD'])"), 1),
        (lane("skip", "", json.dumps({**PASSED, "outcome": "skipped", "because": "no skopeo here"})), 1),
        (
            lane(
                "excused",
                "",
                json.dumps({**PASSED, "outcome": "skipped", "because": "not next to this clone"}),
            ),
            0,
        ),
    ],
    ids=lambda value: value.lane.name if isinstance(value, Running) else "",
)
def test_a_run_is_green_only_if_its_lanes_are(running: Running, code: int) -> None:
    assert Runner("ordinary", [running]).run() == code


def test_a_lane_that_ends_at_once_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Popen reaps an ended child that nobody holds any more: it must be ours until it is waited for."""

    class Slow(threading.Thread):
        def start(self) -> None:
            gc.collect()
            subprocess.run(["sleep", "0.3"], check=True)
            super().start()

    monkeypatch.setattr(run_lanes.threading, "Thread", Slow)
    running = lane("at once", "")
    assert Runner("ordinary", [running]).run() == 0
    assert running.cpu_s > 0


def test_a_lane_that_cannot_be_waited_for_is_red(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Running, "wait", lambda _self, process: process.wait() and 1 / 0)
    assert Runner("ordinary", [lane("lost", "raise SystemExit(1)")]).run() == 1


def test_quiet_tests_may_start_when_all_other_lanes_have_ended(tmp_path: Path) -> None:
    waits = f"import fcntl\nfcntl.flock(open({str(tmp_path / 'quiet')!r}), fcntl.LOCK_SH)\n"
    ended = f"open({str(tmp_path / 'ended')!r}, 'w')"
    sees = f"assert os.path.exists({str(tmp_path / 'ended')!r})"
    runner = Runner("ordinary", [lane("quiet", waits + sees, quiet_last=True), lane("other", ended)])
    assert runner.run() == 0


def test_a_lane_starts_after_the_one_that_it_names(tmp_path: Path) -> None:
    made, sees = (
        f"open({str(tmp_path / 'made')!r}, 'w')",
        f"assert os.path.exists({str(tmp_path / 'made')!r})",
    )
    assert Runner("ordinary", [lane("second", sees, after="first"), lane("first", made)]).run() == 0


def test_when_told_to_end_all_lanes_are_ended_and_the_rest_is_reported(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    stays = (
        "import signal; signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])\n"
        "os.kill(os.getppid(), signal.SIGTERM); signal.sigwait([signal.SIGINT])\n"
        f"open({str(tmp_path / 'cleaned')!r}, 'w')"
    )
    assert Runner("ordinary", [lane("stays", stays)]).run() == 130
    assert (tmp_path / "cleaned").exists()
    assert "1 passed, 0 failed, 0 skipped" in capfd.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["-x"], {"bare", "harbor", "site", "unit", "programs", "images", "lint"}),
        (["-k", "docs"], {"bare", "harbor", "site", "unit", "programs", "images", "lint"}),
        (["tests/lab/test_road.py", "-x"], {"site"}),
        (["tests/bench"], set()),
        (["tests/lab"], {"bare", "harbor", "site"}),
        (["tests/unit/test_house.py::test_x"], {"unit"}),
    ],
)
def test_paths_among_the_arguments_choose_lanes(arguments: list[str], expected: set[str]) -> None:
    chosen = run_lanes.chosen_lanes("ordinary", arguments)
    assert {one.lane.name for one in chosen} == expected
    assert all(("-x" in one.command) is ("-x" in arguments) for one in chosen if one.lane.name != "lint")


def test_every_test_file_is_in_a_lane_of_the_slow_tier_or_in_a_tier_of_its_own() -> None:
    named = [lanes.ROOT / path for lane in lanes.lanes("slow") for path in lane.paths]
    elsewhere = [lanes.TESTS / "bench", lanes.TESTS / "frameworks"]  # --bench; test_paddle_in_image
    lost = [
        path
        for path in lanes.TESTS.rglob("test_*.py")
        if not any(path.is_relative_to(place) for place in (*named, *elsewhere))
    ]
    assert lost == []
