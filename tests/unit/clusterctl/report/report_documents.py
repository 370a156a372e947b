"""What the tests of reports share: whole documents, healthy or with one fault in them."""

from __future__ import annotations

from typing import Any

from clustercheck.checks.all import CHECKS
from clustercheck.checks.base import evaluate
from clustercheck.evidence.cluster import Evidence
from clustercheck.model import Culprit
from clustercheck.result.document import Document
from clustercheck.running.coverage import add_missing_results, count_coverage
from clustercheck.samples.sample import healthy


def planted(check: str, fault: str) -> Evidence:
    """Healthy evidence with one check's own fault in it."""
    chosen = next(one for one in CHECKS if one.id == check)
    return next(one for one in chosen.faults if one.name == fault).inject(healthy())


def document(
    evidence: Evidence | None = None, culprits: tuple[Culprit, ...] = (), **changed: Any
) -> dict[str, Any]:
    """A whole document, as validate writes it."""
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
    ).as_json()
    return {**made, **changed}


def failing(because: str = "rank 1 on gpu02 crashed") -> dict[str, Any]:
    """A cluster with one crashed rank on gpu02, who is blamed for it."""
    culprit = Culprit("node", "gpu02", because, "Look at its log.")
    made = document(planted("all-reduce", "node-lost"), (culprit,))
    for result in made["results"]:
        if result["verdict"] == "fail":
            result["because"] = because
    return made
