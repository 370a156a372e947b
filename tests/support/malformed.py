"""Answers of ranks that have not the form of an answer: not run, and never an error of the check."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from clustercheck.checks.base import Check, evaluate
from clustercheck.checks.support import seeding
from clustercheck.launch.model import RankOutcome
from clustercheck.model import Subject, Verdict
from clustercheck.samples import sample


def require_not_run(check: Check, change: Callable[[dict[str, Any]], object], node: str = "gpu02") -> None:
    """Asserts that a node whose first rank's answer is changed so is not run, for what it did not say."""

    def on(rank: RankOutcome, verdict: seeding.Raw) -> None:
        if rank.node == node and not rank.gpu:
            change(verdict)

    results = evaluate(check, seeding.verdicts(check.job, on)(sample.healthy()))
    (result,) = [one for one in results if one.subject == Subject(node)]
    assert result.verdict is Verdict.NOT_RUN, result.because
    assert "the check itself failed" not in result.because
    assert "cannot read" in result.because
