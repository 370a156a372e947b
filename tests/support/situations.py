"""Clusters unlike the healthy sample: other sizes, hardware and declarations, and other ends of jobs."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, date, datetime
from functools import cache
from typing import Any

from tests.support import day_one, planted
from tests.support.varied_evidence import HEALTHY, Case, Varying, with_job

from clustercheck.checks.base import Check, SeededFault, evaluate
from clustercheck.checks.support import seeding
from clustercheck.evidence.cluster import Evidence
from clustercheck.expect import profiles
from clustercheck.expect.baseline import Baseline, BaselineFigure
from clustercheck.launch.model import JobOutcome, RankOutcome, RankState
from clustercheck.samples import sample
from clustercheck.spec import EVERYWHERE, Exclusion, NodeSettings

SIZES = (1, 2, 4)
BESIDE = 10
FACTORS = (0.45, 0.9, 1.1, 1000.0)
PROFILES = ("h100-sxm5-80gb", "rtx-4090-24gb", "v100-sxm2-32gb")
LAST_DAY = date(2026, 12, 24)
ONE_NODE: dict[str, tuple[dict[str, Any], ...]] = {
    "gpu_count": ({"gpu_count": None}, {"gpu_count": 0}, {"gpu_count": 4}, {"gpu_count": 9}),
    "gpu_model": ({"gpu_model": ""}, {"gpu_model": "NVIDIA H100 80GB HBM3"}),
    "profile": ({"profile": ""}, {"profile": "", "gpu_count": None}),
    "memory_gib": ({"memory_gib": None}, {"memory_gib": 1024}, {"memory_gib": 512}),
    "nvme": ({"nvme": None}, {"nvme": 0}, {"nvme": 1}, {"nvme": 3}),
    "mig": ({"mig": "disabled"}, {"mig": "7x1g.10gb"}),
    "rdma": (
        *({"rdma_ports": ports, "rdma_gbps": 200} for ports in range(5)),
        {"rdma_ports": 2, "rdma_gbps": 400},
        {"rdma_ports": 2},
    ),
    "rails": ({"rails": ("mlx5_0",)}, {"rails": ("mlx5_0:1", "mlx5_1")}, {"rails": ("mlx5_9",)}),
    "acknowledged": ({"acknowledged": datetime(2026, 11, 20, 12, tzinfo=UTC)},),
    "excluded": ({"excluded": "memory is being replaced"},),
}  # fmt: skip
CLUSTER: tuple[dict[str, Any], ...] = (
    {"driver_version": ""},
    {"driver_version": "", "driver_branch": ""},
    {"driver_version": "", "driver_branch": "570"},
    {"driver_version": "570.148.08"},
    {"image": ""},
    {"mounts": ()},
    {"framework": "torch"},
    {"container_gpu_arguments": ("--device", "nvidia.com/gpu=all")},
    {"environment": {"NCCL_P2P_DISABLE": "1", "NCCL_IB_DISABLE": "1"}},
    {"environment": {"NCCL_IB_HCA": "mlx5_0", "NCCL_SHM_DISABLE": "1"}},
)


def cases(check: Check, varying: Varying) -> Iterator[Case]:
    """Every case of a check, the healthy one first."""
    yield Case("healthy", HEALTHY, compared=False)
    for fault in check.faults:
        yield Case(f"fault {fault.name}", fault.inject(HEALTHY))
        yield from _twisted(fault)
    for size in SIZES:
        yield Case(f"{size} healthy nodes", _of_size(size), compared=False)
    for name in day_one.SYSTEMS:
        yield Case(name, _day_one(name), compared=False)
    for words, evidence in _clusters():
        yield Case(words, evidence, compared=not words.startswith("profile "))
    yield from _baselines(check)
    if check.counters:
        yield from _loads()
    for job in (check.job,) if check.job else ():
        yield from (Case(f"{job}: {words}", evidence) for words, evidence in _ends(job))
    yield from planted.cases(check, varying)
    varied = []
    for case in varying.cases():
        yield case
        varied.append(case)
    yield from _faults_beside(check, varied)


def _faults_beside(check: Check, varied: Sequence[Case]) -> Iterator[Case]:
    """Each fault with some of what one node or one rank may say, drawn by the check's name."""
    chosen = random.Random(check.id)  # noqa: S311 - no secret
    for fault in check.faults:
        for case in chosen.sample(varied, min(BESIDE, len(varied))):
            with suppress(Exception):  # what it changes is not there, or cannot be read
                yield Case(f"{case.name}: fault {fault.name}", fault.inject(case.evidence), unseen=True)


