"""Patterns through each GPU's memory: does every word hold what was written to it?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from clustercheck.checks.base import Check, Finding, SeededFault, every_gpu, failed, not_run, passed
from clustercheck.checks.support import seeding_gpus
from clustercheck.checks.support.gpu_job import REQUIRES, rank_result
from clustercheck.evidence.cluster import Evidence
from clustercheck.evidence.gpu_jobs import is_positive
from clustercheck.launch.model import RankOutcome, RankState
from clustercheck.model import Scope, Section, Severity, Subject, Verdict
from clustercheck.parse.reading import CannotReadError

JOB = "gpu_pattern"
GIB = 2**30


def judge(evidence: Evidence, subject: Subject) -> Finding:
    """No word may differ, in all the memory that was asked for."""
    rank = rank_result(evidence, JOB, subject)
    if isinstance(rank, Finding):
        return rank
    verdict = rank.verdict or {}
    try:
        account = _account(rank)
    except CannotReadError:
        told = verdict.get("pattern_test")
        if isinstance(told, Mapping) and is_positive(told.get("errors")):
            message = str(verdict.get("because") or "words did not hold the written data")
            return failed(message, told["errors"], 0, unit="wrong words", evidence=dict(told))
        raise
    errors, tested, asked = account["errors"], account["tested_bytes"], account["asked_bytes"]
    more: dict[str, Any] = {
        "unit": "wrong words",
        "method": f"{account['patterns']} patterns over {tested / GIB:.4g} GiB",
        "evidence": dict(account),
    }
    if errors:
        message = str(verdict.get("because") or f"{errors} words did not hold the written data")
        return failed(message, errors, 0, **more)
    if tested < asked or verdict.get("ok") is not True:
        message = str(verdict.get("because") or f"only {tested} of {asked} bytes were tested")
        return not_run(message, measured=errors, expected=0, **more)
    return passed(errors, 0, **more)


def _account(rank: RankOutcome) -> Mapping[str, Any]:
    """The account of the test. Raises CannotReadError where a count is none, or nothing was tested."""
    account = (rank.verdict or {}).get("pattern_test")
    if not isinstance(account, Mapping):
        raise CannotReadError(f"rank {rank.rank} does not report its patterns")
    for name, least in (("patterns", 1), ("tested_bytes", 1), ("asked_bytes", 1), ("errors", 0)):
        value = account.get(name)
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise CannotReadError(f"rank {rank.rank} gives no {name.replace('_', ' ')} of its patterns")
    return account


def _account_says(node: str, gpu: int, **changes: Any) -> Any:
    return _SEED.changed(node, gpu, lambda answer: answer["pattern_test"].update(changes))


_SEED = seeding_gpus.Seeds(JOB)
CHECK = Check(
    id="gpu-memory-pattern",
    title="Memory patterns",
    section=Section.GPU_TESTS,
    scope=Scope.GPU,
    measures="words of the GPU's memory that differ from what was written to them",
    method="zeros, ones, alternating and walking bits, each word its own number; all written before any is "
    "read",
    requires=REQUIRES,
    expectation="no wrong word in as much memory as the suite asks",
    remedy="Note the addresses and bits, reset the GPU, test again; if words are wrong then, replace it.",
    subjects=every_gpu,
    judge=judge,
    job=JOB,
    severity=Severity.CRITICAL,
    faults=(
        SeededFault("stuck-bit", _account_says("gpu02", 7, errors=3), Subject("gpu02", 7)),
        SeededFault(
            "stuck-bit-beside-a-count-not-told",
            _account_says("gpu02", 6, errors=3, patterns=None),
            Subject("gpu02", 6),
        ),
        SeededFault(
            "memory-taken",
            _account_says("gpu01", 0, tested_bytes=1 << 20),
            Subject("gpu01", 0),
            Verdict.NOT_RUN,
        ),
        SeededFault(
            "nothing-tested", _account_says("gpu01", 0, patterns=0), Subject("gpu01", 0), Verdict.NOT_RUN
        ),
        SeededFault("rank-hangs", _SEED.ended("gpu03", 2, RankState.HUNG), Subject("gpu03", 2)),
        SeededFault("job-missing", _SEED.missing(), Subject("gpu01", 0), Verdict.NOT_RUN),
        SeededFault(
            "no-account", _SEED.says("gpu01", 0, pattern_test=None), Subject("gpu01", 0), Verdict.NOT_RUN
        ),
    ),
)
