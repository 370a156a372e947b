"""Bandwidth of the all-reduce across the group, at fixed sizes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from clustercheck.checks.all_reduce import JOB
from clustercheck.checks.base import GROUP as ALL
from clustercheck.checks.base import Check, Finding, SeededFault, the_group
from clustercheck.checks.support import seeding, seeding_figures
from clustercheck.checks.support.job import backend_of, ended_badly, outcome_of, points_of, rate_of
from clustercheck.checks.support.nccl import are_joined_by_nvlink, reduced_in_switch
from clustercheck.evidence.cluster import Evidence
from clustercheck.evidence.comparison import before_of
from clustercheck.evidence.rails import compute_ports, declared_rails, require_known_rails
from clustercheck.expect.collective import network_ceiling_gbps
from clustercheck.expect.effects import effect
from clustercheck.expect.judge import judge as judge_figure
from clustercheck.expect.network import Adapter, chosen_sockets, expectation, rdma_adapter, socket_adapter
from clustercheck.expect.physics import all_reduce_ceiling_gbps
from clustercheck.expect.profiles import Metric
from clustercheck.launch.model import JobOutcome, RankOutcome, RankState
from clustercheck.model import Effect, Figure, Limit, Scope, Section, Subject, Verdict
from clustercheck.parse.hca_list import parse_hca_list
from clustercheck.parse.reading import CannotReadError, NotDoneError

ABOVE_CEILING = 0.02  # clocks and medians: a measurement may sit this little above physics
PHYSICS = "what the links carry as bus bandwidth"
IN_SWITCH = f"{PHYSICS}, each end its data once: the switch reduces"
METRIC = "busbw_"  # and the size in bytes
METHOD = "fixed-size all-reduce, bus bandwidth as nccl-tests defines it"


@dataclass(frozen=True)
class GroupLimits:
    """What one size is judged by, in GB/s of bus bandwidth; without a floor where nobody knows a number.

    The ceiling is drawn from ``wire_gbps``, what the links of each end carry one way.
    """

    floor: Limit | None
    ceiling: Limit | None
    nominal: float | None
    method: str
    effect: Effect | None
    wire_gbps: float | None


def judge(evidence: Evidence, _subject: Subject) -> Finding:
    """Every size that has a floor must reach it; the largest of them is shown where all do."""
    if (finding := ended_badly(evidence, JOB, ALL)) is not None:
        return finding
    outcome = outcome_of(evidence, JOB)
    points, unread = curve(outcome)
    judged = {size: limits for size in points if (limits := limits_at(evidence, outcome, size)) is not None}
    return compare(evidence, CHECK.id, points, judged, outcome, unread=unread)


def compare(
    evidence: Evidence,
    check: str,
    points: Mapping[int, Mapping[str, Any]],
    limits: Mapping[int, GroupLimits],
    outcome: JobOutcome,
    *,
    subject: Subject = ALL,
    unread: str = "",
) -> Finding:
    """The finding of a curve by size in bytes. Raises CannotReadError where no size has limits.

    ``unread`` is why some nodes are not in it: then it can only fail.
    Sizes without a floor are compared with the baseline; where none has a floor, else nobody can judge.
    """
    if not limits:
        raise CannotReadError("none of the measured sizes is judged")
    with_floor = [size for size, each in limits.items() if each.floor is not None]
    nodes = sorted({rank.node for rank in outcome.ranks})
    backend = backend_of(outcome)
    conditions = {"nodes": nodes, "ranks": len(outcome.ranks), "backend": backend}
    # Across nodes all of them, so that a baseline has what has no floor; there the largest has one.
    judged = sorted(limits if len(nodes) > 1 else with_floor or limits, reverse=True)
    more = {
        "nodes": nodes,
        "ranks": len(outcome.ranks),
        "backend": backend,
        "judged_bytes": judged[0],
        "points": [_point(points[size], limits.get(size)) for size in sorted(points)],
    }
    figures = tuple(_figure(size, points[size]["busbw_gbps"], limits[size], conditions) for size in judged)
    before = before_of(evidence, check)
    finding = Finding(Verdict.PASS, evidence=more, figures=figures)
    if unread:
        return replace(finding, verdict=Verdict.NOT_RUN, because=f"cannot read: {unread}")
    is_known = with_floor or any(before(subject, each) is not None for each in figures)
    if is_known or any(judge_figure(each).verdict is Verdict.NOT_RUN for each in figures):
        return finding  # nothing excuses what physics does not allow
    if because := evidence.skipped.get(outcome.job):  # the launch of the large sizes
        raise NotDoneError(because)
    because = NO_FLOOR if len(nodes) == 1 else NO_PLATEAU
    if len(nodes) > 1 and is_one_nvlink_domain(evidence, outcome):
        because = NO_NVLINK_FLOOR
    return replace(finding, verdict=Verdict.EXCLUDED, because=because)


def _figure(size: int, busbw: float, limits: GroupLimits, conditions: Mapping[str, Any]) -> Figure:
    return Figure(
        metric=f"{METRIC}{size}",
        measured=busbw,
        unit="GB/s",
        method=f"{limits.method}; {size} bytes",
        label=f"at {size} bytes",
        ceiling=limits.ceiling,
        floor=limits.floor,
        nominal=limits.nominal,
        effect=limits.effect,
        conditions=conditions,
    )


def curve(
    outcome: JobOutcome, points: Callable[[RankOutcome], Sequence[Mapping[str, Any]]] = points_of
) -> tuple[dict[int, dict[str, Any]], str]:
    """By size in bytes what the slowest rank measured; and why some nodes are not in it, else nothing.

    A slow group is slow on every rank: where half of the nodes can be read, the others hide nothing. A size
    counts that half of the nodes name, however many ranks each has: one that a single one of several invents
    is nobody's, and one of two hides none by not naming it. Raises CannotReadError where fewer can be read.
    """
    slowest: dict[int, dict[str, Any]] = {}
    named: Counter[int] = Counter()
    unread: list[CannotReadError] = []
    for ranks in outcome.by_node.values():
        try:
            measured = [(*rate_of(rank, point), point) for rank in ranks for point in points(rank)]
        except CannotReadError as error:
            unread.append(error)
            continue
        named.update({size for size, _, _ in measured})
        for size, busbw, point in measured:
            if size not in slowest or busbw < slowest[size]["busbw_gbps"]:
                slowest[size] = dict(point)
    if 2 * len(unread) > len(outcome.by_node):
        raise unread[0]
    enough = {size: point for size, point in slowest.items() if 2 * named[size] >= len(outcome.by_node)}
    return enough, str(unread[0]) if unread else ""


def failed_sizes(evidence: Evidence) -> list[int]:
    """The sizes in bytes that missed their floor, or their baseline. Raises CannotReadError."""
    before = before_of(evidence, CHECK.id)
    return sorted(
        int(figure.metric.removeprefix(METRIC))
        for figure in judge(evidence, ALL).figures
        if any(p.verdict is Verdict.FAIL for p in judge_figure(figure, before(ALL, figure)).parts)
    )


NO_FLOOR = (
    "no floor has a source for these GPUs within one node at these sizes, and there is no baseline: save "
    "one when the node is known to be good (validate --save-baseline)"
)
NO_PLATEAU = (
    "no message was large enough for the network's plateau, and no baseline has these sizes: run a "
    "larger suite, or save a baseline when the cluster is known to be good (validate --save-baseline)"
)
NO_NVLINK_FLOOR = (
    "NVLink joins these nodes, no floor has a source for that, and there is no baseline: save one when the "
    "group is known to be good (validate --save-baseline)"
)
LATENCY_BOUND_BYTES = 16 * 1024 * 1024  # smaller ones measure latency, not the network's rate


def limits_at(
    evidence: Evidence, outcome: JobOutcome, size: int, collective: str = "all_reduce"
) -> GroupLimits | None:
    """Floor and ceiling for a size: from the network across nodes, from the profile within one, or where
    NVLink joins the nodes.

    For another ``collective`` the floor is its own across nodes, the rest an all-reduce's.
    """
    nodes = sorted({rank.node for rank in outcome.ranks})
    backend = backend_of(outcome)
    if size < LATENCY_BOUND_BYTES:
        return None
    if is_one_nvlink_domain(evidence, outcome):
        return _within(evidence, nodes[0], len(outcome.ranks), size)
    network = expectation(adapters_of(evidence, outcome, nodes, backend), collective)
    in_switch = reduced_in_switch(evidence).network
    ceiling = network.ceiling_gbps
    if ceiling is not None:
        ranks = len(outcome.ranks)
        ceiling = (
            network_ceiling_gbps("all_reduce", ceiling, len(nodes), ranks, reduced_in_switch=in_switch)
            or None
        )
    bound, method = f"rate of {network.bound}", IN_SWITCH if in_switch else PHYSICS
    plateau = max(network.from_bytes, network.from_bytes_per_rank * len(outcome.ranks))
    return GroupLimits(
        Limit(network.floor_gbps, network.source, network.method) if size >= plateau else None,
        Limit(ceiling, bound, method, ABOVE_CEILING) if ceiling is not None else None,
        network.nominal_gbps,
        network.method,
        network.effect,
        network.ceiling_gbps,
    )


def is_one_nvlink_domain(evidence: Evidence, outcome: JobOutcome) -> bool:
    """Whether what joins the GPUs of one node joins all of them, and not the network.

    A group on one node has ranks over NCCL: over gloo a node has one rank.
    """
    nodes = {rank.node for rank in outcome.ranks}
    return len(nodes) == 1 or (backend_of(outcome) == "nccl" and are_joined_by_nvlink(evidence, nodes))


def _within(evidence: Evidence, node: str, ranks: int, size: int) -> GroupLimits | None:
    profile = evidence.profile(node)
    floor = profile.floor(Metric.ALL_REDUCE, gpus=ranks, size_bytes=size) if profile else None
    in_switch = profile is not None and (
        profile.reduced_in_switch or node in reduced_in_switch(evidence).nodes
    )
    ceiling = (
        all_reduce_ceiling_gbps(profile.gpu_link_gbps, ranks, reduced_in_switch=in_switch)
        if profile
        else None
    )
    name = profile.name if profile else ""
    links, method = f"links between the GPUs of {name}", IN_SWITCH if in_switch else PHYSICS
    return GroupLimits(
        Limit(floor.value, f"profile {name}: {floor.source}", floor.method, floor.tolerance)
        if floor
        else None,
        Limit(ceiling, links, method, ABOVE_CEILING) if ceiling else None,
        ceiling,
        floor.method if floor else METHOD,
        effect("nvlink" if profile is not None and profile.nvlink is not None else "gpu"),
        profile.gpu_link_gbps if profile else None,
    )


def adapters_of(
    evidence: Evidence, outcome: JobOutcome, nodes: Sequence[str], backend: str
) -> dict[str, Adapter]:
    """The network of each of these nodes. Raises CannotReadError where a rate is not known."""
    found = {
        node: adapter
        for node in nodes
        if (adapter := _adapter_of(evidence, outcome, node, backend)) is not None
    }
    if blind := [node for node in nodes if node not in found]:
        raise CannotReadError(f"the rate of the network adapter of {', '.join(blind)} is not known")
    return found


def _adapter_of(evidence: Evidence, outcome: JobOutcome, node: str, backend: str) -> Adapter | None:
    """The network that this node brought to the job."""
    ranks = outcome.by_node.get(node, ())
    interface = next((str((rank.verdict or {}).get("interface") or "") for rank in ranks), "")
    found, declared = evidence.nodes[node], declared_rails(evidence, node)
    if backend == "nccl" and (ports := rdma_adapter(compute_ports(found, declared))) is not None:
        if declared is None:
            require_known_rails(found, evidence.declared[node].rdma_ports)
        return ports
    nics, chosen = found.records("nics"), None
    if backend == "nccl":
        chosen = parse_hca_list(evidence.spec.settings_of(node).environment.get("NCCL_SOCKET_IFNAME", ""))
    if chosen is not None:
        return chosen_sockets([nic for nic in nics if chosen.selects(str(nic.get("name")), 0)])
    return socket_adapter(nics, interface.split(",")[0])


def _point(point: Mapping[str, Any], limits: GroupLimits | None) -> dict[str, Any]:
    kept = {key: point.get(key) for key in ("bytes", "time_s_median", "algbw_gbps", "busbw_gbps", "correct")}
    if limits is not None:
        floor = limits.floor
        kept["floor_gbps"] = round(floor.reference * (1 - floor.tolerance), 4) if floor is not None else None
        kept["ceiling_gbps"] = round(limits.ceiling.reference, 4) if limits.ceiling is not None else None
    return kept


def _slow(factor: float) -> seeding.Inject:
    def change(_rank: RankOutcome, record: seeding.Raw) -> None:
        for point in record["points"]:
            point["busbw_gbps"] *= factor
            point["time_s_median"] /= factor

    return seeding.verdicts(JOB, change)


def scale_points(points: Sequence[seeding.Raw], metric: str, factor: float) -> None:
    """The point of the metric's size, in place."""
    for point in points:
        if metric == f"{METRIC}{point['bytes']}":
            point["busbw_gbps"] *= factor
            point["time_s_median"] /= factor


