"""What a program for one GPU said, and what holds it: physics, profile, equal GPUs. For the checks gpu-*."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from clustercheck.checks.base import Finding, bad, excluded, good, unknown
from clustercheck.checks.of_gpu import gpu_of
from clustercheck.checks.of_gpu_ceilings import ceiling_of
from clustercheck.checks.of_job import SAID, outcome_of
from clustercheck.evidence import Evidence
from clustercheck.expect.peers import Peers
from clustercheck.gpu_jobs import figures
from clustercheck.launch.model import RankOutcome, RankState
from clustercheck.model import Subject
from clustercheck.parse.reading import CannotReadError, NotDoneError

ABOVE_CEILING = 1.02  # clocks and medians: a measurement may sit this little above physics
# What a program raises that is no word about the GPU: it was not measured.
NOT_THE_GPUS = ("MeasurementError", "ValueError", "BackendError", "ImportError", "ModuleNotFoundError")
NO_FLOOR = "no sourced floor for this hardware"
REQUIRES = "the training image on the node, built with CUDA, and a container that sees the GPU"
MIG = "MIG is on: what its instances do is not what the GPU can do"


def spoken(evidence: Evidence, job: str, subject: Subject) -> RankOutcome | Finding:
    """The rank that ran on this GPU, with a verdict of its own; the finding where there is none.

    Raises NotDoneError where none ran, CannotReadError where its verdict is none.
    """
    if _has_mig(evidence, subject):
        return excluded(MIG)
    outcome_of(evidence, job)
    ran = evidence.gpu_jobs[job]
    if because := ran.absent(str(subject.node)):
        raise NotDoneError(because)
    rank = ran.ranks.get((str(subject.node), int(subject.gpu or 0)))
    if rank is None:
        raise NotDoneError("no rank ran on this GPU: the container did not see it (container-gpus)")
    if rank.state is RankState.FAILED and rank.because.startswith(NOT_THE_GPUS):
        raise NotDoneError(rank.because)
    if rank.state in (RankState.CRASHED, RankState.HUNG, RankState.FAILED):
        return _ended_badly(rank)
    if rank.state is not RankState.OK:
        raise NotDoneError(rank.because or SAID[rank.state])
    if rank.verdict is None or not isinstance(rank.verdict.get("ok"), bool):
        raise CannotReadError(f"rank {rank.rank} gave no verdict")
    if raised := rank.verdict.get("raised"):
        said = str(rank.verdict.get("because") or raised)
        if raised in NOT_THE_GPUS:
            raise NotDoneError(said)
        return bad(said, "it failed", "a verdict")
    return rank


def _has_mig(evidence: Evidence, subject: Subject) -> bool:
    try:
        return gpu_of(evidence, subject).mig == "Enabled"
    except CannotReadError:
        return False


def _ended_badly(rank: RankOutcome) -> Finding:
    more = {"state": rank.state.value, "exit_code": rank.exit_code, "log": rank.log_tail[-600:]}
    if rank.stack:
        more["stack"] = rank.stack[-1200:]
    said = SAID[rank.state]
    return bad(rank.because or said, said, "a verdict of its own", evidence=more)


def wrong(rank: RankOutcome) -> str:
    """What the program itself says is wrong; empty where nothing is."""
    verdict = rank.verdict or {}
    if verdict.get("ok") is True:
        return ""
    return str(verdict.get("because") or "the program says that its results are wrong")


@dataclass(frozen=True)
class Held:
    """One figure and what holds it. ``low`` is the least that is asked, of floor and peers the higher."""

    metric: str
    value: float
    unit: str
    method: str
    ceiling: float | None
    floor: float | None
    floor_source: str
    peers: Peers | None
    part: float

    @property
    def behind(self) -> float | None:
        """What equal GPUs ask at least."""
        return self.peers.threshold(self.part) if self.peers else None

    @property
    def trouble(self) -> str:
        """Which of its limits it fails, in words; empty where it fails none."""
        measured = f"{self.metric} {self.value:.4g} {self.unit}"
        if self.floor is not None and self.value < self.floor:
            return f"{measured}, {self.floor:.4g} expected at least"
        if self.peers is not None and self.behind is not None and self.value < self.behind:
            return f"{measured}, {self.peers.median:.4g} is the median of {self.peers.count} equal GPUs"
        return ""

    @property
    def is_impossible(self) -> bool:
        """Whether it is above what physics allows."""
        return self.ceiling is not None and self.value > self.ceiling * ABOVE_CEILING

    @property
    def efficiency(self) -> float | None:
        """Of the ceiling; None where nothing bounds it, or it is above."""
        if self.ceiling is None or self.value > self.ceiling:
            return None
        return round(self.value / self.ceiling, 4)

    def told(self) -> dict[str, Any]:
        """For the result's evidence."""
        return {
            "value": round(self.value, 4),
            "unit": self.unit,
            "floor": self.floor and round(self.floor, 4),
            "ceiling": self.ceiling and round(self.ceiling, 4),
            "peers": self.peers and round(self.peers.median, 4),
            "equals": self.peers.count if self.peers else 0,
        }


