"""Every check and suite of a validation, from what the checks say of themselves."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from clustercheck.checks.base import Check
from clustercheck.suites import Suite
from clusterctl.reference.markdown import bullets, code, page, table

INTRODUCTION = """\
What `clusterctl validate` judges. Each check comes to a verdict on every subject that the inventory
expects, whatever was found: what could not be judged is `not_run`, and never green. Checks with a job
are heavy: they leave busy nodes alone. Each check ships faults that it must catch; tests plant them into
healthy evidence, and look for the verdict."""


def render(checks: Iterable[Check], suites: Mapping[str, Suite]) -> str:
    """The page."""
    checks = tuple(checks)
    rows = [(f"[{c.id}](#{c.id})", c.scope, c.measures, code(c.job) if c.job else "") for c in checks]
    return page(
        "Checks",
        INTRODUCTION,
        table(("check", "scope", "measures", "job"), rows),
        "## Suites\n\n`clusterctl validate --suite NAME`.",
        table(("suite", "what", "checks"), (_suite_row(suite) for suite in suites.values())),
        *map(_section, checks),
    )


def _suite_row(suite: Suite) -> tuple[str, str, str]:
    chosen = "all" if suite.checks == "all" else ", ".join(map(code, suite.checks))
    if suite.leaves_out:
        chosen = f"{chosen} but {', '.join(map(code, suite.leaves_out))}"
    return code(suite.name), suite.summary, chosen


def _section(check: Check) -> str:
    faults = ", ".join(f"{code(fault.name)} ({fault.verdict})" for fault in check.faults)
    facts = (
        f"measures: {check.measures}",
        f"how: {check.method}",
        f"requires: {check.requires}",
        f"expects: {check.expectation}",
        f"what to do: {check.remedy}",
        f"must catch: {faults}",
    )
    return f"## {check.id}\n\n{check.title}; one verdict a {check.scope}.\n\n{bullets(facts)}"