def _no_speed(raw: seeding.Raw) -> None:
    for nic in raw["nics"]:
        nic["speed_mbps"] = None


def _slower_than_before(evidence: Evidence) -> Evidence:
    """Above the network's floor, and at half of what it was."""
    return seeding.with_baseline("all-reduce-bandwidth", judge, ALL, 2.0)(evidence)


CHECK = Check(
    id="all-reduce-bandwidth",
    title="All-reduce, bandwidth",
    section=Section.COLLECTIVES,
    scope=Scope.GROUP,
    measures="bus bandwidth of an all-reduce over all nodes",
    method="Paddle's all_reduce in float32 at fixed sizes, median; bus bandwidth as nccl-tests defines it, "
    "of the slowest rank",
    requires="the training image on every node, at least two ranks, a network adapter whose rate is known",
    expectation="across nodes a part of the slowest detected network, of two to nine InfiniBand rails more "
    "than is left when one is lost; within a node the profile's floor",
    remedy="See the pairs and the culprits for which node or link it is; check its cable, switch port, "
    "negotiated rate and errors (ethtool -S).",
    subjects=the_group,
    judge=judge,
    job=JOB,
    quantities="sizes",
    scale=seeding_figures.in_verdicts(
        JOB, lambda verdict, metric, factor: scale_points(verdict["points"], metric, factor)
    ),
    faults=(
        SeededFault("slow-group", _slow(0.05), ALL),
        SeededFault("impossibly-fast", _slow(50.0), ALL, Verdict.NOT_RUN),
        SeededFault("slower-than-before", _slower_than_before, ALL),
        SeededFault("one-node-asked", seeding.only(JOB, "gpu01", asked=True), ALL, Verdict.EXCLUDED),
        SeededFault("one-node-left", seeding.only(JOB, "gpu01", asked=False), ALL, Verdict.NOT_RUN),
        SeededFault("rate-unknown", seeding.edit("gpu02", _no_speed), ALL, Verdict.NOT_RUN),
        SeededFault(
            "rank-crashed",
            seeding.rank(JOB, "gpu02", RankState.CRASHED, "killed by signal 11"),
            ALL,
            Verdict.NOT_RUN,
        ),
    ),
)