def _twisted(fault: SeededFault) -> Iterator[Case]:
    """The fault under another condition: MIG is on, nothing is declared, the nodes are virtual machines."""
    nodes = tuple(replace(one, gpu_count=None, profile="", gpu_model="") for one in HEALTHY.spec.nodes)
    undeclared = replace(HEALTHY, spec=replace(HEALTHY.spec, nodes=nodes), profiles={})
    others = (
        ("MIG on", _with_mig()),
        ("nothing declared", undeclared),
        ("virtual machines", _virtual_machines()),
    )
    for words, evidence in others:
        with suppress(LookupError):  # what the fault changes is not there
            yield Case(f"{words}: fault {fault.name}", fault.inject(evidence))


@cache
def _with_mig() -> Evidence:
    mig = (
        seeding.smi(node, gpu, "mig_mode/current_mig", "Enabled")
        for node in HEALTHY.nodes
        for gpu in range(8)
    )
    return seeding.chain(*mig)(HEALTHY)


@cache
def _virtual_machines() -> Evidence:
    return seeding.chain(*(seeding.edit(name, _virtual("kvm")) for name in HEALTHY.nodes))(HEALTHY)


@cache
def _of_size(nodes: int) -> Evidence:
    return sample.healthy(nodes)


@cache
def _day_one(name: str) -> Evidence:
    evidence = day_one.evidence_of(day_one.SYSTEMS[name])
    return replace(evidence, jobs=_of_size(2).jobs if evidence.spec.nodes[0].gpu_count == 8 else {})


def on_node(node: str = "gpu02", **declared: Any) -> Evidence:
    """The healthy cluster with this declared of one node."""
    nodes = tuple(replace(one, **declared) if one.name == node else one for one in HEALTHY.spec.nodes)
    return replace(HEALTHY, spec=replace(HEALTHY.spec, nodes=nodes))


@cache
def _clusters() -> tuple[tuple[str, Evidence], ...]:
    return tuple(_made())


