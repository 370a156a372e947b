"""Copies between the GPUs of a node at the same time: both ways of each pair, and all GPUs together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from clustercheck.checks.base import Check, Finding, SeededFault, every_gpu, failed, not_applicable
from clustercheck.checks.gpu_peer_bandwidth import factor_of
from clustercheck.checks.support import seeding, seeding_gpus
from clustercheck.checks.support.gpu_job import REQUIRES, measured, rank_result
from clustercheck.checks.support.gpu_links import NodeLinks, PeerLink, least_of_alike
from clustercheck.evidence.cluster import Evidence
from clustercheck.evidence.gpu_jobs import is_positive, properties
from clustercheck.expect.effects import effect
from clustercheck.launch.model import RankOutcome, RankState
from clustercheck.model import Figure, Scope, Section, Subject, Verdict
from clustercheck.parse.reading import CannotReadError

JOB = "gpu_exchange"
BOTH_WAYS, ALL_AT_ONCE = "peer_both_ways", "peer_all_at_once"
METHODS = {BOTH_WAYS: "both ways together, one pair at a time", ALL_AT_ONCE: "one way, all GPUs at once"}


@dataclass(frozen=True)
class NodeExchange:
    """Every pair of a node both ways, and each way while all copy; why the latter could not be read."""

    pairs: NodeLinks
    together: NodeLinks
    unread: str


def judge(evidence: Evidence, subject: Subject) -> Finding:
    """By the slowest pair, and the slowest way while all copy, that are not another GPU's fault."""
    rank = rank_result(evidence, JOB, subject)
    if isinstance(rank, Finding):
        return rank
    if not _said(rank, "both_ways"):
        return not_applicable("the node has one GPU and no peers")
    name, gpu = str(subject.node), int(subject.gpu or 0)
    node = evidence.once(partial(_node, name=name), ("gpu-exchange", name))
    own, unread = node.pairs.own(gpu), [why for (one, _), why in node.pairs.unread.items() if one == gpu]
    if not own:
        raise CannotReadError(unread[0] if unread else "its peers match no GPU of this node")
    wrong = {one: n for (one, to), way in node.together.links.items() if to == gpu and (n := way.wrong_bytes)}
    if wrong:
        senders = ", ".join(f"GPU {one}" for one in wrong)
        return failed(
            f"{max(wrong.values())} bytes or more arrive corrupted from {senders} while all GPUs copy",
            "wrong bytes",
            "every byte right",
        )
    slowest = min(own, key=partial(_slowest_gbps, node.pairs, gpu))
    values = {BOTH_WAYS: _slowest_gbps(node.pairs, gpu, slowest)}
    more: dict[str, Any] = {
        "slowest_with": slowest,
        "not_its_own": [peer for peer in node.pairs.poor(gpu) if peer not in own],
    }
    if mine := node.together.own(gpu):
        slowest = min(mine, key=partial(_slowest_gbps, node.together, gpu))
        values[ALL_AT_ONCE] = _slowest_gbps(node.together, gpu, slowest)
        more["slowest_with_while_all_copy"] = slowest
    found = Finding(Verdict.PASS, figures=_figures(evidence, subject, rank, values), evidence=more)
    doubts = [f"cannot read: {why}" for why in unread]
    doubts += [] if mine else [f"not known while all GPUs copy: {node.unread}"]
    return replace(found, verdict=Verdict.NOT_RUN, because=doubts[0]) if doubts else found


def _slowest_gbps(links: NodeLinks, gpu: int, peer: int) -> float:
    return min(link.gbps for link in links.between(gpu, peer))


