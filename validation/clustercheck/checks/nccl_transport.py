"""By what transport NCCL joined the GPUs: the log of the all-reduce, read for each node."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from clustercheck.checks import all_reduce
from clustercheck.checks.base import (
    Check,
    Finding,
    SeededFault,
    every_node,
    failed,
    not_applicable,
    passed,
)
from clustercheck.checks.support import seeding
from clustercheck.checks.support.job import ended_badly, ranks_of
from clustercheck.checks.support.nccl import HEARD, log_of, no_nccl, site_of
from clustercheck.evidence.cluster import Evidence
from clustercheck.launch.model import RankOutcome
from clustercheck.launch.on_node import NCCL_LOG_CUT
from clustercheck.model import Scope, Section, Subject, Verdict
from clustercheck.parse.nccl_findings import NcclSite, findings
from clustercheck.parse.nccl_log import NcclLog
from clustercheck.parse.reading import NotDoneError

JOB = all_reduce.JOB
SOURCE = "NCCL's own log (NCCL_DEBUG=INFO)"
_VERSION = re.compile(r"NCCL version (\d+)\.(\d+)\.(\d+)")
_MISMATCHED = re.compile(
    r"Mismatched NCCL version detected : rank (\d{1,9}) version (\d{1,9}) rank (\d{1,9}) version (\d{1,9})"
)
ONE_VERSION = (
    "Run one image by its digest on all nodes, and look for another libnccl.so that LD_LIBRARY_PATH, "
    "LD_PRELOAD or a mount brings into the container."
)


def judge(evidence: Evidence, subject: Subject) -> Finding:
    """Every connection of the node's ranks must take the best transport that its hardware has."""
    node = str(subject.node)
    if node in (apart := evidence.once(_of_another_version)):
        return failed(apart[node], "two versions", "one version", source=SOURCE, remedy=ONE_VERSION)
    outcome = evidence.jobs.get(HEARD)
    if outcome is None or not ranks_of(outcome, node):
        return ended_badly(evidence, JOB, subject) or no_nccl(evidence, subject)
    if not outcome.good:
        raise NotDoneError("the all-reduce whose log would tell did not succeed")
    if len(outcome.ranks) < 2:
        return not_applicable("one rank: there is nothing to connect")
    log = log_of(evidence, node)
    answer = _summary(log)
    found = findings(log, evidence.once(_site))
    # Warnings are shown; NCCL warns of things that do no harm too.
    if wrong := [each for each in found if node in each.hosts and each.code != "warnings"]:
        more = {**answer, "findings": [each.code for each in wrong]}
        because = "; ".join(each.seen for each in wrong)
        return failed(
            because, wrong[0].code, "no finding", source=SOURCE, evidence=more, remedy=wrong[0].remedy
        )
    return passed(answer["connections"], "the best transport there is", source=SOURCE, evidence=answer)


def _site(evidence: Evidence) -> NcclSite:
    return site_of(evidence, evidence.jobs[HEARD])


def _summary(log: NcclLog) -> dict[str, Any]:
    roads = Counter(f"NET/{joined.how}" if joined.road == "NET" else joined.road for joined in log.joined)
    across = [joined for joined in log.joined if log.crosses(joined) and joined.road == "NET"]
    return {
        "nccl": log.version,
        "connections": ", ".join(f"{count} {road}" for road, count in sorted(roads.items())),
        "gpudirect": f"used by {sum(joined.gpudirect for joined in across)} of {len(across)}",
        "adapters": sorted({name for joined in across if (name := log.adapter(joined))}),
        "warnings": list(log.warnings[:3]),
    }


def _of_another_version(evidence: Evidence) -> dict[str, str]:
    """By node whose NCCL is not of the version that most nodes have: what was seen, in any launch.

    A rank's log tells of its own version alone: what it says of other ranks, they say themselves.
    """
    launches = [*evidence.attempts.get(JOB, ()), *filter(None, (evidence.jobs.get(HEARD),))]
    apart: dict[str, str] = {}
    for outcome in launches:
        node_of = {rank.rank: rank.node for rank in outcome.ranks}
        versions: dict[int, str] = {}
        for rank in outcome.ranks:
            if match := _VERSION.search(rank.nccl_log):
                versions[rank.rank] = ".".join(match.groups())
            for found in _MISMATCHED.findall(rank.nccl_log):
                for of, code in (found[:2], found[2:]):
                    if int(of) == rank.rank:
                        versions[rank.rank] = _dotted(int(code))
        apart |= _minority(versions, node_of)
    return apart


def _minority(versions: Mapping[int, str], node_of: Mapping[int, str]) -> dict[str, str]:
    """By node that runs another version than most nodes; all of them where no version has most."""
    of_node = {node_of[rank]: version for rank, version in versions.items()}
    counts = Counter(of_node.values()).most_common(2)
    if len(counts) < 2:
        return {}
    (usual, most), (_, second) = counts
    tie = ": which is right cannot be determined" if most == second else ""
    return {
        node: f"NCCL {version} here, {' and '.join(sorted(set(of_node.values()) - {version}))} elsewhere{tie}"
        for node, version in of_node.items()
        if tie or version != usual
    }


