"""The coverage ledger: every expected subject x check has one verdict; a missing one is "not run"."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence

from clustercheck.checks.base import Check, expected_subjects
from clustercheck.evidence.cluster import Evidence
from clustercheck.model import Coverage, Result, Subject, Verdict


def add_missing_results(
    checks: Iterable[Check], evidence: Evidence, results: Sequence[Result]
) -> list[Result]:
    """The results, with a ``not_run`` for every expected cell without one.

    Raises ValueError if a cell has two results: that is a bug of a check.
    """
    judged: dict[str, list[Subject]] = defaultdict(list)
    for result in results:
        judged[result.check].append(result.subject)
    whole = list(results)
    for check in checks:
        subjects, expected = judged.pop(check.id, []), expected_subjects(check, evidence)
        if subjects != list(expected):  # nearly always they are the same objects
            seen = _require_each_once(check.id, subjects)
            whole += [_make_not_run(check, subject) for subject in expected if subject not in seen]
    for name, subjects in judged.items():
        _require_each_once(name, subjects)
    return whole


def _require_each_once(check: str, subjects: Iterable[Subject]) -> Collection[Subject]:
    seen = Counter(subjects)
    if doubled := [subject for subject, count in seen.items() if count > 1]:
        raise ValueError(f"more than one result of {check} for {doubled[0]}")
    return seen


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