def _figures(
    evidence: Evidence, subject: Subject, rank: RankOutcome, values: Mapping[str, float]
) -> tuple[Figure, ...]:
    """As the rank's own, also what another measured. Without NVSwitch the place decides what GPUs share."""
    listed = [
        {"metric": metric, "value": value, "unit": "GB/s", "method": METHODS[metric]}
        for metric, value in values.items()
    ]
    answer = replace(rank, verdict={**(rank.verdict or {}), "ok": True, "because": "", "figures": listed})
    found = measured(evidence, subject, answer, wanted=tuple(values), effect=effect("nvlink")).figures
    profile = evidence.profile(str(subject.node))
    if profile is not None and profile.switched:
        return found
    return tuple(replace(one, conditions={**one.conditions, "gpu": str(subject.gpu)}) for one in found)


def _said(rank: RankOutcome, key: str) -> Mapping[str, Any]:
    answer = (rank.verdict or {}).get(key)
    if not isinstance(answer, Mapping):
        raise CannotReadError(f"rank {rank.rank} does not say {key}")
    return answer


def _node(evidence: Evidence, *, name: str) -> NodeExchange:
    """All that the ranks of a node say."""
    ranks = {gpu: rank for (node, gpu), rank in evidence.gpu_jobs[JOB].ranks.items() if node == name}
    numbers = {str(properties(rank).get("pci_address")): gpu for gpu, rank in ranks.items()}
    links: dict[tuple[int, int], PeerLink] = {}
    unread: dict[tuple[int, int], str] = {}
    together: dict[tuple[int, int], PeerLink] = {}
    because = "no GPU measured it"
    for gpu, rank in ranks.items():
        if rank.state is not RankState.OK or not isinstance((rank.verdict or {}).get("both_ways"), Mapping):
            continue  # it says for itself what became of it
        for address, answer in _said(rank, "both_ways").items():
            if (peer := numbers.get(address)) is None:
                continue
            gbps = answer.get("gbps") if isinstance(answer, Mapping) else None
            if is_positive(gbps):
                links[gpu, peer] = PeerLink(float(str(gbps)), 1.0, 0, answer.get("direct") is True)
            else:
                unread[gpu, peer] = f"rank {rank.rank}, {address}: no number of a pair"
        try:
            together |= _together(rank, numbers)
        except CannotReadError as error:
            because = str(error)
    return NodeExchange(
        NodeLinks(links, least_of_alike(evidence, name, links), {}, unread),
        NodeLinks(together, least_of_alike(evidence, name, together), {}, {}),
        because,
    )


def _together(rank: RankOutcome, numbers: Mapping[str, int]) -> dict[tuple[int, int], PeerLink]:
    """Each way, as the rank says that measured all of them; nothing of the others' ranks."""
    found = {}
    for address, answer in _said(rank, "together").items():
        if address not in numbers:
            continue
        ways, wrong = (
            (answer.get("gbps"), answer.get("wrong")) if isinstance(answer, Mapping) else (None, None)
        )
        if not isinstance(ways, Mapping) or not isinstance(wrong, Mapping) or not ways:
            raise CannotReadError(f"rank {rank.rank}, {address}: no numbers of a GPU")
        for target, gbps in ways.items():
            if target not in numbers:
                continue
            count = wrong.get(target, 0)
            if not is_positive(gbps):
                raise CannotReadError(f"rank {rank.rank}, {address}: no number of a way")
            if not isinstance(count, int) or count < 0:
                raise CannotReadError(f"rank {rank.rank}, {address}: no count of wrong bytes")
            found[numbers[address], numbers[target]] = PeerLink(float(str(gbps)), 1.0, count, direct=True)
    return found


_SEED = seeding_gpus.Seeds(JOB)


def _pairs_of(node: str, gpu: int, gbps: float) -> seeding.Inject:
    """Every pair of one GPU, whichever of both measured it."""

    of_rank = partial(_change_pairs, gpu=gpu, gbps=gbps)
    return seeding.chain(*(_SEED.changed(node, own, partial(of_rank, own=own)) for own in range(8)))


def _change_pairs(record: seeding.Raw, *, own: int, gpu: int, gbps: float) -> None:
    for number, entry in enumerate(record["both_ways"].values()):
        if gpu in (own, number + (number >= own)):  # a GPU does not name itself
            entry["gbps"] = gbps


