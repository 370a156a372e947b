"""Documents to look at: whole clusters judged from sample evidence, with the checks' own faults planted.

Each is made once: nobody may change it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

from clustercheck.checks.all import BY_ID, CHECKS
from clustercheck.checks.base import evaluate
from clustercheck.checks.peer_ports import JOB as PEER_PORTS
from clustercheck.checks.rdma_write import JOB as RDMA_WRITE
from clustercheck.checks.support import seeding
from clustercheck.checks.support.seeding_gpus import Seeds
from clustercheck.evidence.cluster import Evidence
from clustercheck.evidence.comparison import replaced
from clustercheck.expect import baseline
from clustercheck.launch.model import RankOutcome
from clustercheck.locate.culprits import find_culprits
from clustercheck.locate.faults import IsolationResult
from clustercheck.locate.pairs import read_pair_bandwidths
from clustercheck.locate.search import Search
from clustercheck.locate.trials import GroupLayout, TrialLimits
from clustercheck.result.document import Document
from clustercheck.result.environment import describe
from clustercheck.running.coverage import add_missing_results, count_coverage
from clustercheck.samples import gpus
from clustercheck.samples.sample import healthy

JOB_SIZES = tuple(1 << power for power in range(12, 27, 2))
SPEED_GBPS = 2.2
HOSTILE = (
    'a "quoted" \\ back\nslash | pipe <script>alert(1)</script> <img src=x onerror=alert(2)> '
    '`x` [y](z) *b* {c="d"} \x00 '
)
LATENCY_S = 250e-6


@cache
def passing(*, simulated: bool = False) -> Document:
    """Three nodes, everything good."""
    return judged(_as_simulated(_like_real(healthy(3))) if simulated else _like_real(healthy(3)))


@cache
def failing(*, simulated: bool = True) -> Document:
    """Three nodes with a lost GPU, a link down, errors in memory, another driver, and a slow node."""
    evidence = _like_real(healthy(3))
    for check, fault in (
        ("nvlink", "nvlink-down"),
        ("gpu-ecc", "ecc-dram"),
        ("driver-version", "driver-version-skew"),
        ("gpu-throttle", "hw-slowdown"),
    ):
        evidence = _fault(check, fault)(evidence)
    evidence = seeding.lose_gpu("gpu03", 5, from_bus=True)(evidence)
    evidence = _slow("gpu03", 0.04)(evidence)
    return judged(_as_simulated(evidence) if simulated else evidence)


@cache
def incomplete() -> Document:
    """Three nodes of which one was busy, and one counter was not printed: nothing is known to be bad."""
    evidence = _like_real(healthy(3))
    evidence = seeding.edit("gpu02", lambda raw: raw["busy"]["reasons"].append("a process on GPU 2"))(
        evidence
    )
    evidence = replace(evidence, left_out={"gpu02": "the node is busy: a process on GPU 2"})
    evidence = _fault("gpu-ecc", "counters-missing")(evidence)
    jobs = "of the nodes left none could be its partner"
    return judged(replace(evidence, jobs={}, skipped=dict.fromkeys(evidence.jobs, jobs)))


@cache
def compared() -> Document:
    """Eight nodes against their baseline: another driver, one GPU changed, one slower than it was."""
    then = judged(_like_real(healthy(8)))
    evidence = _like_real(healthy(8))
    evidence = _fault("driver-version", "driver-version-skew")(evidence)
    evidence = seeding.smi("gpu02", 5, "serial", "1650000029999")(evidence)
    evidence = _slow_gpu("gpu04", 2, 0.91)(evidence)
    found = baseline.from_result({**then.as_json(), "verdict": "pass"}, where="then")
    return judged(replace(evidence, baseline=found, replaced=replaced(evidence, found)))


@cache
def upgraded() -> Document:
    """Eight nodes after another kernel: memory is a little slower everywhere, one GPU much in products."""
    then = judged(_like_real(healthy(8))).as_json()
    for node in then["environment"]["nodes"].values():
        node["kernel"] = "6.1.0-38-amd64"
    evidence = _slow_gpu("gpu04", 2, 0.6)(_like_real(healthy(8)))
    evidence = Seeds("gpu_memory").scaled(None, None, 0.96)(evidence)
    found = baseline.from_result(then, where="then")
    return judged(replace(evidence, baseline=found, replaced=replaced(evidence, found)))


@cache
def other_variables() -> Document:
    """Eight nodes whose jobs have other variables than in the baseline: one everywhere, two on some nodes."""
    names = [node.name for node in healthy(8).spec.nodes]
    some = {"gpu02": {"NCCL_ALGO": "RING"}, "gpu03": {"NCCL_ALGO": "RING"}}
    then = {name: {"NCCL_IB_TC": "105", "NCCL_TOPO_FILE": "/etc/topo.xml"} for name in names}
    now = {name: {"NCCL_TOPO_FILE": "/etc/topo.xml", **some.get(name, {})} for name in names}
    now["gpu05"]["NCCL_TOPO_FILE"] = ""
    before = judged(with_variables(_like_real(healthy(8)), **then)).as_json()
    evidence = with_variables(_like_real(healthy(8)), **now)
    return judged(replace(evidence, baseline=baseline.from_result(before, where="then")))


def with_variables(evidence: Evidence, **by_node: dict[str, str]) -> Evidence:
    """The evidence of nodes whose settings give their ranks these variables."""
    nodes = tuple(
        replace(
            node,
            settings=replace(evidence.spec.settings_of(node.name), environment=by_node.get(node.name, {})),
        )
        for node in evidence.spec.nodes
    )
    return replace(evidence, spec=replace(evidence.spec, nodes=nodes))


@cache
def many(nodes: int) -> Document:
    """A large cluster with some of everything in it, measured in pairs as a search would."""
    evidence = large_evidence(nodes)
    evidence = seeding.lose_gpu("gpu42", 3, from_bus=True)(evidence)
    for node, gpu in (("gpu13", 1), ("gpu60", 6)):
        evidence = seeding.smi(node, gpu, "ecc_errors/volatile/dram_uncorrectable", "2")(evidence)
    return judged(_slow_gpu("gpu17", 4, 0.85)(evidence))


def large_evidence(nodes: int) -> Evidence:
    """Healthy, and not all alike: each GPU is its own. Pairs were measured with the next seven alone."""
    evidence = healthy(nodes, pair_rounds=7)
    return _each_gpu(lambda node, gpu: 1 + ((node * 37 + gpu * 11) % 29 - 14) / 1000, evidence)


@cache
def hundred() -> Document:
    """A hundred nodes: one gone, one taken out, one slow, a GPU lost and a few with errors in memory."""
    evidence = _like_real(healthy(100))
    evidence = seeding.lose_gpu("gpu42", 3, from_bus=True)(evidence)
    evidence = seeding.unreachable("gpu07", "no route to host")(evidence)
    for node, gpu in (("gpu13", 1), ("gpu77", 6)):
        evidence = seeding.smi(node, gpu, "ecc_errors/volatile/dram_uncorrectable", "2")(evidence)
    there = [name for name in evidence.nodes if name not in ("gpu07", "gpu55")]
    for job in evidence.jobs:
        evidence = seeding.only(job, *there, asked=False)(evidence)
    ranks = {rank.rank for rank in evidence.jobs[PEER_PORTS].ranks}

    def forget_others(_: RankOutcome, verdict: seeding.Raw) -> None:
        for name, of_peers in verdict.items():
            if name == "reached":
                verdict[name] = {peer: answer for peer, answer in of_peers.items() if int(peer) in ranks}
            elif name == "writes":
                verdict[name] = [write for write in of_peers if write["peer"] in ranks]

    for job in (PEER_PORTS, RDMA_WRITE):
        evidence = seeding.verdicts(job, forget_others)(evidence)
    evidence = _slow("gpu88", 0.03)(evidence)
    nodes = tuple(
        replace(each, excluded="memory is being replaced") if each.name == "gpu55" else each
        for each in evidence.spec.nodes
    )
    return judged(replace(evidence, spec=replace(evidence.spec, nodes=nodes)))


@cache
def hostile() -> Document:
    """The failing cluster, with hostile text wherever a node, a setting or a name could have brought it."""
    made = failing(simulated=False)
    nodes = {name: {**node, "kernel": HOSTILE} for name, node in made.environment["nodes"].items()}
    return replace(
        made,
        cluster=HOSTILE,
        results=tuple(
            replace(
                result,
                because=HOSTILE,
                remedy=HOSTILE,
                source=HOSTILE,
                method=HOSTILE,
                subject=replace(result.subject, node=result.subject.node and HOSTILE + result.subject.node),
                evidence={HOSTILE: HOSTILE},
            )
            for result in made.results
        ),
        culprits=tuple(
            replace(culprit, because=HOSTILE, remedy=HOSTILE, node=HOSTILE + culprit.node)
            for culprit in made.culprits
        ),
        environment={**made.environment, "nodes": nodes},
    )


def judged(evidence: Evidence) -> Document:
    """The document of this evidence, as a validation would write it."""
    results = add_missing_results(
        CHECKS, evidence, [r for check in CHECKS for r in evaluate(check, evidence)]
    )
    slow = any(r.check == "all-reduce-bandwidth" and r.verdict.value == "fail" for r in results)
    return Document(
        run="20261120T195700-validate-3fa2",
        started="2026-11-20T19:57:00Z",
        finished="2026-11-20T20:03:12Z",
        cluster="rack-a",
        suite="full",
        coverage=count_coverage(results),
        culprits=tuple(find_culprits(results, _searched(evidence) if slow else None, slow)),
        results=tuple(results),
        environment=describe(evidence),
        simulated=evidence.simulated,
    )


def _searched(evidence: Evidence) -> IsolationResult:
    """What the search tells of the pairs that were measured."""
    pairs = read_pair_bandwidths(evidence.jobs["pairs"])
    nodes = dict.fromkeys(rank.node for rank in evidence.jobs["pairs"].ranks)
    search = Search(GroupLayout(tuple(nodes)), TrialLimits(0.3125))
    while search.result is None:
        asked = search.next_round()
        search.add_results({trial: pairs[trial.nodes] for trial in asked if trial.nodes in pairs})
    return search.result


def _slow_gpu(node: str, gpu: int, factor: float) -> seeding.Inject:
    """All that this GPU computes takes longer."""

    def inject(evidence: Evidence) -> Evidence:
        for job in ("gpu_gemm", "gpu_burn"):
            evidence = Seeds(job).scaled(node, gpu, factor)(evidence)
        return evidence

    return inject


def _each_gpu(factor: Callable[[int, int], float], evidence: Evidence) -> Evidence:
    """Every figure of every GPU times what ``factor`` says of its node's number and its own."""
    number = {name: place for place, name in enumerate(evidence.nodes)}

    def change(rank: RankOutcome, said: dict[str, Any]) -> None:
        for figure in said["figures"]:
            figure["value"] *= factor(number[rank.node], rank.gpu or 0)

    for job in gpus.JOBS:
        evidence = seeding.verdicts(job, change)(evidence)
    return evidence


