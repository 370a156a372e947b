"""The self-test of checks: healthy evidence passes, every planted fault changes the verdict, and every figure
fails 5 % beyond each of its limits, and passes 5 % within.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from clustercheck.checks.all import CHECKS
from clustercheck.checks.base import Check, evaluate
from clustercheck.checks.support.seeding_limits import limit_seeds
from clustercheck.evidence.cluster import Evidence
from clustercheck.model import Verdict
from clustercheck.samples.sample import healthy

NOT_IN_SAMPLE = "if the sample lacks what the check reads, add it in validation/clustercheck/samples/"


@dataclass(frozen=True)
class Proof:
    """One fault of one check. ``got`` is the resulting verdict, with the check's reason."""

    check: str
    fault: str
    expected: Verdict
    got: Verdict | None
    because: str

    @property
    def good(self) -> bool:
        """Whether the fault changed the verdict as expected."""
        return self.got is self.expected


HEALTHY = "(healthy evidence)"


def prove(checks: Sequence[Check] = CHECKS, evidence: Evidence | None = None) -> list[Proof]:
    """Run every check on healthy evidence, on each of its faults, and beside each limit of its figures."""
    baseline, sample = evidence or healthy(), cache(healthy)
    proofs = []
    for check in checks:
        proofs.append(_prove_healthy(check, baseline))
        if not check.faults:
            proofs.append(
                Proof(check.id, "(none)", Verdict.FAIL, None, "this check has no fault to prove itself by")
            )
        for fault in check.faults:
            results = {result.subject: result for result in evaluate(check, fault.inject(baseline))}
            result = results.get(fault.subject)
            got, because = (
                (result.verdict, result.because) if result else (None, f"no result for {fault.subject}")
            )
            proofs.append(Proof(check.id, fault.name, fault.verdict, got, because))
        for seed in limit_seeds(check, sample):
            proofs += [Proof(check.id, *each) for each in seed.verdicts()]
    return proofs


def _prove_healthy(check: Check, evidence: Evidence) -> Proof:
    results = evaluate(check, evidence)
    other = [result for result in results if result.verdict is not Verdict.PASS]
    if other or not results:
        got = other[0].verdict if other else None
        because = f"{other[0].subject}: {other[0].because}" if other else "the check has no subject"
        if got is not Verdict.FAIL:
            because = f"{because}; {NOT_IN_SAMPLE}"
        return Proof(check.id, HEALTHY, Verdict.PASS, got, because)
    return Proof(check.id, HEALTHY, Verdict.PASS, Verdict.PASS, f"{len(results)} subjects")
