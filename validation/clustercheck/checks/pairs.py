"""All-reduce between two nodes at a time: run where the whole group is slow."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from clustercheck.checks.all_reduce import JOB as GROUP_JOB
from clustercheck.checks.bandwidth import adapters_of
from clustercheck.checks.base import Check, Finding, SeededFault
from clustercheck.checks.support import seeding
from clustercheck.checks.support.job import backend_of, outcome_of, reason
from clustercheck.evidence.cluster import Evidence
from clustercheck.expect.network import NetworkExpectation, expectation
from clustercheck.launch.model import RankOutcome
from clustercheck.locate.pairs import sort_pair
from clustercheck.model import Figure, Limit, Scope, Section, Subject, Verdict
from clustercheck.parse.reading import CannotReadError

JOB = "pairs"
BETTER = "the median of the better third of the pairs"


def expected_of(evidence: Evidence, nodes: Iterable[str]) -> NetworkExpectation:
    """What these nodes' networks let a pair reach. Raises CannotReadError where a rate is not known."""
    outcome = evidence.jobs.get(GROUP_JOB) or outcome_of(evidence, JOB)
    return expectation(adapters_of(evidence, outcome, list(nodes), backend_of(outcome)))


def subjects(evidence: Evidence) -> list[Subject]:
    """The pairs that were asked for: none where the group was fast."""
    outcome = evidence.jobs.get(JOB)
    if outcome is None:
        return []
    asked = outcome.facts.get("pairs")
    named = (
        [sort_pair(str(a), str(b)) for a, b in asked]
        if isinstance(asked, list)
        else list(evidence.pairs.bandwidths)
    )
    return [Subject(a, None, b) for a, b in sorted(set(named))]


def judge(evidence: Evidence, subject: Subject) -> Finding:
    """A pair is bad below the floor, or below a part of what the better pairs reach."""
    outcome = outcome_of(evidence, JOB)
    pairs = evidence.pairs
    pair = sort_pair(str(subject.node), str(subject.peer))
    if pair not in pairs.bandwidths:
        raise CannotReadError(
            "the pair's ranks gave no bandwidth: " + (reason(outcome) if not outcome.good else "no error")
        )
    network = expected_of(evidence, pair)
    figure = Figure(
        metric="pair_busbw",
        measured=pairs.bandwidths[pair],
        unit="GB/s",
        method=CHECK.method,
        floor=Limit(network.floor_gbps, network.source, network.method),
        among=Limit(pairs.better_gbps, BETTER, network.bad_below_because, 1 - network.bad_below),
        nominal=network.nominal_gbps,
        effect=network.effect,
        conditions={"bytes": list(pairs.sizes)},
    )
    more = {"best_pair_gbps": round(pairs.best_gbps, 4)}
    return Finding(Verdict.PASS, figures=(figure,), evidence=more)


def slow_pairs(*slow: tuple[str, str], factor: float = 0.05) -> seeding.Inject:
    """These pairs slow, all others as they were."""

    def inject(evidence: Evidence) -> Evidence:
        node_of = {rank.rank: rank.node for rank in evidence.jobs[JOB].ranks}

        def change(_rank: RankOutcome, record: seeding.Raw) -> None:
            for point in record["trials"]:
                a, b = (node_of[number] for number in point["ranks"])
                if sort_pair(a, b) in {sort_pair(*pair) for pair in slow}:
                    point["busbw_gbps"] *= factor

        return seeding.verdicts(JOB, change)(evidence)

    return inject


def _scale(_metric: str, factors: Mapping[Subject, float]) -> seeding.Inject:
    pairs = [
        (slow_pairs((str(pair.node), str(pair.peer)), factor=factor)) for pair, factor in factors.items()
    ]
    return seeding.chain(*pairs)


def _wrong_between(*pair: str) -> seeding.Inject:
    def inject(evidence: Evidence) -> Evidence:
        node_of = {rank.rank: rank.node for rank in evidence.jobs[JOB].ranks}

        def change(_rank: RankOutcome, record: seeding.Raw) -> None:
            for point in record["trials"]:
                if {node_of[number] for number in point["ranks"]} == set(pair):
                    point["correct"] = False

        return seeding.verdicts(JOB, change)(evidence)

    return inject


CHECK = Check(
    id="pair-bandwidth",
    title="Pairs, bandwidth",
    section=Section.COLLECTIVES,
    scope=Scope.PAIR,
    measures="bus bandwidth of an all-reduce between two nodes",
    method="rounds of concurrent pairs with all their ranks, Paddle's all_reduce at a fixed size, median; "
    "the best of a pair's rounds",
    requires="a group that was slow, or whose sums were wrong",
    expectation=(
        "the floor of the group, and of the faster pairs' bandwidth half over sockets, 80 % over RDMA"
    ),
    remedy="Check cable, switch port, negotiated rate and errors (ethtool -S) of the named component.",
    subjects=subjects,
    judge=judge,
    job=JOB,
    scale=_scale,
    faults=(
        SeededFault(
            "slow-node", slow_pairs(("gpu01", "gpu02"), ("gpu02", "gpu03")), Subject("gpu01", None, "gpu02")
        ),
        SeededFault("slow-link", slow_pairs(("gpu01", "gpu03"), factor=0.3), Subject("gpu01", None, "gpu03")),
        SeededFault("wrong-sums", _wrong_between("gpu02", "gpu03"), Subject("gpu02", None, "gpu03")),
    ),
)
