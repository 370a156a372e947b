"""The coverage ledger: every expected subject x check has one verdict; a missing one is "not run"."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from clustercheck.checks.base import Check, expected_subjects
from clustercheck.evidence.cluster import Evidence
from clustercheck.model import Coverage, Result, Subject, Verdict


def add_missing_results(
    checks: Iterable[Check], evidence: Evidence, results: Sequence[Result]
) -> list[Result]:
    """The results, with a ``not_run`` for every expected cell without one.

    Raises ValueError if a cell has two results: that is a bug of a check.
    """
    seen = Counter((result.check, result.subject) for result in results)
    if doubled := [cell for cell, count in seen.items() if count > 1]:
        raise ValueError(f"more than one result of {doubled[0][0]} for {doubled[0][1]}")
    whole = list(results)
    for check in checks:
        for subject in expected_subjects(check, evidence):
            if (check.id, subject) not in seen:
                whole.append(_make_not_run(check, subject))
    return whole


def _make_not_run(check: Check, subject: Subject) -> Result:
    return Result(
        check.id,
        check.scope,
        subject,
        Verdict.NOT_RUN,
        because="the check gave no result",
        method=check.method,
    )


def count_coverage(results: Sequence[Result]) -> Coverage:
    """The number of cells by verdict."""
    verdicts = Counter(result.verdict for result in results)
    return Coverage(
        expected=len(results),
        passed=verdicts[Verdict.PASS],
        failed=verdicts[Verdict.FAIL],
        warnings=verdicts[Verdict.WARNING],
        not_run=verdicts[Verdict.NOT_RUN],
        excluded=verdicts[Verdict.EXCLUDED],
    )
