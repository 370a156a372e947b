"""Copies between the GPUs of a node, each pair: bandwidth, latency, and whether every byte arrives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from clustercheck.checks.base import Check, Finding, SeededFault, every_gpu, failed, not_applicable, not_run
from clustercheck.checks.support import seeding, seeding_gpus
from clustercheck.checks.support.gpu_job import REQUIRES, measured, rank_result
from clustercheck.checks.support.gpu_links import NodeLinks, PeerLink, limits_of_links
from clustercheck.evidence.cluster import Evidence
from clustercheck.evidence.gpu_jobs import is_positive, properties
from clustercheck.expect.effects import effect
from clustercheck.launch.model import RankOutcome, RankState
from clustercheck.model import Figure, Scope, Section, Subject, Verdict
from clustercheck.parse.plain_text import some_of
from clustercheck.parse.reading import CannotReadError

JOB = "gpu_peers"
BANDWIDTH, LATENCY = "peer_to_peer", "peer_latency"


def judge(evidence: Evidence, subject: Subject) -> Finding:
    """By the slowest and latest of its links that are not another GPU's fault; and every byte as it was."""
    rank = rank_result(evidence, JOB, subject)
    if isinstance(rank, Finding):
        return rank
    if not _said(rank):
        return not_applicable("the node has one GPU and no peers")
    name, gpu = str(subject.node), int(subject.gpu or 0)
    node = evidence.once(partial(_node, name=name), ("gpu-peers", name))
    own, unread = node.own(gpu), [why for (one, _), why in node.unread.items() if one == gpu]
    if not own and unread:
        raise CannotReadError(unread[0])
    if not own:
        return not_run(_nobody(_said(rank)))
    more = {
        "peers": {
            str(peer): round(node.links[gpu, peer].gbps, 3)
            for peer in node.peers(gpu)
            if (gpu, peer) in node.links
        },
        "not_its_own": [peer for peer in node.poor(gpu) if peer not in own],
    }
    ways = {peer: node.between(gpu, peer) for peer in own}
    if wrong := {peer: n for peer, links in ways.items() if (n := sum(link.wrong_bytes for link in links))}:
        named = ", ".join(f"GPU {peer} ({count} bytes)" for peer, count in wrong.items())
        return failed(
            f"copies to or from {named} arrive corrupted",
            "wrong bytes",
            "every byte right",
            evidence=more,
        )
    slowest = min(ways, key=lambda peer: min(link.gbps for link in ways[peer]))
    latest = max(link.latency_us for links in ways.values() for link in links)
    value = min(link.gbps for link in ways[slowest])
    way = node.way(gpu, slowest)
    found = replace(
        _figures(evidence, subject, rank, {BANDWIDTH: (value, way), LATENCY: (latest, "")}),
        evidence={
            **more,
            "slowest_with": slowest,
            "slowest_way": way,
            "direct": all(link.direct for link in ways[slowest]),
        },
    )
    return replace(found, verdict=Verdict.NOT_RUN, because=f"cannot read: {unread[0]}") if unread else found


def _nobody(record: Mapping[str, Any]) -> str:
    """Why no link of a GPU can be judged that names these peers."""
    named = some_of(sorted(map(str, record)), 4)
    return f"its peers ({named}) match no GPU of this node with a known PCI address"


def _figures(
    evidence: Evidence, subject: Subject, rank: RankOutcome, values: Mapping[str, tuple[float, str]]
) -> Finding:
    """The rank's own figures with these values, and words of which link: others' faults are not its own."""
    verdict = dict(rank.verdict or {})
    listed = verdict.get("figures")
    if not isinstance(listed, list) or not all(isinstance(each, dict) for each in listed):
        raise CannotReadError(f"rank {rank.rank} names no figures")
    found: list[Figure] = []
    for metric, kind in ((BANDWIDTH, "nvlink"), (LATENCY, "launch")):
        value, way = values[metric]
        own = [{**each, "value": value} for each in listed if each.get("metric") == metric]
        answer = replace(rank, verdict={**verdict, "ok": True, "because": "", "figures": own})
        told = measured(evidence, subject, answer, wanted=(metric,), effect=effect(kind)).figures
        found += [replace(each, label=f"{each.label} {way}".rstrip()) for each in told]
    return Finding(Verdict.PASS, figures=tuple(found))


def _said(rank: RankOutcome) -> Mapping[str, Any]:
    peers = (rank.verdict or {}).get("peers")
    if not isinstance(peers, Mapping):
        raise CannotReadError(f"rank {rank.rank} names no peers")
    return peers


def _node(evidence: Evidence, *, name: str) -> NodeLinks:
    """All links of a node."""
    ranks = {gpu: rank for (node, gpu), rank in evidence.gpu_jobs[JOB].ranks.items() if node == name}
    numbers = {str(properties(rank).get("pci_address")): gpu for gpu, rank in ranks.items()}
    links: dict[tuple[int, int], PeerLink] = {}
    unread: dict[tuple[int, int], str] = {}
    for gpu, rank in ranks.items():
        if rank.state is not RankState.OK or not isinstance((rank.verdict or {}).get("peers"), Mapping):
            continue  # it says for itself what became of it
        for address, answer in _said(rank).items():
            if address not in numbers:
                continue
            try:
                links[gpu, numbers[address]] = _link(answer, f"rank {rank.rank}, {address}")
            except CannotReadError as error:
                unread[gpu, numbers[address]] = str(error)
    least, most = limits_of_links(evidence, name, links)
    return NodeLinks(links, least, most, unread)


