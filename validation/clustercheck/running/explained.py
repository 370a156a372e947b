"""Descriptions of checks and suites, for the reference, for people and for programs."""

from __future__ import annotations

from typing import Any

from clustercheck.checks.base import Check
from clustercheck.model import Verdict
from clustercheck.running.suites import Suite


def phrases(check: Check) -> tuple[tuple[str, str], ...]:
    """A check in the words of the reference, as pairs of label and text."""
    return (
        ("measures", check.measures),
        ("how", check.method),
        ("requires", check.requires),
        ("expects", check.expectation),
        (_negative(check), f"{check.severity}: {check.severity.means}"),
        ("what to do", check.remedy),
    )


def may_warn(check: Check) -> bool:
    """Whether it has a warning among its verdicts, as its seeded faults prove."""
    return any(fault.verdict is Verdict.WARNING for fault in check.faults)


def _negative(check: Check) -> str:
    """The verdicts that its severity is about."""
    if not may_warn(check):
        return "a failure"
    fails = any(fault.verdict is Verdict.FAIL for fault in check.faults)
    return "a failure or warning" if fails else "a warning"


def record(check: Check) -> dict[str, Any]:
    """A check in JSON values."""
    return {
        "id": check.id,
        "title": check.title,
        "scope": check.scope.value,
        "severity": check.severity.value,
        "measures": check.measures,
        "method": check.method,
        "requires": check.requires,
        "expectation": check.expectation,
        "remedy": check.remedy,
        "job": check.job or None,
        "faults": [{"fault": fault.name, "verdict": fault.verdict.value} for fault in check.faults],
    }


def suite_record(suite: Suite) -> dict[str, Any]:
    """A suite in JSON values: its checks by id, its jobs with their time limits in seconds."""
    return {
        "suite": suite.name,
        "summary": suite.summary,
        "planned_s": suite.planned_s,
        "limit_min": suite.limit_min,
        "repeat_min": suite.repeat_min,
        "probe_limit_s": suite.probe_limit_s,
        "checks": [check.id for check in suite.selected()],
        "jobs": {name: {"timeout_s": job.timeout_s} for name, job in suite.jobs.items()},
    }
