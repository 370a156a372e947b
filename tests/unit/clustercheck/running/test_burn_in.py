"""A burn-in: the jobs again and again, until the time is over or one is not good; then another look."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest
from tests.support.validation_in_memory import FakeLauncher, records, run

from clustercheck.launch.model import JobOutcome, JobSpec
from clustercheck.running import burn_in, session
from clustercheck.running.suites import load
from clustercheck.samples import sample


def clock(step_s: float) -> Callable[[], float]:
    ticks = itertools.count(0.0, step_s)
    return lambda: next(ticks)


def passes_of(suite: str, launcher: FakeLauncher, step_s: float = 1800.0) -> tuple[int, list[Any]]:
    evidence = replace(sample.healthy(), jobs={})
    events: list[Any] = []
    found, _ = burn_in.run_passes(load(suite), evidence, launcher, events.append, clock(step_s))
    return found.passes, [event for event in events if event["type"] == "pass"]


def test_jobs_are_run_once_but_in_a_burn_in() -> None:
    assert passes_of("full", FakeLauncher()) == (1, [])
    number, told = passes_of("burn-in", FakeLauncher())
    assert number == 1 + len(told) > 2
    assert [event["pass"] for event in told] == list(range(2, number + 1))


def test_the_first_pass_that_is_not_good_is_the_last_and_is_judged() -> None:
    launcher = FakeLauncher()

    def wrong_sum(spec: JobSpec, node: str, verdict: dict[str, Any]) -> None:
        if spec.program == "all_reduce.py" and node == "gpu02" and len(launcher.jobs) > 2:
            verdict["points"][-1]["correct"] = False

    launcher.change = wrong_sum
    number, _ = passes_of("burn-in", launcher, step_s=1.0)
    assert number == 2


def test_a_burn_in_that_can_run_nothing_ends_immediately() -> None:
    class Broken(FakeLauncher):
        def run(self, spec: JobSpec, *, on_event: Callable[[Mapping[str, Any]], None]) -> JobOutcome:
            raise RuntimeError("no launcher")

    assert passes_of("burn-in", Broken(), step_s=1.0) == (1, [])


def test_nodes_are_probed_again_after_a_burn_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "run_passes", lambda *given: burn_in.run_passes(*given, clock=clock(1e6)))
    looks = itertools.count()

    def changing() -> dict[str, Any]:
        record = sample.probe_record(1)
        if next(looks):
            record["kernel_log"]["kept"].append(
                "2026-11-20T10:00:00.000000+0000 host kernel: NVRM: Xid (PCI:0000:07:00): 79, fallen off"
            )
        return record

    document = run({**records(), "gpu01": changing}, suite="burn-in")
    assert document["environment"]["passes"] == 1
    (failed,) = [r for r in document["results"] if r["verdict"] == "fail"]
    assert failed["check"] == "xid" and failed["subject"]["node"] == "gpu01"