def _while_all_copy(node: str, gpu: int, gbps: float | None) -> seeding.Inject:
    """What the first GPU says of one while all copy: to it as from it."""

    def change(record: seeding.Raw) -> None:
        own = list(record["together"])[gpu]
        for place, answer in record["together"].items():
            answer["gbps"].update({to: gbps for to in answer["gbps"] if own in (place, to)})

    return _SEED.changed(node, 0, change)


def _corrupted(node: str, source: int, target: int) -> seeding.Inject:
    def change(record: seeding.Raw) -> None:
        places = list(record["together"])
        record["together"][places[source]]["wrong"] = {places[target]: 12}

    return _SEED.changed(node, 0, change)


def _scale(metric: str, factors: Mapping[Subject, float]) -> seeding.Inject:
    def change(rank: RankOutcome, verdict: seeding.Raw) -> None:
        own, places = int(rank.gpu or 0), list(verdict["together"])
        if metric == BOTH_WAYS:
            for number, pair in enumerate(verdict["both_ways"].values()):
                pair["gbps"] *= factor_of(factors, rank.node, own, number + (number >= own))
            return
        for gpu, answer in enumerate(verdict["together"].values()):
            for target in answer["gbps"]:
                answer["gbps"][target] *= factor_of(factors, rank.node, gpu, places.index(target))

    return seeding.verdicts(JOB, change, factors)


CHECK = Check(
    id="gpu-p2p-exchange",
    title="Between GPUs, at the same time",
    section=Section.GPU_TESTS,
    scope=Scope.LINK,
    measures="bandwidth of copies both ways at once between each pair of a node's GPUs, and of each GPU "
    "while all of them copy, each to every other in turn; whether every byte arrives then",
    method="the CUDA driver's copies between peers on a stream of each GPU, by the GPUs' events, median",
    requires=f"two GPUs; {REQUIRES}",
    expectation="every byte as it was; no floor has a source: not behind equal GPUs (without NVSwitch those "
    "at the same place of equal nodes), nor behind itself when it was good; not above what its links carry, "
    "of a pair twice that",
    remedy="Compare with one way at a time (gpu-p2p-bandwidth): if that is slow too, it is the link; if only "
    "this is, the NVSwitches or the PCIe switch that all share (nvidia-smi nvlink -e, Fabric Manager's log, "
    "SXid lines of the kernel log).",
    subjects=every_gpu,
    judge=judge,
    job=JOB,
    scale=_scale,
    faults=(
        SeededFault("slow-both-ways", _pairs_of("gpu02", 3, 250.0), Subject("gpu02", 3)),
        SeededFault("slow-while-all-copy", _while_all_copy("gpu02", 5, 110.0), Subject("gpu02", 5)),
        SeededFault("bytes-differ-under-load", _corrupted("gpu03", 6, 1), Subject("gpu03", 1)),
        SeededFault(
            "impossibly-fast",
            _pairs_of("gpu01", 0, 1.05 * 1.02 * 600.0),
            Subject("gpu01", 0),
            Verdict.NOT_RUN,
        ),
        SeededFault(
            "impossibly-fast-while-all-copy",
            _while_all_copy("gpu01", 2, 1.05 * 1.02 * 300.0),
            Subject("gpu01", 2),
            Verdict.NOT_RUN,
        ),
        SeededFault("rank-crashes", _SEED.ended("gpu01", 3, RankState.CRASHED), Subject("gpu01", 3)),
        SeededFault(
            "nothing-told", _SEED.says("gpu02", 0, both_ways=None), Subject("gpu02", 0), Verdict.NOT_RUN
        ),
        SeededFault("no-numbers", _while_all_copy("gpu02", 4, None), Subject("gpu02", 4), Verdict.NOT_RUN),
        SeededFault("one-gpu", _SEED.says("gpu02", 0, both_ways={}), Subject("gpu02", 0), Verdict.EXCLUDED),
    ),
)