def _fault(check: str, name: str) -> seeding.Inject:
    return next(fault for fault in BY_ID[check].faults if fault.name == name).inject


def _as_simulated(evidence: Evidence) -> Evidence:
    for name in evidence.nodes:
        mark = "<nvidia_smi_log>\n<simulated>yes</simulated>"
        evidence = seeding.stdout(name, "nvidia_smi", "<nvidia_smi_log>", mark)(evidence)
    return evidence


def _like_real(evidence: Evidence) -> Evidence:
    """The sample says one speed for all; here small messages cost time, and every pair is its own."""
    return _each_rank(_rising, "all_reduce", _each_rank(_scattered, "pairs", evidence))


def _rising(said: dict[str, Any]) -> None:
    point = said["points"][0]
    said["points"] = []
    for size in JOB_SIZES:
        speed = size / (size / (SPEED_GBPS * 1e9) + LATENCY_S) / 1e9
        said["points"].append({**point, "bytes": size, "busbw_gbps": round(speed, 5)})


def _scattered(said: dict[str, Any]) -> None:
    for pair in said["trials"]:
        a, b = pair["ranks"]
        pair["busbw_gbps"] = round(SPEED_GBPS * (1 - 0.13 * ((a * 7 + b * 13) % 11) / 11), 4)


def _slow(node: str, factor: float) -> seeding.Inject:
    """The node's network carries a part of what the others' does: so does the whole group."""

    def inject(evidence: Evidence) -> Evidence:
        rank = next(one.rank for one in evidence.jobs["pairs"].ranks if one.node == node)

        def group(said: dict[str, Any]) -> None:
            for point in said["points"]:
                point["busbw_gbps"] *= factor

        def pairs(said: dict[str, Any]) -> None:
            for pair in said["trials"]:
                if rank in pair["ranks"]:
                    pair["busbw_gbps"] *= factor

        return _each_rank(pairs, "pairs", _each_rank(group, "all_reduce", evidence))

    return inject


def _each_rank(change: Any, job: str, evidence: Evidence) -> Evidence:
    return seeding.verdicts(job, lambda _rank, said: change(said))(evidence)
