"""Training of real models across the group: samples a second, memory, and how it scales."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from clustercheck.checks.base import GROUP, Check, Finding, Scale, SeededFault, the_group
from clustercheck.checks.support import seeding, training
from clustercheck.checks.support.job import backend_of, ended_badly, least_ranks, outcome_of, reason
from clustercheck.checks.support.training import Case, Key
from clustercheck.evidence.cluster import Evidence
from clustercheck.evidence.rails import compute_ports, declared_rails
from clustercheck.expect.effects import effect
from clustercheck.expect.network import rdma_adapter
from clustercheck.expect.physics import pcie_gbps
from clustercheck.expect.training import floor_per_gpu, scaling_floor
from clustercheck.launch.model import JobOutcome, RankOutcome, RankState
from clustercheck.model import Figure, Scope, Section, Subject, Verdict
from clustercheck.parse.reading import CannotReadError

ID = {"training_paddle": "training-throughput", "training_torch": "training-throughput-pytorch"}


@dataclass(frozen=True)
class Trained:
    """What most nodes say that they trained, and the cases of the ranks that did; ``unread`` is why others
    are not among these, else nothing.
    """

    terms: Mapping[Key, Case]
    cases: list[dict[Key, Case]]
    unread: str


def _read(outcome: JobOutcome) -> Trained:
    """Raises CannotReadError where it is not known what most trained."""
    terms = training.terms_of_most(outcome)
    cases, unread = [], ""
    for rank in outcome.ranks:
        try:
            cases.append(training.cases_as_of_most(rank, terms))
        except CannotReadError as error:
            unread = unread or str(error)
    return Trained(terms, cases, unread)


def throughputs(outcome: JobOutcome) -> dict[Key, float]:
    """Samples a second of the whole group, by model and precision: the slowest rank's step is the group's."""
    trained = outcome.once(_read)
    return {
        key: len(outcome.ranks) * terms["batch"] / max(cases[key]["step_s"] for cases in trained.cases)
        for key, terms in trained.terms.items()
    }


def _judge(evidence: Evidence, job: str) -> Finding:
    if (finding := ended_badly(evidence, job, GROUP, least=least_ranks(evidence))) is not None:
        return finding
    outcome = outcome_of(evidence, job)
    if (finding := training.framework_missing(outcome)) is not None:
        return finding
    whole = throughputs(outcome)
    of_nodes = Counter(rank.node for rank in outcome.ranks)
    first = outcome.ranks[0].node
    of_one, lacking = _smaller(evidence, training.one_job(job))
    of_node = of_one
    if len(of_nodes) > 1 and of_nodes[first] > 1:
        of_node, why = _smaller(evidence, training.node_job(job))
        lacking = lacking or why
    figures, shown = [], []
    for key in whole:
        scaled = _scaling(key, whole, of_node, of_one, of_nodes)
        figures += _figures(evidence, job, outcome, key, whole[key] / len(outcome.ranks), scaled)
        shown.append(_shown(outcome, key, whole[key], scaled))
    more = {"nodes": sorted(of_nodes), "ranks": len(outcome.ranks), "cases": shown}
    because = ""  # why it can only fail
    if unread := outcome.once(_read).unread:
        because = f"cannot read: {unread}"
    elif len(outcome.ranks) > 1 and lacking:
        because = f"scaling cannot be judged without a smaller group: {lacking}"
    verdict = Verdict.NOT_RUN if because else Verdict.PASS
    return Finding(verdict, because, figures=tuple(figures), evidence=more)


def _smaller(evidence: Evidence, job: str) -> tuple[dict[Key, float], str]:
    """The throughputs of a smaller group, or why there are none."""
    outcome = evidence.jobs.get(job)
    if outcome is None:
        return {}, evidence.skipped.get(job, "it did not run")
    if not outcome.good:
        return {}, reason(outcome)
    try:
        return throughputs(outcome), ""
    except CannotReadError as error:
        return {}, f"cannot read: {error}"


def _scaling(
    key: Key,
    whole: Mapping[Key, float],
    of_node: Mapping[Key, float],
    of_one: Mapping[Key, float],
    of_nodes: Counter[str],
) -> dict[str, float]:
    """The parts of linear, by level; all of it where one launch is the other."""
    found, in_first = {}, next(iter(of_nodes.values()))
    node = whole if len(of_nodes) == 1 else of_node
    if in_first > 1 and key in node and key in of_one:
        found["node"] = node[key] / (in_first * of_one[key])
    if len(of_nodes) > 1 and key in of_node:
        found["cluster"] = whole[key] * in_first / (sum(of_nodes.values()) * of_node[key])
    return found


def _figures(  # noqa: PLR0917 - what is compared, and with what
    evidence: Evidence, job: str, outcome: JobOutcome, key: Key, per_rank: float, scaled: Mapping[str, float]
) -> list[Figure]:
    """On a CPU nothing is known to bind them: others share it, and nobody trains there."""
    nodes = sorted({rank.node for rank in outcome.ranks})
    nccl = backend_of(outcome) == "nccl"
    name, case = "_".join(key), outcome.once(_read).terms[key]
    profiles = frozenset(evidence.declared[node].profile for node in nodes)
    floor = floor_per_gpu(job, *key, profiles) if nccl else None
    known = "" if floor else "; no floor has a source here"
    method = f"synthetic data, {case['batch']} samples a rank, {case['steps']} steps after warm-up{known}"
    conditions = {"nodes": nodes, "ranks": len(outcome.ranks), "batch": case["batch"], "nccl": nccl}
    figures = [
        Figure(
            metric=f"{name}_per_rank",
            measured=per_rank,
            unit=str(case["unit"]),
            method=method,
            label=f"a rank in {' '.join(key)}",
            floor=floor,
            effect=effect("gpu") if nccl else None,
            conditions=conditions,
        )
    ]
    wires = {"node": _gpu_link_gbps(evidence, nodes[0]), "cluster": _network_gbps(evidence, nodes)}
    of_node_s = scaled.get("cluster", 1.0) * case["batch"] / per_rank
    for level, part in scaled.items():
        wire = wires[level]
        step_s = part * of_node_s if level == "node" else of_node_s
        floor = scaling_floor(level, key[0], step_s, wire) if nccl and wire else None
        against = "one GPU" if level == "node" else "one node"
        lacking = "" if floor else "; no floor has a source here"
        figures.append(
            Figure(
                metric=f"{name}_scaling_{level}",
                measured=part,
                unit="of linear",
                method=f"throughput against {against}'s in a launch of its own{lacking}",
                label=f"against {against} in {' '.join(key)}",
                floor=floor,
                conditions=conditions,
            )
        )
    return figures


def _gpu_link_gbps(evidence: Evidence, node: str) -> float | None:
    """One way between the GPUs of a node: NVLink where all of them have it, else PCIe; None if unknown."""
    profile = evidence.profile(node)
    if profile is None or (profile.nvlink is not None and profile.nvlink.required):
        return profile.gpu_link_gbps if profile is not None else None
    return pcie_gbps(profile.pcie.generation, profile.pcie.width)


def _network_gbps(evidence: Evidence, nodes: Sequence[str]) -> float | None:
    """One way over RDMA of the slowest node; None where one has none."""
    adapters = [
        rdma_adapter(compute_ports(evidence.nodes[node], declared_rails(evidence, node))) for node in nodes
    ]
    known = [adapter.gbps for adapter in adapters if adapter is not None]
    return min(known) if len(known) == len(nodes) else None


def _shown(outcome: JobOutcome, key: Key, total: float, scaled: Mapping[str, float]) -> dict[str, Any]:
    cases = [each[key] for each in outcome.once(_read).cases]
    peaks = [case["peak_memory_bytes"] for case in cases if case["peak_memory_bytes"] is not None]
    return {
        "case": training.named(cases[0]),
        "samples_per_s": round(total, 3),
        "unit": cases[0]["unit"],
        "batch": cases[0]["batch"],
        "peak_memory_bytes": max(peaks, default=None),
        **{f"scaling_{level}": round(part, 4) for level, part in scaled.items()},
    }


def _check(job: str) -> Check:
    return Check(
        id=ID[job],
        title=f"{training.JOBS[job]}, throughput",
        section=Section.TRAINING,
        scope=Scope.GROUP,
        measures="images and sequences a second of ResNet-50 and a BERT-base, peak memory, and how much of "
        "linear scaling is left from one GPU to a node and from a node to the cluster",
        method=f"synthetic data, {training.WAY[job]}, SGD with momentum, timed over whole steps without "
        "waiting for the device in between; one GPU, one node and all nodes in launches of their own",
        requires=f"a training image with {training.JOBS[job]} on every node; for scaling at least two ranks",
        expectation=(
            "a floor if one has a source; over NCCL published scaling less a tolerance, across nodes with "
            "InfiniBand or RoCE, where NVLink, PCIe or adapters carry the gradients in a quarter of a step; "
            "not below the baseline"
        ),
        remedy=(
            "If a single GPU is slow, check its clocks, power and GEMM; if only the group is, the "
            "collectives and the pairs."
        ),
        subjects=the_group,
        judge=lambda evidence, _subject: _judge(evidence, job),
        job=job,
        scale=_scale_of(job),
        prepare=_on_gpus(job),
        faults=_faults(job),
    )


def _slower(factor: float) -> Any:
    return lambda case: case.update(step_s=case["step_s"] * factor)


def _faults(job: str) -> tuple[SeededFault, ...]:
    on_gpus = seeding.on_gpus(job, missing_on="")
    crashed = seeding.rank(job, "gpu02", RankState.CRASHED, "killed by signal 11")
    slow_node = training.change(training.node_job(job), _slower(3.0))
    lost = seeding.rank(training.one_job(job), "gpu01", RankState.CRASHED, "out of memory")

    def rank_lacks(rank: RankOutcome, record: seeding.Raw) -> None:
        if rank.node == "gpu02":
            del record["cases"][0]

    def slower_than_before(evidence: Evidence) -> Evidence:
        before = seeding.with_baseline(ID[job], lambda e, _: _judge(e, job), GROUP, 2.0)
        return seeding.chain(on_gpus, _node_launch(job), before)(evidence)

    return (
        SeededFault("does-not-scale", seeding.chain(on_gpus, _node_launch(job), slow_node), GROUP),
        SeededFault("slower-than-before", slower_than_before, GROUP),
        SeededFault("one-rank-failed", lost, GROUP, Verdict.NOT_RUN),
        SeededFault("rank-crashed", crashed, GROUP, Verdict.NOT_RUN),
        SeededFault("a-rank-lacks-a-case", seeding.verdicts(job, rank_lacks), GROUP, Verdict.NOT_RUN),
        SeededFault("no-framework", training.lacks_framework(job), GROUP, Verdict.EXCLUDED),
    )


def _scale_of(job: str) -> Scale:
    """Against one rank and one node as much as everything, so that a figure changes by itself."""

    def scale(metric: str, factors: Mapping[Subject, float]) -> seeding.Inject:
        of_case, _, figure = metric.rpartition("_per_rank" if metric.endswith("_per_rank") else "_scaling_")
        one, node = training.one_job(job), training.node_job(job)
        changed = {"node": (one,), "cluster": (one, node)}.get(figure, (one, node, job))
        factor = factors[GROUP] if figure else 1 / factors[GROUP]

        def slower(case: seeding.Raw) -> None:
            if of_case == f"{case['model']}_{case['precision']}":
                case["step_s"] *= factor

        return seeding.chain(*(training.change(each, slower) for each in changed))

    return scale


def _more_precisions(_rank: RankOutcome, verdict: seeding.Raw) -> None:
    """Those in which a GPU has a floor, at 900 and 1100 images a second."""
    case = verdict["cases"][0]
    for precision, rate in (("tf32", 900.0), ("amp_fp16", 1100.0)):
        verdict["cases"].append({**case, "precision": precision, "batch": 128, "step_s": 128 / rate})


def _on_gpus(job: str) -> seeding.Inject:
    """All launches, over NCCL."""
    launches = (job, training.one_job(job), training.node_job(job))
    precisions = [seeding.verdicts(launch, _more_precisions) for launch in launches]
    return seeding.chain(seeding.on_gpus(job, missing_on=""), _node_launch(job), *precisions)


def _node_launch(job: str) -> seeding.Inject:
    """The first node's ranks in a launch of their own, as fast as in the group."""

    def inject(evidence: Evidence) -> Evidence:
        outcome = evidence.jobs[job]
        first = tuple(rank for rank in outcome.ranks if rank.node == outcome.ranks[0].node)
        return seeding.with_job(evidence, replace(outcome, job=training.node_job(job), ranks=first))

    return inject


CHECKS = tuple(_check(job) for job in training.JOBS)
