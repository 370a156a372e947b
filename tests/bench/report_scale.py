"""Judges one simulated cluster and writes all of its reports: what that takes, as one JSON object.

A process a size, since memory that was once taken is not released.
"""

from __future__ import annotations

import gc
import json
import pickle
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.bench.work_unit import unit_s
from tests.support.judged import large_evidence

from clustercheck.checks import nccl_transport, pairs
from clustercheck.checks.base import evaluate
from clustercheck.evidence.cluster import Evidence
from clustercheck.result.document import Document
from clustercheck.result.environment import describe
from clustercheck.result.gc_pause import gc_paused
from clustercheck.running import suites
from clustercheck.running.coverage import add_missing_results, count_coverage
from clusterctl.report import files
from clusterctl.runs.store import Run


def judge(evidence: Evidence, suite: str, spent: dict[str, float]) -> Document:
    """What `validate` does with the evidence of all nodes; ``spent`` gets the seconds of CPU of each part.

    What a check reads first, others then have: it is read before all of them.
    """
    checks = suites.load(suite).selected()
    results = []
    with gc_paused():
        with _spent(spent, READING):
            for node in evidence.nodes.values():
                node.read_parts()
        for check in checks:
            with _spent(spent, check.id):
                results += evaluate(check, evidence)
        with _spent(spent, LEDGER):
            whole = add_missing_results(checks, evidence, results)
            coverage = count_coverage(whole)
    with _spent(spent, ENVIRONMENT):
        environment = describe(evidence)
    return Document(
        run="20261120T195700-validate-3fa2",
        started="2026-11-20T19:57:00Z",
        finished="2026-11-20T20:03:12Z",
        cluster="rack-a",
        suite=suite,
        coverage=coverage,
        culprits=(),
        results=tuple(whole),
        environment=environment,
    )


@contextmanager
def _spent(spent: dict[str, float], part: str) -> Iterator[None]:
    began = time.process_time()
    yield
    spent[part] = time.process_time() - began


READING, LEDGER, ENVIRONMENT = "(reading)", "(ledger)", "(environment)"


def collected(nodes: int, suite: str) -> Evidence:
    """As nodes and jobs would have told it: the jobs of the suite, and no pairs, as no group is slow."""
    wanted = {check.job for check in suites.load(suite).selected()} - {pairs.JOB} | {nccl_transport.HEARD}
    evidence = large_evidence(nodes)
    return replace(evidence, jobs={name: job for name, job in evidence.jobs.items() if name in wanted})


def measure(nodes: int, suite: str) -> dict[str, Any]:
    """Seconds of CPU and MiB of memory: ``judging_mib`` the most until the verdict, ``most_mib`` of all."""
    taken: dict[str, Any] = {"nodes": nodes, "suite": suite}
    with tempfile.TemporaryDirectory() as folder:
        made_up = Path(folder) / "evidence"
        # Made in another process: what making it leaves behind is not a part of judging it.
        subprocess.run(
            [sys.executable, "-m", "tests.bench.report_scale", str(nodes), suite, str(made_up)], check=True
        )
        with made_up.open("rb") as stream:
            evidence: Evidence = pickle.load(stream)  # noqa: S301 - our own
    gc.collect()
    suites.load(suite)  # the same for any number of nodes
    unit = unit_s()
    taken["evidence_mib"] = _now_mib()
    spent: dict[str, float] = {}
    document = judge(evidence, suite, spent)
    taken["judge_s"], taken["spent"] = sum(spent.values()), spent
    taken["judging_mib"] = _most_mib()
    del evidence
    gc.collect()
    taken["results"] = len(document.results)
    taken["verdict"] = document.verdict
    with tempfile.TemporaryDirectory() as folder:
        run = Run(document.run, "validate", (), document.started, "", "", 0, directory=Path(folder))
        began = time.process_time()
        files.write_result(run, document)
        unmade = files.write_reports(run, document)
        taken["report_s"] = time.process_time() - began
        if unmade:
            raise RuntimeError("; ".join(unmade))
        taken["files"] = {path.name: path.stat().st_size for path in sorted(Path(folder).iterdir())}
    taken["most_mib"] = _most_mib()
    taken["unit_s"] = (unit + unit_s()) / 2
    return taken


def _now_mib() -> float:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize() / 2**20


def _most_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    if len(sys.argv) > 3:
        with Path(sys.argv[3]).open("wb") as written:
            pickle.dump(collected(int(sys.argv[1]), sys.argv[2]), written)
    else:
        json.dump(measure(int(sys.argv[1]), sys.argv[2]), sys.stdout)