def _link(answer: Any, where: str) -> PeerLink:
    if not isinstance(answer, Mapping):
        raise CannotReadError(f"{where}: no record of a link")
    gbps, latency, wrong = (answer.get(key) for key in ("gbps", "latency_us", "wrong_bytes"))
    if not is_positive(gbps) or not is_positive(latency) or not isinstance(wrong, int) or wrong < 0:
        raise CannotReadError(f"{where}: no numbers of a link")
    return PeerLink(float(str(gbps)), float(str(latency)), wrong, answer.get("direct") is True)


def _changed(node: str, pairs: Mapping[tuple[int, int], Mapping[str, Any]]) -> seeding.Inject:
    """These links of a node otherwise: by number of the GPU and of its peer in the order of PCI addresses."""

    def one(gpu: int, changes: Mapping[int, Mapping[str, Any]]) -> seeding.Inject:
        def change(record: seeding.Raw) -> None:
            for peer, values in changes.items():
                # A GPU does not name itself: behind its own place the others move up.
                record["peers"][list(record["peers"])[peer - (peer > gpu)]].update(values)

        return _SEED.changed(node, gpu, change)

    gpus = sorted({gpu for gpu, _ in pairs})
    return seeding.chain(*(one(g, {b: v for (a, b), v in pairs.items() if a == g}) for g in gpus))


def _of_gpu(node: str, gpu: int, **values: Any) -> seeding.Inject:
    """Every link to and from one GPU."""
    others = [other for other in range(8) if other != gpu]
    return _changed(node, {pair: values for other in others for pair in ((gpu, other), (other, gpu))})


def factor_of(factors: Mapping[Subject, float], node: str, *gpus: int) -> float:
    """How many times as fast a copy between these GPUs of a node is made."""
    return next((factors[end] for gpu in gpus if (end := Subject(node, gpu)) in factors), 1.0)


def _scale(metric: str, factors: Mapping[Subject, float]) -> seeding.Inject:
    key = {BANDWIDTH: "gbps", LATENCY: "latency_us"}[metric]

    def change(rank: RankOutcome, verdict: seeding.Raw) -> None:
        own = int(rank.gpu or 0)
        for number, link in enumerate(verdict["peers"].values()):
            link[key] *= factor_of(factors, rank.node, own, number + (number >= own))

    return seeding.verdicts(JOB, change, factors)


_SEED = seeding_gpus.Seeds(JOB)
CHECK = Check(
    id="gpu-p2p-bandwidth",
    title="Between GPUs",
    section=Section.GPU_TESTS,
    scope=Scope.LINK,
    measures="bandwidth and latency of copies from each GPU to each other of its node, each way by itself, "
    "and whether every byte arrives",
    method="the CUDA driver's copies between peers, one pair and one way at a time while the node's other "
    "GPUs are idle, by the GPU's events, median",
    requires=f"two GPUs; {REQUIRES}",
    expectation="every byte as it was; the slowest link at least the profile's floor, where one is sourced; "
    "not behind equal GPUs, nor behind itself when it was good; not above what its NVLinks carry",
    remedy="See the NVLinks of both GPUs (nvidia-smi nvlink -s and -e) and Fabric Manager; without NVLink "
    "the PCIe switch between them, ACS and the IOMMU. Reset the GPU; reseat its board where it stays slow.",
    subjects=every_gpu,
    judge=judge,
    job=JOB,
    scale=_scale,
    faults=(
        SeededFault("gpu-slow-to-all", _of_gpu("gpu02", 3, gbps=90.0), Subject("gpu02", 3)),
        SeededFault("one-way-slow", _changed("gpu01", {(2, 5): {"gbps": 40.0}}), Subject("gpu01", 5)),
        SeededFault("bytes-differ", _changed("gpu03", {(6, 1): {"wrong_bytes": 3}}), Subject("gpu03", 6)),
        SeededFault(
            "slower-than-equals",
            seeding.chain(seeding_gpus.no_profile(), _of_gpu("gpu03", 4, gbps=190.0)),
            Subject("gpu03", 4),
        ),
        SeededFault("impossibly-fast", _of_gpu("gpu01", 0, gbps=400.0), Subject("gpu01", 0), Verdict.NOT_RUN),
        SeededFault("rank-crashes", _SEED.ended("gpu01", 3, RankState.CRASHED), Subject("gpu01", 3)),
        SeededFault(
            "no-peers-told", _SEED.says("gpu02", 0, peers=None), Subject("gpu02", 0), Verdict.NOT_RUN
        ),
        SeededFault(
            "no-numbers", _changed("gpu02", {(0, 1): {"gbps": None}}), Subject("gpu02", 0), Verdict.NOT_RUN
        ),
        SeededFault(
            "bytes-differ-beside-no-numbers",
            _changed("gpu02", {(0, 1): {"gbps": None}, (0, 2): {"wrong_bytes": 3}}),
            Subject("gpu02", 0),
        ),
        SeededFault(
            "slow-beside-no-numbers",
            seeding.chain(_of_gpu("gpu02", 3, gbps=90.0), _changed("gpu02", {(3, 1): {"gbps": None}})),
            Subject("gpu02", 3),
        ),
        SeededFault(
            "others-not-measured",
            seeding.chain(*(_SEED.ended("gpu02", gpu, RankState.KILLED) for gpu in range(1, 8))),
            Subject("gpu02", 0),
            Verdict.NOT_RUN,
        ),
        SeededFault("one-gpu", _SEED.says("gpu02", 0, peers={}), Subject("gpu02", 0), Verdict.EXCLUDED),
        SeededFault("job-missing", _SEED.missing(), Subject("gpu01", 0), Verdict.NOT_RUN),
    ),
)
