"""NVLink errors are judged by what they grow during the jobs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from clustercheck import sample
from clustercheck.checks import seeding
from clustercheck.checks.all import BY_ID
from clustercheck.checks.base import evaluate
from clustercheck.evidence import Evidence
from clustercheck.model import Result, Verdict


def counted(replays: int) -> seeding.Inject:
    """On link 3 of the first GPU."""
    return seeding.stdout(
        "gpu01", "nvlink_errors", "Link 3: Replay Errors: 0", f"Link 3: Replay Errors: {replays}"
    )


def judged(evidence: Evidence) -> Result:
    return evaluate(BY_ID["nvlink-errors"], evidence)[0]


@pytest.mark.parametrize(
    ("before", "after", "verdict"),
    [
        (2, 2, Verdict.PASS),  # of last year
        (2, 3, Verdict.FAIL),
        (0, 1, Verdict.FAIL),
        (2, 0, Verdict.NOT_RUN),  # cleared in between
    ],
)
def test_what_grew_during_the_jobs_counts(before: int, after: int, verdict: Verdict) -> None:
    result = judged(seeding.chain(counted(before), seeding.later(counted(after)))(sample.healthy(1)))
    assert result.verdict is verdict
    if verdict is Verdict.PASS:
        assert result.evidence["before"] == {"link 3: replay errors": 2}


def test_without_a_job_older_errors_are_told_and_not_judged() -> None:
    idle = replace(sample.healthy(1), later={})
    assert judged(idle).verdict is Verdict.PASS
    result = judged(counted(2)(idle))
    assert result.verdict is Verdict.NOT_RUN and "link 3: 2 replay errors" in result.because
