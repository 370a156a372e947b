"""What the tests of reports share: whole documents, healthy or with one fault in them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from clustercheck.checks.all import CHECKS
from clustercheck.checks.base import evaluate
from clustercheck.evidence.cluster import Evidence
from clustercheck.model import Culprit, Verdict
from clustercheck.result.document import Document
from clustercheck.running.coverage import add_missing_results, count_coverage
from clustercheck.samples.sample import healthy


def planted(check: str, fault: str) -> Evidence:
    """Healthy evidence with one check's own fault in it."""
    chosen = next(one for one in CHECKS if one.id == check)
    return next(one for one in chosen.faults if one.name == fault).inject(healthy())


def document(
    evidence: Evidence | None = None, culprits: tuple[Culprit, ...] = (), **changed: Any
) -> Document:
    """A whole document, as validate makes it."""
    known = evidence or healthy()
    results = add_missing_results(CHECKS, known, [r for check in CHECKS for r in evaluate(check, known)])
    made = Document(
        run="20261120T195700-validate-3fa2",
        started="2026-11-20T19:57:00Z",
        finished="2026-11-20T19:58:12Z",
        cluster="mysite",
        suite="quick",
        coverage=count_coverage(results),
        culprits=culprits,
        results=tuple(results),
        environment={"image": "registry01:5000/paddle@sha256:0", "nodes": {"gpu01": {"kernel": "6.1"}}},
        simulated=known.simulated,
    )
    return replace(made, **changed)


def failing(because: str = "rank 1 on gpu02 crashed") -> Document:
    """A cluster with one crashed rank on gpu02, which is the culprit."""
    culprit = Culprit("node", "gpu02", because, "Look at its log.")
    made = document(planted("all-reduce", "node-lost"), (culprit,))
    failed = (
        replace(result, because=because) if result.verdict is Verdict.FAIL else result
        for result in made.results
    )
    return replace(made, results=tuple(failed))