def _dotted(code: int) -> str:
    """NCCL_VERSION_CODE of 2.9 and later."""
    return f"{code // 10000}.{code % 10000 // 100}.{code % 100}"


def _says(node: str, change: Callable[[str], str]) -> seeding.Inject:
    """NCCL says something else on a node's ranks."""

    def inject(evidence: Evidence) -> Evidence:
        outcome = evidence.jobs[HEARD]

        def changed(rank: RankOutcome) -> RankOutcome:
            return replace(rank, nccl_log=change(rank.nccl_log)) if rank.node == node else rank

        ranks = tuple(map(changed, outcome.ranks))
        if ranks == outcome.ranks:
            raise LookupError("there is nothing to change in NCCL's log")
        return seeding.with_job(evidence, replace(outcome, ranks=ranks))

    return inject


def _instead(node: str, pattern: str, by: str) -> seeding.Inject:
    return _says(node, lambda text: re.sub(pattern, by, text))


def _over_gloo(evidence: Evidence) -> Evidence:
    return seeding.without_job(evidence, HEARD)


def _idle(evidence: Evidence) -> Evidence:
    return seeding.with_facts(_over_gloo(evidence), JOB, backend="gloo")


def _other_library(evidence: Evidence) -> Evidence:
    """As NCCL ends where one node brings another library: an attempt, and the group again without it."""
    outcome = evidence.jobs[HEARD]
    first = {"gpu01": (16, 22005, 22203), "gpu02": (16, 22005, 22203), "gpu03": (0, 22203, 22005)}

    def warns(rank: RankOutcome) -> str:
        other, theirs, own = first[rank.node]
        return (
            f"{rank.node}:1:1 [0] init.cc:9 NCCL WARN Mismatched NCCL version detected : "
            f"rank {other} version {theirs} rank {rank.rank} version {own}\n"
        )

    ranks = [replace(rank, nccl_log=warns(rank)) for rank in outcome.ranks]
    outcome = replace(outcome, job=JOB, ranks=tuple(ranks))
    return replace(evidence, attempts={JOB: (outcome,)})


_IN_MEMORY = "SHM/direct/direct"
CHECK = Check(
    id="nccl-transport",
    title="NCCL's transports",
    section=Section.COLLECTIVES,
    scope=Scope.GROUP,
    measures=(
        "the transports that NCCL chose between the GPUs: peer-to-peer access, host memory, sockets or "
        "RDMA, by which adapters, and whether GPUDirect RDMA is used"
    ),
    method="NCCL's log of the all-reduce on every rank: NCCL_DEBUG=INFO with "
    "NCCL_DEBUG_SUBSYS=INIT,ENV,NET,GRAPH",
    requires="a training image with CUDA, at least two ranks over NCCL",
    expectation="RDMA if there are adapters, those of the rails, with GPUDirect where an adapter is next "
    "to each GPU; peer-to-peer access where the topology has it; one version of NCCL",
    remedy="Read NCCL's log on this node (NCCL_DEBUG=INFO), and check the NCCL_* variables of the image.",
    subjects=every_node,
    judge=judge,
    job=JOB,
    faults=(
        SeededFault("sockets", _instead("gpu02", r"NET/IB/\d/GDRDMA", "NET/Socket/0"), Subject("gpu02")),
        SeededFault("gpudirect-off", _instead("gpu02", "/GDRDMA", ""), Subject("gpu02")),
        SeededFault("wrong-adapter", _instead("gpu03", r"via NET/IB/1", "via NET/IB/2"), Subject("gpu03")),
        SeededFault("rail-not-used", _instead("gpu03", r" \[1\]mlx5_1:1/IB", ""), Subject("gpu03")),
        SeededFault("host-memory", _instead("gpu01", r"P2P/CUMEM/read", _IN_MEMORY), Subject("gpu01")),
        SeededFault("ring-over-sys", _instead("gpu02", "type NVL/PXB", "type SYS/SYS"), Subject("gpu02")),
        SeededFault("other-version", _other_library, Subject("gpu03")),
        SeededFault(
            "log-cut-off", _says("gpu02", lambda text: text[:900]), Subject("gpu02"), Verdict.NOT_RUN
        ),
        SeededFault("no-log-of-a-rank", _says("gpu02", lambda text: ""), Subject("gpu02"), Verdict.NOT_RUN),
        SeededFault(
            "too-long",
            _says("gpu02", lambda text: f"{text}{NCCL_LOG_CUT}\n"),
            Subject("gpu02"),
            Verdict.NOT_RUN,
        ),
        SeededFault("over-gloo", _over_gloo, Subject("gpu01"), Verdict.EXCLUDED),
        SeededFault("gpus-idle", _idle, Subject("gpu01"), Verdict.NOT_RUN),
    ),
)
