"""`clusterctl validate --list` and `--self-test`: describe the checks and prove them; need no cluster."""

from __future__ import annotations

from collections.abc import Sequence

from clustercheck.running import suites
from clustercheck.running.explained import record, suite_record
from clustercheck.selftest import prove
from clusterctl import console
from clusterctl.errors import EXIT_CLUSTER_BAD, EXIT_GOOD
from clusterctl.report import checks


def list_checks(suite: str, only: Sequence[str], *, as_json: bool) -> int:
    """Explain a suite and its checks, or ``only`` these. Raises ExplainedError for unknown ones."""
    chosen = suites.load(suite).of_checks(only)
    if not as_json:
        console.write(checks.explained(chosen))
        return EXIT_GOOD
    for check in chosen.selected():
        console.emit({"type": "check", **record(check)})
    console.emit({"type": "suite", **suite_record(chosen)})
    return EXIT_GOOD


def self_test(*, as_json: bool) -> int:
    """Plant every fault of every check into healthy evidence: 0 if each is caught, else 1."""
    proofs = prove()
    good = all(proof.good for proof in proofs)
    code = EXIT_GOOD if good else EXIT_CLUSTER_BAD
    if not as_json:
        console.write(checks.proved(proofs))
        return code
    for proof in proofs:
        console.emit(
            {
                "type": "proof",
                "check": proof.check,
                "fault": proof.fault,
                "expected": proof.expected.value,
                "got": proof.got.value if proof.got else None,
                "because": proof.because,
                "good": proof.good,
            }
        )
    console.emit(
        {
            "type": "summary",
            "checks": len({proof.check for proof in proofs}),
            "proofs": len(proofs),
            "bad": sum(not proof.good for proof in proofs),
            "exit": code,
        }
    )
    return code