def _made() -> Iterator[tuple[str, Evidence]]:
    for some in ONE_NODE.values():
        for declared in some:
            words = ", ".join(f"{key}={value!r}" for key, value in declared.items())
            yield f"gpu02 declared with {words}", on_node(**declared)
    for declared in CLUSTER:
        words = ", ".join(f"{key}={value!r}" for key, value in declared.items())
        yield f"cluster declared with {words}", replace(HEALTHY, spec=replace(HEALTHY.spec, **declared))
    for name in PROFILES:
        nodes = tuple(replace(one, profile=name) for one in HEALTHY.spec.nodes)
        evidence = replace(HEALTHY, spec=replace(HEALTHY.spec, nodes=nodes))
        yield f"profile {name}", replace(evidence, profiles={name: profiles.load(name)})
    acknowledged = on_node(acknowledged=datetime(2026, 11, 20, 12, tzinfo=UTC))
    for time in (None, True, -1.0, "x"):
        told = seeding.edit("gpu02", lambda raw, time=time: raw.update(clock_ended=time))(acknowledged)
        yield f"gpu02 acknowledged, its clock_ended = {time!r}", told
    strict = NodeSettings(driver_version="570.148.08", image=sample.IMAGE, strict=True)
    yield "gpu02 is strict, with another driver declared", on_node(settings=strict)
    yield "gpu02 unreachable", seeding.unreachable("gpu02")(HEALTHY)
    asked = replace(HEALTHY, nodes=_without(HEALTHY.nodes, "gpu02"), jobs={})
    yield "gpu02 was not asked, no job was run", asked
    yield "nothing was read later", replace(HEALTHY, later={})
    yield "gpu02 was not read later", replace(HEALTHY, later=_without(HEALTHY.later, "gpu02"))
    yield "read before too, in 3 passes", replace(HEALTHY, earlier=HEALTHY.nodes, passes=3)
    yield "gpu02 is left out", replace(HEALTHY, left_out={"gpu02": "it is busy"})
    yield "no job was run", replace(HEALTHY, jobs={})
    yield "jobs were skipped", replace(HEALTHY, jobs={}, skipped=dict.fromkeys(HEALTHY.jobs, "no time"))
    yield "gpu02 was dropped", replace(HEALTHY, dropped={"gpu02": "its rank crashed"})
    for kind, virtual in (("a container", "docker"), ("a virtual machine", "kvm")):
        change = _virtual(virtual)
        yield f"gpu02 is {kind}", seeding.edit("gpu02", change)(HEALTHY)
        everywhere = seeding.chain(*(seeding.edit(name, change) for name in HEALTHY.nodes))
        yield f"all are {kind}s".replace("a ", "", 1), everywhere(HEALTHY)
    for bus in (True, False):
        words = "the bus" if bus else "the driver"
        yield f"gpu02's GPU 5 is gone from {words}", seeding.lose_gpu("gpu02", 5, from_bus=bus)(HEALTHY)
    for count in (1, 2):
        off_bus = seeding.edit("gpu02", lambda raw, count=count: _off_bus(raw, count))
        yield f"{count} adapters of gpu02 are on no PCI bus", off_bus(HEALTHY)
    yield "ports of gpu02 down, its topology unknown", seeding.edit("gpu02", _no_port)(HEALTHY)
    unlisted = "2026-11-20T10:00:00.000000+0000 host kernel: nvidia-nvswitch0: SXid (PCI:0000:c4:00.0): "
    fatal = seeding.kernel_says("gpu02", f"{unlisted}29999, Fatal, Link 3 something new")
    yield "gpu02 has a fatal SXid that is not listed", fatal(HEALTHY)
    simulated = "<nvidia_smi_log>\n<simulated>yes</simulated>"
    yield (
        "gpu02 is simulated",
        seeding.stdout("gpu02", "nvidia_smi", "<nvidia_smi_log>", simulated)(HEALTHY),
    )
    yield "gpu02's GPU 5 is silent", seeding.silence("gpu02", 5)(HEALTHY)
    yield "gpu02's GPU 5 fell off the bus", seeding.fall_off_bus("gpu02", 5)(HEALTHY)
    mig = (seeding.smi("gpu02", gpu, "mig_mode/current_mig", "Enabled") for gpu in range(8))
    yield "gpu02 has MIG on", seeding.chain(*mig)(HEALTHY)


def _without(some: Any, key: str) -> Any:
    return {name: one for name, one in some.items() if name != key}


def _off_bus(raw: dict[str, Any], count: int) -> None:
    for device in raw["infiniband"]["devices"][:count]:
        device["address"] = ""


def _no_port(raw: dict[str, Any]) -> None:
    for device in raw["infiniband"]["devices"]:
        for port in device["ports"]:
            port.update(state="1: DOWN", phys_state="3: Disabled")
    raw["topology"].update(stdout="", rc=1)


def _virtual(kind: str) -> Callable[[dict[str, Any]], None]:
    return lambda raw: raw["virtual"].update(rc=0, stdout=f"{kind}\n")


def _baselines(check: Check) -> Iterator[Case]:
    """A baseline in which every figure was other; and one exclusion of this check."""
    figures = {
        (check.id, result.subject, one.figure.metric): one.figure
        for result in evaluate(check, HEALTHY)
        for one in result.figures
    }
    for factor in (0.5, 0.97, 1.03, 2.0) if figures else ():
        then = {
            key: BaselineFigure(one.measured * factor, one.unit, one.method, one.conditions)
            for key, one in figures.items()
        }
        baseline = Baseline("before", "2026-11-01T00:00:00Z", False, then)
        yield Case(f"baseline x {factor}", replace(HEALTHY, baseline=baseline))
        if factor == 2:
            words = "the GPU is another"
            some = replace(HEALTHY, baseline=baseline, replaced={("gpu02", None): words, ("gpu01", 3): words})
            yield Case("baseline of other hardware", some)
            yield Case("no comparison", replace(HEALTHY, baseline=baseline, not_comparable="other nodes"))
    for node, gpu in (("gpu02", None), ("gpu02", 3), (EVERYWHERE, None)):
        exclusion = Exclusion(check.id, node, "ops", "known", LAST_DAY, gpu)
        yield Case(f"excluded on {exclusion.place}", replace(HEALTHY, exclusions=(exclusion,)))