def held(evidence: Evidence, job: str, subject: Subject, rank: RankOutcome, part: float) -> dict[str, Held]:
    """Every figure of a rank with what holds it. Raises CannotReadError where there is none."""
    profile = evidence.profile(str(subject.node))
    found = {}
    for metric, figure in figures(rank).items():
        floor = profile.floor_of_gpu(metric) if profile else None
        found[metric] = Held(
            metric=metric,
            value=float(figure["value"]),
            unit=str(figure["unit"]),
            method=str(figure.get("method") or ""),
            ceiling=ceiling_of(evidence, subject, rank, metric),
            floor=floor.threshold if floor else None,
            floor_source=f"profile {profile.name}: {floor.source}" if profile and floor else "",
            peers=evidence.gpu_jobs[job].peers(rank, metric),
            part=part,
        )
    if not found:
        raise CannotReadError(f"rank {rank.rank} names no figures")
    return found


def judged(
    evidence: Evidence, job: str, subject: Subject, rank: RankOutcome, *, wanted: Sequence[str], part: float
) -> Finding:
    """Right first, then possible, then fast enough. The first of ``wanted`` that was measured is shown."""
    known = held(evidence, job, subject, rank, part)
    shown = next((known[metric] for metric in wanted if metric in known), None)
    if shown is None:
        raise CannotReadError(f"rank {rank.rank} measured none of {', '.join(wanted)}")
    if said := wrong(rank):
        return bad(said, "wrong numbers", "every number right", evidence=_told(known))
    impossible = [each for each in known.values() if each.is_impossible]
    if impossible:
        because = f"{impossible[0].metric} is above what physics allows: the measurement is wrong"
        return unknown(because, **_words(impossible[0], known))
    slow = [each for each in known.values() if each.trouble]
    if slow:
        said = "; ".join(each.trouble for each in slow)
        return bad(said, round(slow[0].value, 4), _expected(slow[0]), **_shown(slow[0], known))
    return good(round(shown.value, 4), _expected(shown), **_shown(shown, known))


def _expected(one: Held) -> float | None:
    asked = [limit for limit in (one.floor, one.behind) if limit is not None]
    return round(max(asked), 4) if asked else None


def _words(one: Held, known: dict[str, Held]) -> dict[str, Any]:
    return {"measured": round(one.value, 4), "expected": _expected(one), **_shown(one, known)}


def _shown(one: Held, known: dict[str, Held]) -> dict[str, Any]:
    equals = f"; {one.peers.count} equal GPUs, median {one.peers.median:.4g}" if one.peers else ""
    return {
        "unit": one.unit,
        "efficiency": one.efficiency,
        "source": f"{one.floor_source or NO_FLOOR}{equals}",
        "method": one.method,
        "evidence": _told(known),
    }


def _told(known: dict[str, Held]) -> dict[str, Any]:
    return {"figures": {metric: each.told() for metric, each in known.items()}}
