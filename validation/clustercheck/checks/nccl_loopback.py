"""NCCL among a node's GPUs through its RDMA adapters alone: do GPU, PCIe switch and adapter go together?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from clustercheck.checks.base import (
    Check,
    Finding,
    SeededFault,
    every_gpu_node,
    failed,
    not_applicable,
)
from clustercheck.checks.nccl_tests import IN_IMAGE, read_run
from clustercheck.checks.support import seeding, seeding_figures
from clustercheck.checks.support.job import failed_on, has_mig, outcome_of, ranks_of
from clustercheck.checks.support.nccl import no_nccl, site_of
from clustercheck.checks.support.rdma import without_adapter
from clustercheck.evidence.cluster import Evidence
from clustercheck.evidence.rails import compute_ports, declared_rails
from clustercheck.expect.effects import effect
from clustercheck.expect.network import Adapter, rdma_adapter
from clustercheck.launch.model import RankOutcome, RankState
from clustercheck.model import Figure, Limit, Scope, Section, Subject, Verdict
from clustercheck.parse.nccl_log import parse_nccl_log
from clustercheck.parse.nccl_tests import NcclTest
from clustercheck.parse.reading import CannotReadError, first_line
from clustercheck.samples.nccl_loopback import BUSBW_GBPS, loopback_log, loopback_run

JOB = "nccl_loopback"
SIZE_BYTES = 1 << 30
FLOOR = 0.72
SOURCE = (
    "Azure/azurehpc-health-checks, nd96asr_v4: all-reduce over the InfiniBand loopback >= 18 GB/s, one port "
    "of 25 GB/s a GPU; averaged over 0.5 and 1 GB until June 2023, at 8 GiB since"
)
FASTEST_GBPS = 25.0  # of a port with a sourced floor: no gate of faster ones is known
METHOD = (
    "all_reduce_perf of nccl-tests within the node, values checked, NCCL_P2P_DISABLE=1 NCCL_SHM_DISABLE=1 "
    "NCCL_NVLS_ENABLE=0, bus bandwidth, the better of in place and out of place"
)
ABOVE_CEILING = 0.02
PHYSICS = "what the node's compute ports carry together, a GPU's part of it"


def judge(evidence: Evidence, subject: Subject) -> Finding:
    """It went over the adapters, every value is right, and each GPU had its part of the wires."""
    node = str(subject.node)
    wires = _wires(evidence, subject)
    if isinstance(wires, Finding):
        return wires
    if JOB not in evidence.jobs and JOB not in evidence.skipped:
        return no_nccl(evidence, subject)
    if (finding := failed_on(evidence, JOB, subject)) is not None:
        return finding
    ranks = ranks_of(outcome_of(evidence, JOB), node)
    answer = ranks[0].verdict or {}
    if not isinstance(answer.get("without"), str) or not isinstance(answer.get("gpus"), int):
        raise CannotReadError("the rank did not report what it measured")
    if answer["without"]:
        return not_applicable(str(answer["without"]), remedy=IN_IMAGE)
    if (gpus := answer["gpus"]) < (declared := evidence.gpu_count(node)):
        return failed(f"{gpus} of {declared} GPUs were used", gpus, declared, unit="GPUs")
    if not isinstance(run := answer.get("run"), Mapping):
        raise CannotReadError("the rank did not report what it measured")
    return _judge_run(evidence, node, wires, gpus, run, log=str(answer.get("nccl_log") or ""))


def _wires(evidence: Evidence, subject: Subject) -> Adapter | Finding:
    """The ports that carry jobs, together; or the finding where there is nothing to measure."""
    node = str(subject.node)
    if not evidence.nodes[node].records("rdma"):
        return without_adapter(evidence, subject)
    wires = rdma_adapter(compute_ports(evidence.nodes[node], declared_rails(evidence, node)))
    if wires is None:
        return not_applicable("no RDMA port for jobs is up (see infiniband-port)")
    if evidence.gpu_count(node) < 2:
        return not_applicable("one GPU: there is nothing to connect")
    if has_mig(evidence, node):
        return not_applicable("MIG is on: NCCL cannot join instances of one GPU")
    return wires


def _judge_run(
    evidence: Evidence, node: str, wires: Adapter, gpus: int, run: Mapping[str, Any], *, log: str
) -> Finding:
    code, more = run.get("exit_code"), {"command": str(run.get("command"))}
    if code is None:
        return failed(f"all_reduce_perf did not end within {run.get('limit_s')} s", evidence=more)
    try:
        test = read_run(run, "all_reduce", gpus)
    except CannotReadError:
        if code == 0:
            raise
        last = first_line("\n".join(reversed(str(run.get("text") or "").splitlines())))
        return failed(f"all_reduce_perf ended with {code}: {last or 'it said nothing'}", evidence=more)
    if not test.sweep.validated:
        raise CannotReadError("all_reduce_perf checked no values")
    if test.out_of_bounds:
        because = f"all_reduce_perf found {test.out_of_bounds} wrong values"
        return failed(because, test.out_of_bounds, 0, unit="values", evidence=more)
    if code != 0:
        return failed(f"all_reduce_perf ended with {code}: {test.error or 'it said nothing'}", evidence=more)
    roads = _roads(log, gpus)
    more["transports"] = ", ".join(sorted(roads))
    if around := sorted(road for road in roads if not road.startswith("NET/")):
        raise CannotReadError(f"NCCL joined GPUs by {', '.join(around)}, not over the network alone")
    if "NET/Socket" in roads:
        because = "NCCL went over TCP sockets, though RDMA ports are up"
        return failed(because, more["transports"], "NET/IB", evidence=more)
    return _measured(evidence, node, wires, gpus, test, more=more)


def _roads(log: str, gpus: int) -> set[str]:
    """How NCCL joined the GPUs. Raises CannotReadError where its log does not tell."""
    if not log:
        raise CannotReadError("NCCL left no log, so nothing shows that the adapters were used")
    joined = parse_nccl_log(log, gpus).joined
    direct = {True: " with GPUDirect", False: ""}
    return {f"NET/{j.how}{direct[j.gpudirect]}" if j.road == "NET" else j.road for j in joined}


def _measured(
    evidence: Evidence, node: str, wires: Adapter, gpus: int, test: NcclTest, *, more: Mapping[str, Any]
) -> Finding:
    """The figures. Where it cannot be read whether the floor holds, they are told, and prove nothing."""
    verdict, because = Verdict.PASS, ""
    try:
        has_floor = _has_floor(evidence, node, wires)
    except CannotReadError as error:
        has_floor, verdict, because = False, Verdict.NOT_RUN, f"not known whether the floor holds: {error}"
    return Finding(verdict, because, evidence=more, figures=_figures(wires, gpus, test, has_floor=has_floor))


def _figures(wires: Adapter, gpus: int, test: NcclTest, *, has_floor: bool) -> tuple[Figure, ...]:
    """The one size that is measured."""
    share, size = wires.gbps / gpus, test.rows[-1].size_bytes
    if size != SIZE_BYTES:
        raise CannotReadError(f"all_reduce_perf measured {size} bytes, not {SIZE_BYTES}")
    return (
        Figure(
            metric=f"busbw_{size}",
            measured=test.rows[-1].busbw,
            unit="GB/s",
            method=f"{METHOD}; {size} bytes",
            label=f"at {size} bytes",
            ceiling=Limit(share, PHYSICS, f"{wires.rails} ports, {gpus} GPUs", ABOVE_CEILING),
            floor=Limit(FLOOR * share, SOURCE, METHOD) if has_floor else None,
            nominal=share,
            effect=effect("rdma"),
            conditions={"gpus": str(gpus), "ports": str(wires.rails), "rate_gbps": f"{8 * wires.gbps:g}"},
        ),
    )


def _has_floor(evidence: Evidence, node: str, wires: Adapter) -> bool:
    """InfiniBand up to HDR beside every GPU, no more ports than GPUs, which it reads by itself: as where the
    gate is in use.

    Raises CannotReadError where these may be, and neither GPUs nor topology can be read.
    """
    if wires.kind != "infiniband" or wires.gbps / wires.rails > FASTEST_GBPS:
        return False
    evidence.nodes[node].topology()
    evidence.nodes[node].smi()
    near = evidence.once(lambda _: site_of(evidence, evidence.jobs[JOB]).gpudirect, "loopback with GPUDirect")
    return node in near


def _says(**answer: Any) -> seeding.Inject:
    def change(rank: RankOutcome, verdict: seeding.Raw) -> None:
        if rank.node == "gpu02":
            verdict.update(answer)

    return seeding.verdicts(JOB, change)


def _runs(**answer: Any) -> seeding.Inject:
    def change(rank: RankOutcome, verdict: seeding.Raw) -> None:
        if rank.node == "gpu02":
            verdict["run"].update(answer)

    return seeding.verdicts(JOB, change)


def _reaches(busbw: float, **more: Any) -> seeding.Inject:
    return _runs(**{**loopback_run("gpu02", busbw, wrong=more.pop("wrong", 0)), **more})


def _no_adapters(evidence: Evidence) -> Evidence:
    def change(raw: seeding.Raw) -> None:
        raw["rdma"].clear()
        raw["infiniband"]["devices"].clear()

    return seeding.chain(*(seeding.edit(node, change) for node in evidence.nodes))(evidence)


def _scale(verdict: seeding.Raw, metric: str, factor: float) -> None:
    size = int(metric.removeprefix("busbw_"))
    run = verdict["run"]
    run["text"] = seeding_figures.scale_nccl_tests_text(run["text"], "all_reduce", size, factor)


_NODE = Subject("gpu02")
_FLOOR_GBPS = FLOOR * 2 * 25.0 / 8  # of the sample: two rails of HDR, eight GPUs
CHECK = Check(
    id="nccl-loopback",
    title="NCCL, loopback of the adapters",
    section=Section.COLLECTIVES,
    scope=Scope.HOST,
    measures="bus bandwidth of an all-reduce among a node's GPUs through its RDMA adapters alone",
    method=METHOD,
    requires="an RDMA port for jobs that is up, two GPUs, nccl-tests in the training image (image_builds)",
    expectation="no wrong value, over NET/IB; at 1 GiB 72 % of a GPU's part of the ports where InfiniBand "
    "of up to 200 Gb/s is next to every GPU; elsewhere no floor has a source: not behind equal nodes, nor "
    "behind itself when it was good; never above its part of the ports",
    remedy="See the ports with themselves (rdma-loopback), and how NCCL reaches them (nccl-transport): "
    "GPUDirect by nvidia-peermem or DMA-BUF, ACS off between GPU and adapter (pcie-acs).",
    subjects=every_gpu_node,
    judge=judge,
    job=JOB,
    scale=seeding_figures.in_verdicts(JOB, _scale),
    faults=(
        SeededFault("just-below-the-floor", _reaches(0.95 * _FLOOR_GBPS), _NODE),
        SeededFault("too-fast", _reaches(1.1 * 2 * 25.0 / 8), _NODE, Verdict.NOT_RUN),
        SeededFault("wrong-values", _reaches(BUSBW_GBPS, wrong=7, exit_code=1), _NODE),
        SeededFault("does-not-end", _runs(exit_code=None), _NODE),
        SeededFault(
            "nccl-fails", _runs(exit_code=3, text="gpu02: Test NCCL failure common.cu:958", json=""), _NODE
        ),
        SeededFault("over-sockets", _says(nccl_log=loopback_log("gpu02", "NET/Socket/0")), _NODE),
        SeededFault(
            "over-shared-memory",
            _says(nccl_log=loopback_log("gpu02", "SHM/direct/direct")),
            _NODE,
            Verdict.NOT_RUN,
        ),
        SeededFault("no-log", _says(nccl_log=""), _NODE, Verdict.NOT_RUN),
        SeededFault("gpu-left-out", _says(gpus=7), _NODE),
        SeededFault("not-built-in", _says(without="the image has no nccl-tests"), _NODE, Verdict.EXCLUDED),
        SeededFault("no-adapter", _no_adapters, _NODE, Verdict.EXCLUDED),
        SeededFault("over-gloo", lambda e: seeding.without_job(e, JOB), _NODE, Verdict.EXCLUDED),
        SeededFault(
            "rank-crashes", seeding.rank(JOB, "gpu02", RankState.CRASHED, "killed by signal 9"), _NODE
        ),
    ),
)
