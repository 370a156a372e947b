"""What a program for one GPU said, and what holds it: physics, profile, equal GPUs. For the checks gpu-*."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from clustercheck.checks.base import Finding, failed, not_applicable, not_run
from clustercheck.checks.support.errors import not_the_hardware
from clustercheck.checks.support.gpu import gpu_of
from clustercheck.checks.support.gpu_ceilings import GpuCeilings
from clustercheck.checks.support.job import SAID, outcome_of
from clustercheck.evidence.cluster import Evidence
from clustercheck.evidence.gpu_jobs import conditions, figures
from clustercheck.expect.effects import effect as effect_of
from clustercheck.expect.profiles import Profile
from clustercheck.launch.model import RankOutcome, RankState
from clustercheck.model import Direction, Effect, Figure, Limit, Subject, Verdict
from clustercheck.parse.reading import CannotReadError, NotDoneError

ABOVE_CEILING = 0.02  # clocks and medians: a measurement may sit this little above physics
# What a program raises that is not a word about the GPU: it was not measured.
NOT_THE_GPUS = ("MeasurementError", "ValueError", "BackendError", "ImportError", "ModuleNotFoundError")
PHYSICS = "clocks, units, memory bus and PCIe link as detected, else the profile's"
PHYSICS_METHOD = "what the hardware can do at its highest clock"
REQUIRES = "the training image on the node, built with CUDA, and a container that sees the GPU"
MIG = "MIG is on: what its instances do is not what the GPU can do"


def rank_result(evidence: Evidence, job: str, subject: Subject) -> RankOutcome | Finding:
    """The rank that ran on this GPU, with a verdict of its own; the finding if there is none.

    Raises NotDoneError where none ran, CannotReadError where its verdict is none.
    """
    if _has_mig(evidence, subject):
        return not_applicable(MIG)
    outcome_of(evidence, job)
    ran = evidence.gpu_jobs[job]
    if because := ran.absent(str(subject.node)):
        raise NotDoneError(because)
    rank = ran.ranks.get((str(subject.node), int(subject.gpu or 0)))
    if rank is None:
        raise NotDoneError("no rank ran on this GPU: the container did not see it (container-gpus)")
    if rank.state is RankState.FAILED and (finding := _innocent(rank.because)) is not None:
        return finding
    if rank.state in (RankState.CRASHED, RankState.HUNG, RankState.FAILED):
        return _ended_badly(rank)
    if rank.state is not RankState.OK:
        raise NotDoneError(rank.because or SAID[rank.state])
    if rank.verdict is None or not isinstance(rank.verdict.get("ok"), bool):
        raise CannotReadError(f"rank {rank.rank} gave no verdict")
    if raised := rank.verdict.get("raised"):
        message = str(rank.verdict.get("because") or raised)
        return _innocent(f"{raised}: {message}", message) or failed(message, "it failed", "a verdict")
    return rank


def _innocent(error: str, answer: str = "") -> Finding | None:
    """Where an error, its type first, is not a word about the GPU: not run, and why; else None."""
    answer = answer or error
    if remedy := not_the_hardware(error):
        return not_run(answer, remedy=remedy)
    if error.startswith(NOT_THE_GPUS):
        raise NotDoneError(answer)
    return None


def _has_mig(evidence: Evidence, subject: Subject) -> bool:
    try:
        return gpu_of(evidence, subject).mig == "Enabled"
    except CannotReadError:
        return False


def _ended_badly(rank: RankOutcome) -> Finding:
    more = {"state": rank.state.value, "exit_code": rank.exit_code, "log": rank.log_tail[-600:]}
    if rank.stack:
        more["stack"] = rank.stack[-1200:]
    answer = SAID[rank.state]
    return failed(rank.because or answer, answer, "a verdict of its own", evidence=more)


def wrong(rank: RankOutcome) -> str:
    """What the program itself says is wrong; empty if nothing is."""
    verdict = rank.verdict or {}
    if verdict.get("ok") is True:
        return ""
    return str(verdict.get("because") or "the program reports wrong results")


def measured(
    evidence: Evidence, subject: Subject, rank: RankOutcome, *, wanted: Sequence[str], effect: Effect
) -> Finding:
    """Right or not; how fast, the figures tell. The first of ``wanted`` that was measured comes first.

    Raises CannotReadError where none of them was measured.
    """
    if answer := wrong(rank):
        return failed(answer, "wrong numbers", "every number right")
    known = figures(rank)
    if not any(metric in known for metric in wanted):
        raise CannotReadError(f"rank {rank.rank} measured none of {', '.join(wanted)}")
    ordered = sorted(known, key=lambda metric: wanted.index(metric) if metric in wanted else len(wanted))
    ceilings = GpuCeilings(evidence, subject, rank)
    found = tuple(_figure(ceilings, known[metric], effect) for metric in ordered)
    return Finding(Verdict.PASS, figures=found)


def judge_of(job: str, wanted: Sequence[str]) -> Callable[[Evidence, Subject], Finding]:
    """What judges a GPU by a job's figures alone: right, possible, not below the floor nor behind equals."""

    def judge(evidence: Evidence, subject: Subject) -> Finding:
        rank = rank_result(evidence, job, subject)
        if isinstance(rank, Finding):
            return rank
        return measured(evidence, subject, rank, wanted=wanted, effect=effect_of("gpu"))

    return judge


def _figure(ceilings: GpuCeilings, figure: Mapping[str, Any], effect: Effect) -> Figure:
    metric, profile = str(figure["metric"]), ceilings.profile
    ceiling = ceilings.of(metric)
    floor = None
    if profile is not None:
        floor = ceilings.evidence.once(lambda _: _floor(profile, metric), ("floor", profile.name, metric))
    return Figure(
        metric=metric,
        measured=float(figure["value"]),
        unit=str(figure["unit"]),
        method=str(figure.get("method") or ""),
        label=sys.intern(f"({metric})"),
        better=Direction.LOWER if figure["unit"] == "us" else Direction.HIGHER,
        ceiling=_ceiling(ceiling) if ceiling is not None else None,
        floor=floor,
        effect=effect,
        conditions=conditions(ceilings.rank, figure),
    )


# Thousands of GPUs have the same limits: each of them is made once.
@lru_cache(maxsize=1024)
def _ceiling(most: float) -> Limit:
    return Limit(most, PHYSICS, PHYSICS_METHOD, ABOVE_CEILING)


def _floor(profile: Profile, metric: str) -> Limit | None:
    floor = profile.floor_of_gpu(metric)
    if floor is None:
        return None
    return Limit(floor.value, f"profile {profile.name}: {floor.source}", floor.method, floor.tolerance)