def _loads() -> Iterator[Case]:
    """One job alone ran, everywhere or on two of the nodes: what is counted meanwhile is of its load."""
    for job, outcome in HEALTHY.jobs.items():
        yield Case(f"{job} alone ran", replace(HEALTHY, jobs={job: outcome}))
        for nodes in (("gpu01", "gpu03"), ("gpu01",)):
            ranks = tuple(rank for rank in outcome.ranks if rank.node in nodes)
            some = replace(HEALTHY, jobs={job: replace(outcome, ranks=ranks)})
            yield Case(f"{job} alone ran, on {' and '.join(nodes)}", some)


def _ends(job: str) -> Iterator[tuple[str, Evidence]]:
    """How the ranks of a job may end, and which may be there."""
    outcome = HEALTHY.jobs[job]

    def ended(change: Callable[[RankOutcome], RankOutcome | None], **more: Any) -> Evidence:
        changed = tuple(one for one in map(change, outcome.ranks) if one is not None)
        return with_job(HEALTHY, replace(outcome, ranks=changed, **more))

    for state in RankState:
        if state is not RankState.OK:

            def one(rank: RankOutcome, state: RankState = state) -> RankOutcome:
                ends = replace(rank, state=state, because="it says why", verdict=None, exit_code=1)
                return ends if rank.node == "gpu02" else rank

            first = next(rank for rank in map(one, outcome.ranks) if rank.node == "gpu02")
            yield f"gpu02 {state.value}", ended(one)
            yield f"gpu02 {state.value} first", ended(one, first_failure=first)
            words = {"reason": "another failed"}
            everyone = tuple(replace(rank, state=state, verdict=words) for rank in outcome.ranks)
            yield f"all {state.value}", with_job(HEALTHY, replace(outcome, ranks=everyone))
            failed = with_job(HEALTHY, JobOutcome(job, (), 5.0, first_failure=first))
            yield f"no rank, gpu02 {state.value} first", failed
            if state in (RankState.CRASHED, RankState.FAILED):
                before = with_job(HEALTHY, replace(outcome, ranks=tuple(map(one, outcome.ranks)))).jobs[job]
                again = ended(lambda rank: rank if rank.node != "gpu02" else None)
                again = replace(
                    again, attempts={job: (before,)}, dropped={"gpu02": f"its rank {state.value}"}
                )
                yield f"run again without gpu02, which {state.value}", again
    yield "no rank on gpu02", ended(lambda rank: rank if rank.node != "gpu02" else None)
    yield (
        "no verdict of gpu02",
        ended(lambda rank: replace(rank, verdict=None) if rank.node == "gpu02" else rank),
    )
    yield "ranks on gpu01 alone", ended(lambda rank: rank if rank.node == "gpu01" else None)
    if all(rank.gpu is None for rank in outcome.ranks):
        for nodes in (1, 2):
            whole = seeding.on_gpus(job, missing_on="")(_of_size(nodes))
            yield f"a rank on each GPU of {nodes} nodes", whole
            yield (
                f"a rank on each GPU of {nodes} nodes, over NCCL",
                seeding.with_facts(whole, job, backend="nccl"),
            )
    for backend in ("gloo", "nccl", "gpu", ""):
        yield f"backend {backend!r}", seeding.with_facts(HEALTHY, job, backend=backend)
    for factor in FACTORS:

        def everywhere(_rank: RankOutcome, said: dict[str, Any], factor: float = factor) -> None:
            _scale(said, factor)

        def on_one(rank: RankOutcome, said: dict[str, Any], factor: float = factor) -> None:
            if rank.node == "gpu02":
                _scale(said, factor)

        yield f"every figure x {factor}", seeding.verdicts(job, everywhere)(HEALTHY)
        yield f"every figure of gpu02 x {factor}", seeding.verdicts(job, on_one)(HEALTHY)


def _scale(said: Any, factor: float) -> None:
    for key, value in list(said.items() if isinstance(said, dict) else enumerate(said)):
        if isinstance(value, float):
            said[key] = value * factor
        elif isinstance(value, (dict, list)):
            _scale(value, factor)
