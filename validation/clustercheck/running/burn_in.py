"""Runs the jobs of a suite once, or repeatedly for hours to find faults that are thermal or intermittent."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from clustercheck.checks.base import evaluate
from clustercheck.evidence.cluster import Evidence
from clustercheck.launch.model import Launcher
from clustercheck.locate.faults import IsolationResult
from clustercheck.model import Verdict
from clustercheck.running.group import run_jobs
from clustercheck.running.job_runner import OnEvent
from clustercheck.running.single import run_single_gpu_jobs
from clustercheck.running.suites import Suite


def run_passes(
    suite: Suite,
    evidence: Evidence,
    launcher: Launcher,
    on_event: OnEvent,
    clock: Callable[[], float] = time.monotonic,
) -> tuple[Evidence, IsolationResult | None]:
    """The evidence of the last pass over all jobs; the first pass that is not good is the last.

    No pass starts after the suite's ``repeat_min``; a running one is completed.
    """
    end = clock() + 60 * suite.repeat_min
    number = 1
    found, isolated = _run_pass(suite, evidence, launcher, on_event)
    while clock() < end and _is_good(suite, found):
        number += 1
        on_event({"type": "pass", "pass": number, "left_s": round(end - clock())})
        found, isolated = _run_pass(suite, evidence, launcher, on_event)
    return replace(found, passes=number), isolated


def _run_pass(
    suite: Suite, evidence: Evidence, launcher: Launcher, on_event: OnEvent
) -> tuple[Evidence, IsolationResult | None]:
    """All jobs once: those of the group, then those of single GPUs."""
    found, isolated = run_jobs(suite, evidence, launcher, on_event)
    return run_single_gpu_jobs(suite, found, launcher, on_event), isolated


def _is_good(suite: Suite, evidence: Evidence) -> bool:
    """Whether something passed and nothing failed or was not run: otherwise another pass proves nothing."""
    verdicts = {
        result.verdict for check in suite.selected() if check.job for result in evaluate(check, evidence)
    }
    return Verdict.PASS in verdicts and verdicts <= {Verdict.PASS, Verdict.WARNING, Verdict.EXCLUDED}
