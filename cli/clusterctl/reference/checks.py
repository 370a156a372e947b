"""Every check and suite of a validation, from what the checks say of themselves."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from clustercheck.checks.base import Check
from clustercheck.running.explained import may_warn, phrases
from clustercheck.running.suites import Suite
from clusterctl.reference.markdown import bullets, code, page, table
from clusterlab.faults.base import LabFault

INTRODUCTION = """\
What `clusterctl validate` judges. Each check comes to a verdict on every subject that the inventory
expects, whatever was found: what could not be judged is `not_run`, and never green. Checks with a job
are heavy: they leave busy nodes alone. The severity tells what a failure means to who uses the cluster, and
turns no verdict. Each check ships seeded faults: `clusterctl validate --self-test` plants them into healthy
evidence, and each must turn the verdict as named. It also plants every figure 5 % beyond each of its limits
(floor, ceiling, baseline, equals), which must be found, and 5 % within, which must pass. Lab faults are found
by the check on lab hosts, see [Faults of the lab](faults.md). `clusterctl validate --list` prints the checks
of a suite."""
WARNINGS = """\
## Warnings

A warning is for what could be better, as a plain operating system brings it. It is counted and shown with its
remedy, and fails the validation only with `validation_strict: true`. These checks may warn:"""


def render(checks: Iterable[Check], suites: Mapping[str, Suite], lab_faults: Iterable[LabFault]) -> str:
    """The page."""
    checks, lab_faults = tuple(checks), tuple(lab_faults)
    rows = [
        (f"[{c.id}](#{c.id})", c.scope, c.severity, c.measures, code(c.job) if c.job else "") for c in checks
    ]
    return page(
        "Checks",
        INTRODUCTION,
        table(("check", "scope", "severity", "measures", "job"), rows),
        WARNINGS,
        bullets(f"[{c.id}](#{c.id})" for c in checks if may_warn(c)),
        "## Suites\n\n`clusterctl validate --suite NAME`.",
        table(
            (
                "suite",
                "what",
                "planned, minutes",
                "at most",
                "checks",
                "jobs, and after how many seconds each is ended",
            ),
            (_suite_row(suite) for suite in suites.values()),
        ),
        *(_section(check, lab_faults) for check in checks),
    )


def _suite_row(suite: Suite) -> tuple[str, ...]:
    named = suite.checks
    chosen = "all" if named == "all" else f"those without a job, {', '.join(map(code, named))}"
    if suite.without:
        chosen = f"{chosen} but {', '.join(map(code, suite.without))}"
    jobs = ", ".join(f"{code(name)} {job.timeout_s:g}" for name, job in suite.jobs.items())
    return (
        code(suite.name),
        suite.summary,
        f"{suite.planned_s / 60:.0f}",
        f"{suite.limit_min:g}",
        chosen,
        jobs,
    )


def _section(check: Check, lab_faults: Iterable[LabFault]) -> str:
    faults = ", ".join(f"{code(fault.name)} ({fault.verdict})" for fault in check.faults)
    in_lab = ", ".join(code(fault.kind) for fault in lab_faults if check.id in fault.caught_by)
    described = (*phrases(check), ("seeded faults (self-test)", faults), ("lab faults", in_lab or "none"))
    facts = [f"{word}: {text}" for word, text in described]
    return f"## {check.id}\n\n{check.title}; one verdict a {check.scope}.\n\n{bullets(facts)}"
