"""What starting a kernel costs on each GPU, beside its equals."""

from __future__ import annotations

from clustercheck.checks import seeding_gpus
from clustercheck.checks.base import Check, Fault, Finding, bad, every_gpu, excluded, good
from clustercheck.checks.of_gpu_job import REQUIRES, held, spoken, wrong
from clustercheck.evidence import Evidence
from clustercheck.launch.model import RankState
from clustercheck.model import Scope, Subject, Verdict
from clustercheck.parse.reading import CannotReadError

JOB = "gpu_launch"
SHOWN = ("kernel_launch_wall", "kernel_launch_event", "kernel_launch_stream")
PEERS_PART = 1.0  # microseconds out of Python on a host that does other things too: twice the median is news
ALONE = "fewer than four equal GPUs, and no sourced number for launches out of Python: nothing to judge by"


def judge(evidence: Evidence, subject: Subject) -> Finding:
    """Within twice the median of equal GPUs. No floor: published figures are of C++, these are of Python."""
    rank = spoken(evidence, JOB, subject)
    if isinstance(rank, Finding):
        return rank
    known = held(evidence, JOB, subject, rank, PEERS_PART)
    shown = next((known[metric] for metric in SHOWN if metric in known), None)
    if shown is None:
        raise CannotReadError(f"rank {rank.rank} timed no launch")
    told = {"figures": {metric: each.told() for metric, each in known.items()}}
    if said := wrong(rank):
        return bad(said, "wrong", "a time", evidence=told)
    if shown.peers is None:
        return excluded(
            ALONE, measured=round(shown.value, 2), unit=shown.unit, method=shown.method, evidence=told
        )
    late = [each for each in known.values() if each.peers and each.value > each.peers.above(PEERS_PART)]
    one = late[0] if late else shown
    most = round(one.peers.above(PEERS_PART), 2) if one.peers else None
    words = {
        "unit": one.unit,
        "method": one.method,
        "source": f"{shown.peers.count} equal GPUs, median {one.peers.median:.4g}" if one.peers else "",
        "evidence": told,
    }
    if late:
        because = f"{one.metric} {one.value:.4g} {one.unit}, {most} at most among equal GPUs"
        return bad(because, round(one.value, 2), most, **words)
    return good(round(one.value, 2), most, **words)


_SEED = seeding_gpus.Seeds(JOB)
CHECK = Check(
    id="gpu-launch-latency",
    title="Kernel launch",
    scope=Scope.GPU,
    measures="microseconds to start the smallest kernel: by the GPU's events, by the wall clock, and in a "
    "row",
    method="the framework's smallest kernel out of Python, median of many",
    requires=REQUIRES + "; four equal GPUs",
    expectation="at most twice the median of equal GPUs, and four robust deviations above it",
    remedy="Look at the CPU governor, at what else runs on the CPUs of the GPU's NUMA node, and at ACS and "
    "IOMMU.",
    subjects=every_gpu,
    judge=judge,
    job=JOB,
    faults=(
        Fault("slow-launches", _SEED.scaled("gpu02", 2, 4.0), Subject("gpu02", 2)),
        Fault("rank-crashes", _SEED.ended("gpu02", 2, RankState.CRASHED), Subject("gpu02", 2)),
        Fault("too-few-equals", _SEED.only_gpus("gpu01", 3), Subject("gpu01", 0), Verdict.EXCLUDED),
        Fault("job-missing", _SEED.missing(), Subject("gpu01", 0), Verdict.NOT_RUN),
        Fault("no-figures", _SEED.says("gpu01", 0, figures=[]), Subject("gpu01", 0), Verdict.NOT_RUN),
    ),
)
