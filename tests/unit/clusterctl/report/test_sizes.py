"""One node with megabytes of errors makes no report of a hundred nodes much longer."""

from __future__ import annotations

import json
from dataclasses import replace

from tests.support.validation_in_memory import Says

from clustercheck.checks.all import CHECKS
from clustercheck.checks.base import evaluate
from clustercheck.evidence.cluster import Evidence
from clustercheck.evidence.collect import read_output
from clustercheck.evidence.node import NodeEvidence
from clustercheck.expect import profiles
from clustercheck.launch.agent import Agent, NodeActionError
from clustercheck.launch.answers import WaitAnswer
from clustercheck.launch.model import JobOutcome, RankOutcome, RankState
from clustercheck.launch.transport import Completed
from clustercheck.result.document import Document
from clustercheck.result.environment import describe
from clustercheck.running.coverage import count_coverage
from clustercheck.samples import sample
from clusterctl.report import html, junit, markdown, prometheus

NODES = 100
ERROR = "no such device " * 333_333  # 5 MB
MOST_MORE = 300_000  # characters for each such node, in all reports together
ASKED = (sample.NOON, sample.NOON + 1.6)
RENDERERS = (html.render, junit.render, markdown.render, prometheus.render)
JOBS = ("all_reduce", "data_parallel", "inference", "gpu_gemm")
JUDGED = [check for check in CHECKS if not check.job or check.job in JOBS]


def report_size(evidence: Evidence) -> int:
    """Characters of all reports."""
    results = tuple(result for check in JUDGED for result in evaluate(check, evidence))
    document = Document(
        run="r",
        started="2026-11-24T00:00:00Z",
        finished="2026-11-24T00:10:00Z",
        cluster="sample",
        suite="quick",
        coverage=count_coverage(results),
        culprits=(),
        results=results,
        environment=describe(evidence),
    )
    return sum(len(render(document)) for render in RENDERERS)


def printed(name: str, record: object) -> NodeEvidence:
    """What the probe's reader makes of it."""
    return replace(read_output(name, Completed(0, json.dumps(record), "")), asked=ASKED)


def ended(node: str, said: object) -> RankOutcome:
    """A rank of which the launcher's reader makes this."""

    try:
        verdict = Agent(Says(json.dumps(said))).ask(node, {}, WaitAnswer, 1.0).ranks["1"].verdict
    except NodeActionError as error:
        return RankOutcome(1, node, RankState.FAILED, because=str(error), gpu=0)
    because = str((verdict or {}).get("because"))
    return RankOutcome(1, node, RankState.FAILED, because=because, verdict=verdict, gpu=0)


PARTS = [part for part in sample.probe_record(2) if part not in ("probe", "errors", "busy")]
FAILED_PROGRAM = {"rc": 1, "stderr": ERROR[:600_000], "skipped": ERROR[:600_000]}
PROBES = {
    "gpu02": {"probe": 1, "errors": dict.fromkeys(PARTS, ERROR[:150000])},
    "gpu03": {**sample.probe_record(3), **dict.fromkeys(PARTS[1:5], FAILED_PROGRAM)},
    "gpu04": {**sample.probe_record(4), "host": {"kernel": ERROR}},
}
ANSWERS = {
    "gpu05": {"ok": False, "because": ERROR},
    "gpu06": {"ok": True, "ranks": {"1": {"verdict": {"ok": False, "because": ERROR}}}},
    "gpu07": {"ok": True, "ranks": {"1": {"log_tail": ERROR}}},
}


def test_megabytes_of_errors_make_reports_of_a_hundred_nodes_little_longer() -> None:
    spec = sample.spec(NODES)
    nodes = {
        node.name: NodeEvidence(node.name, sample.probe_record(number), asked=ASKED)
        for number, node in enumerate(spec.nodes, start=1)
    }
    known = {sample.PROFILE: profiles.load(sample.PROFILE)}
    jobs = {name: JobOutcome(name, (), 1.0) for name in JOBS}
    healthy = Evidence(spec=spec, nodes=nodes, later=nodes, profiles=known, jobs=jobs)
    hostile_nodes = {**nodes, **{name: printed(name, record) for name, record in PROBES.items()}}
    ranks = tuple(ended(name, said) for name, said in ANSWERS.items())
    hostile = replace(
        healthy,
        nodes=hostile_nodes,
        later=hostile_nodes,
        jobs={name: JobOutcome(name, ranks, 1.0, first_failure=ranks[0]) for name in JOBS},
    )
    more = report_size(hostile) - report_size(healthy)
    assert 0 < more < MOST_MORE * (len(PROBES) + len(ANSWERS))
