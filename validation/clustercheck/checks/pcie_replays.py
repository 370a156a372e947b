"""How often each GPU's PCI Express link had to send again while the run's jobs loaded it."""

from __future__ import annotations

import math
from functools import lru_cache, partial

from clustercheck.checks.base import Check, Finding, SeededFault, every_gpu, failed, not_applicable, passed
from clustercheck.checks.pcie_link import link_of
from clustercheck.checks.support import seeding
from clustercheck.checks.support.counters import Counters, growth_over_jobs
from clustercheck.checks.support.gpu import gpu_of
from clustercheck.evidence.cluster import Evidence
from clustercheck.evidence.comparison import before_of
from clustercheck.evidence.node import NodeEvidence
from clustercheck.model import Direction, Figure, Scope, Section, Subject, Verdict
from clustercheck.parse.nvidia_smi import SmiGpu
from clustercheck.parse.reading import CannotReadError

# Gigatransfers a second of one lane, by generation; one bit in 1e12 may be wrong.
TRANSFERS = {1: 2.5, 2: 5.0, 3: 8.0, 4: 16.0, 5: 32.0, 6: 64.0}
SOURCE = (
    "NVIDIA/DCGM, DcgmHealthWatch, GetExpectedPcieReplayRate: one bit error in 1e12, for each lane and minute"
)
KEY = ("link", "replays")


def judge(evidence: Evidence, subject: Subject) -> Finding:
    """By what was counted from before the jobs until after them; what was counted before is told alone."""
    node, gpu = str(subject.node), gpu_of(evidence, subject)
    growth = growth_over_jobs(
        evidence, node, partial(_read, address=gpu.address), loaded_by=_ran(evidence, node)
    )
    total = growth.before.counts[KEY]
    if total is None:
        return not_applicable("the driver reports no replays of this GPU")
    limit = allowed(gpu)
    minutes = _minutes(evidence, node)
    count = growth.grew.get(KEY, 0)
    rate = round(count / minutes, 2)
    lifetime = _lifetime(total)
    before = before_of(evidence, CHECK.id)(subject, lifetime)
    more = {
        "since_driver_load": total,
        "baseline": before.measured if before is not None else None,
        "over_the_jobs": count,
        "minutes": round(minutes, 2),
    }
    words = {"unit": "a minute", "source": SOURCE, "evidence": more, "figures": (lifetime,)}
    if rate > limit:
        because = f"{count} replays in {minutes:.1f} minutes of jobs, at most {limit} a minute expected"
        return failed(because, rate, limit, **words)
    growth.require_told({KEY})
    return passed(rate, limit, **words)


@lru_cache(maxsize=256)
def _lifetime(count: int) -> Figure:
    """One object for the many GPUs that have counted the same: nothing."""
    return Figure("replays_since_load", float(count), "replays", CHECK.method, better=Direction.LOWER)


def allowed(gpu: SmiGpu) -> int:
    """Replays a minute of this link, by what GPU and slot can do. Raises CannotReadError."""
    link = link_of(gpu)
    generation, width = link.generation_max, link.width_max
    if generation is None or width is None:
        raise CannotReadError(link.untold)
    return math.ceil(TRANSFERS.get(generation, TRANSFERS[6]) / 1000 * 60 * width)


def _minutes(evidence: Evidence, node: str) -> float:
    """From the first reading to the last; the limit is that of a minute, so a shorter run counts as one."""
    first, last = evidence.counted_first[node].asked, (evidence.later.get(node) or NodeEvidence(node)).asked
    return max(1.0, (last[0] - first[1]) / 60) if first is not None and last is not None else 1.0


def _ran(evidence: Evidence, node: str) -> list[str]:
    """The jobs that ran on this node: each copies from or to its GPUs, and little is a load as well."""
    return sorted(name for name, outcome in evidence.jobs.items() if node in outcome.by_node)


def _read(node: NodeEvidence, address: str) -> Counters:
    """What this GPU's link counts. Raises CannotReadError."""
    counts = node.pcie_replays()
    if address not in counts:
        raise CannotReadError("nvidia-smi -q -x does not list this GPU")
    return Counters(frozenset(["link"]), {KEY: counts[address]})


def _counts(node: str, gpu: int, before: str, after: str) -> seeding.Inject:
    def counted(count: str) -> seeding.Inject:
        return seeding.edit(node, lambda raw: _set(raw["pcie_replays"]["counts"], gpu, count))

    return seeding.chain(counted(before), seeding.later(counted(after)))


def _set(counts: dict[str, str], gpu: int, count: str) -> None:
    counts[list(counts)[gpu]] = count


CHECK = Check(
    id="pcie-replays",
    title="PCIe replays",
    section=Section.GPU_STATE,
    scope=Scope.LINK,
    measures="packets that each GPU's PCI Express link had to send again, a minute of the run's jobs",
    method="nvidia-smi -q -x, replay_counter, before the jobs and after them: the difference by the time "
    "between. The count since the driver's load is told, with the baseline's, and not judged",
    requires="a job on the node",
    expectation="at most one bit error in 1e12: 8 replays a minute of generation 3 x16, 16 of 4, 31 of 5",
    remedy="Drain the node, power it off, and seat GPU, riser and cable again; if the link has replays in "
    "another slot too, have the GPU replaced.",
    subjects=every_gpu,
    judge=judge,
    counters=("pcie_replays",),
    faults=(
        SeededFault("many", _counts("gpu01", 3, "0", "2000"), Subject("gpu01", 3)),
        SeededFault("as-allowed", _counts("gpu03", 6, "150", "165"), Subject("gpu03", 6), Verdict.PASS),
        SeededFault("just-beyond", _counts("gpu03", 6, "150", "167"), Subject("gpu03", 6)),
        SeededFault(
            "cleared-in-between", _counts("gpu02", 1, "40", "2"), Subject("gpu02", 1), Verdict.NOT_RUN
        ),
        SeededFault(
            "not-told-at-all", _counts("gpu02", 2, "N/A", "N/A"), Subject("gpu02", 2), Verdict.EXCLUDED
        ),
        SeededFault("not-told", _counts("gpu02", 2, "0", "N/A"), Subject("gpu02", 2), Verdict.NOT_RUN),
        SeededFault(
            "not-read-again",
            seeding.later(seeding.unreachable("gpu01")),
            Subject("gpu01", 0),
            Verdict.NOT_RUN,
        ),
    ),
)
