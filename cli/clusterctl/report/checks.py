"""What validation checks, and the result of its self-test, as text for the terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence

from clustercheck.running.explained import phrases
from clustercheck.running.suites import Suite
from clustercheck.selftest import HEALTHY, Proof
from clusterctl.engine.wording import counted

WIDTH, INDENT = 100, 24


def explained(suite: Suite) -> str:
    """A suite: its jobs with their time limits, and a description of every check."""
    checks = suite.selected()
    lines = [
        f"{suite.name}: {suite.summary}",
        f"{counted(len(checks), 'check')}; time limit of each probe command: {suite.probe_limit_s:g} s",
        f"duration without faults: {suite.planned_s / 60:.0f} minutes planned, "
        f"{suite.limit_min - suite.repeat_min:g} at most",
    ]
    lines += [f"job {name}: time limit {job.timeout_s:g} s" for name, job in suite.jobs.items()]
    if suite.repeat_min:
        lines.append(f"the jobs are repeated for {suite.repeat_min:g} minutes, until one fails")
    for check in checks:
        heavy = f", of job {check.job}" if check.job else ""
        lines += ["", f"{check.id}: {check.title}; one result per {check.scope}{heavy}"]
        faults = ", ".join(fault.name for fault in check.faults)
        for word, text in (*phrases(check), ("seeded faults", faults)):
            lines.append(_hanging(word, text))
    return "\n".join(lines) + "\n"


def _hanging(word: str, text: str) -> str:
    return textwrap.fill(
        text,
        WIDTH,
        initial_indent=f"  {word:<{INDENT - 2}}",
        subsequent_indent=" " * INDENT,
        break_long_words=False,
        break_on_hyphens=False,
    )


def proved(proofs: Sequence[Proof]) -> str:
    """One row per check: how many of its faults it caught, and whether healthy evidence passes."""
    rows = [("check", "healthy", "faults caught"), *map(_row, *_by_check(proofs))]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    cells = ([f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)] for row in rows)
    lines = ["  ".join(row).rstrip() for row in cells]
    wrong = [proof for proof in proofs if not proof.good]
    for proof in wrong:
        got = f"{proof.got or 'no verdict'} instead of {proof.expected}"
        lines.append(f"{proof.check}: {proof.fault}: {got}; {proof.because}")
    faults = [proof for proof in proofs if proof.fault != HEALTHY]
    lines.append(
        f"{len(rows) - 1} checks, {len(faults)} faults: {sum(proof.good for proof in faults)} caught; "
        + ("every check passed" if not wrong else f"{len(wrong)} proofs failed")
    )
    return "\n".join(lines) + "\n"


def _by_check(proofs: Iterable[Proof]) -> tuple[list[str], list[list[Proof]]]:
    together: dict[str, list[Proof]] = {}
    for proof in proofs:
        together.setdefault(proof.check, []).append(proof)
    return list(together), list(together.values())


def _row(check: str, proofs: Sequence[Proof]) -> tuple[str, str, str]:
    healthy = [proof for proof in proofs if proof.fault == HEALTHY]
    faults = [proof for proof in proofs if proof.fault != HEALTHY]
    passes = "passes" if healthy and all(proof.good for proof in healthy) else "does not pass"
    return check, passes, f"{sum(proof.good for proof in faults)} of {len(faults)}"
