"""Errors that each GPU's NVLinks count while the run's jobs load them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache, partial

from clustercheck.checks import gpu_peer_bandwidth, nccl_tests
from clustercheck.checks.base import Check, Finding, SeededFault, every_gpu, failed, not_applicable, passed
from clustercheck.checks.support import nccl, seeding
from clustercheck.checks.support.counters import Counters, Key, growth_over_jobs
from clustercheck.checks.support.gpu import explain_no_nvlink, gpu_of, listed_for, require_all_listed
from clustercheck.checks.support.load import nvlink_load
from clustercheck.evidence.cluster import Evidence
from clustercheck.evidence.node import NodeEvidence
from clustercheck.model import Scope, Section, Subject, Verdict
from clustercheck.parse.nvidia_smi import SmiGpu
from clustercheck.parse.reading import CannotReadError
from clustercheck.samples.smi import nvlink5_errors_text

COMMAND = "nvidia-smi nvlink -e"
# One is a failure to DCGM's health watch; CRC errors matter to it from 100 a second on, and are told.
JUDGED = ("replay errors", "recovery errors")
# NVLink 5 counts neither: its links recover by themselves, and one that could not goes down.
RECOVERY_FAILED = "link recovery failed events"
_TOLD = ("errors", "events", "discards")  # not its traffic, nor what its error correction has corrected
SOURCE = (
    "NVIDIA/DCGM, DcgmHealthWatch and DcgmGPUHardwareLimits.h: replay and recovery errors from 1 on; "
    "of NVLink 5 DCGM's field 1212: the link went from up to recovery failed, and down"
)


def judge(evidence: Evidence, subject: Subject) -> Finding:
    """A link that had to send again or to be trained again loses bandwidth, and may be lost itself."""
    node = str(subject.node)
    profile = evidence.profile(node)
    if profile is not None and profile.nvlink is None:
        return not_applicable(f"{profile.summary} has no NVLink")
    gpu = gpu_of(evidence, subject)
    if why := explain_no_nvlink(evidence, gpu, node, "nvlink_errors"):
        return not_applicable(why)
    listed = evidence.counted_first[node].nvlink_errors()
    require_all_listed(evidence.nodes[node], listed, COMMAND)
    mine = listed_for(gpu, listed)
    if mine is not None and mine.lost:
        return failed(f"the driver has lost this GPU: {mine.unread}", mine.lost, "no such answer")
    load = nvlink_load(evidence, node, int(subject.gpu or 0))
    growth = growth_over_jobs(evidence, node, partial(_read, gpu=gpu), loaded_by=load)
    if not growth.before.up and not growth.grew:
        return not_applicable("no link of this GPU is up: nothing is counted (see nvlink)")
    wrong = [(where, name, count) for (where, name), count in growth.grew.items() if _is_judged(name)]
    more = {
        "links": len(growth.before.up),
        "before": _told(growth.before.above_zero),
        "grown": _told(growth.grew),
        "loaded_by": load,
    }
    if wrong or growth.gone:
        lines = [f"{where} was up before and is not any more" for where in growth.gone]
        lines += [f"{where}: {count} {name}" for where, name, count in wrong]
        total = len(growth.gone) + sum(count for _, _, count in wrong)
        because = f"over the jobs of this run {', '.join(lines[:4])}"
        return failed(because, total, 0, unit="errors", source=SOURCE, evidence=more)
    growth.require_told({key for key in growth.untold if _is_judged(key[1])})
    return passed(0, 0, unit="errors", source=SOURCE, evidence=more)


def _read(node: NodeEvidence, gpu: SmiGpu) -> Counters:
    """What this GPU's links count; no link is up of a GPU that is lost. Raises CannotReadError."""
    mine = listed_for(gpu, node.nvlink_errors())
    if mine is None or mine.lost:
        return Counters(frozenset(), {})
    if mine.unread:
        raise CannotReadError(mine.unread)
    links = {f"link {number}": counts for number, counts in mine.counts.items() if counts}
    return Counters(
        frozenset(links),
        {(link, name): counts.get(name) for link, counts in links.items() for name in _names(tuple(counts))},
    )


@lru_cache(maxsize=64)  # links of a generation print the same
def _names(printed: tuple[str, ...]) -> Sequence[str]:
    """What is told of a link that prints these: also what it must report, by its generation."""
    required = (RECOVERY_FAILED,) if RECOVERY_FAILED in printed else JUDGED
    return sorted({*required, *filter(_is_told, printed)})


def _is_judged(name: str) -> bool:
    return name in (*JUDGED, RECOVERY_FAILED)


def _is_told(name: str) -> bool:
    return name.endswith(_TOLD)


def _told(counts: Mapping[Key, int]) -> dict[str, int]:
    return {f"{where}: {name}": count for (where, name), count in counts.items()}


def _on_link_3(message: str) -> tuple[str, str]:
    """Instead of all that the first GPU's link 3 counts."""
    counts = "".join(f"\t Link 3: {name} Errors: 0\n" for name in ("Replay", "Recovery", "CRC"))
    return counts, message


def _counted(node: str, count: str) -> seeding.Inject:
    """Before the jobs, and the same after them."""
    answer = seeding.stdout(
        node, "nvlink_errors", "Link 3: Replay Errors: 0", f"Link 3: Replay Errors: {count}"
    )
    return seeding.chain(answer, seeding.later(answer))


def _fifth_generation(failed_events: int) -> seeding.Inject:
    """Before the jobs and after them, as drivers print it of NVLink 5; during them link 3 fails."""

    def change(failed: int, raw: seeding.Raw) -> None:
        header = raw["nvlink_errors"]["stdout"].partition("\n")[0]
        rest = raw["nvlink_errors"]["stdout"].partition("GPU 1:")
        lines = nvlink5_errors_text(18, failed=failed, on=3)
        raw["nvlink_errors"]["stdout"] = f"{header}\n{lines}{rest[1]}{rest[2]}"

    return seeding.chain(
        seeding.edit("gpu01", partial(change, 0)),
        seeding.later(seeding.edit("gpu01", partial(change, failed_events))),
    )


def _not_loaded(evidence: Evidence) -> Evidence:
    """Jobs ran, but none between GPUs of a node."""
    for job in (gpu_peer_bandwidth.JOB, nccl_tests.JOB, nccl.HEARD):
        evidence = seeding.without_job(evidence, job)
    return evidence


def _counts(node: str, name: str, count: str) -> seeding.Inject:
    """On link 3 of the first GPU, after the jobs."""
    return seeding.later(
        seeding.stdout(node, "nvlink_errors", f"Link 3: {name} Errors: 0", f"Link 3: {name} Errors: {count}")
    )


CHECK = Check(
    id="nvlink-errors",
    title="NVLink errors",
    section=Section.GPU_STATE,
    scope=Scope.LINK,
    measures="replay, recovery and CRC errors (of NVLink 5 failed recoveries) that every NVLink of every GPU "
    "counts while the jobs of the run load it",
    method="nvidia-smi nvlink -e before the jobs and after them: the difference. The counters start with "
    "the driver's load; earlier counts are reported",
    requires="GPUs with NVLink that is up, MIG off; where they have counted anything before, a job that "
    "loads them: NCCL among GPUs of the node, or copies between them",
    expectation="no replay, no recovery error and no failed recovery, and every link that was up is up after "
    "the jobs; CRC errors, which are corrected, are told and not judged",
    remedy="Drain the node and load the links once more (clusterctl validate). If the errors grow again, "
    "reseat the GPU, its bridge or the baseboard, then replace it (`nvidia-smi nvlink -re` clears the "
    "counters).",
    subjects=every_gpu,
    judge=judge,
    counters=("nvlink_errors",),
    faults=(
        SeededFault("replays", _counts("gpu01", "Replay", "142"), Subject("gpu01", 0)),
        SeededFault("recovery-failed", _fifth_generation(1), Subject("gpu01", 0)),
        SeededFault("recovered", _counts("gpu02", "Recovery", "1"), Subject("gpu02", 0)),
        SeededFault(
            "cleared-in-between",
            seeding.stdout("gpu03", "nvlink_errors", "Replay Errors: 0", "Replay Errors: 7"),
            Subject("gpu03", 0),
            Verdict.NOT_RUN,
        ),
        SeededFault(
            "not-read-again",
            seeding.later(seeding.unreachable("gpu01")),
            Subject("gpu01", 0),
            Verdict.NOT_RUN,
        ),
        SeededFault("not-told", _counts("gpu03", "Replay", "N/A"), Subject("gpu03", 0), Verdict.NOT_RUN),
        SeededFault(
            "replays-beside-one-not-told",
            seeding.chain(
                _counts("gpu01", "Replay", "142"),
                seeding.stdout(
                    "gpu01", "nvlink_errors", "Link 0: Recovery Errors: 0", "Link 0: Recovery Errors: N/A"
                ),
            ),
            Subject("gpu01", 0),
        ),
        SeededFault(
            "link-down-after-the-jobs",
            seeding.later(seeding.stdout("gpu02", "nvlink_errors", *_on_link_3("\t Link 3: <inactive>\n"))),
            Subject("gpu02", 0),
        ),
        SeededFault(
            "gpu-lost-during-the-jobs",
            seeding.later(
                seeding.stdout(
                    "gpu02", "nvlink_errors", *_on_link_3("\t Unable to get counters: GPU is lost\n")
                )
            ),
            Subject("gpu02", 0),
        ),
        SeededFault(
            "not-loaded",
            seeding.chain(_counted("gpu02", "14200"), _not_loaded),
            Subject("gpu02", 0),
            Verdict.NOT_RUN,
        ),
        SeededFault(
            "translated",
            seeding.stdout("gpu03", "nvlink_errors", "Replay Errors: 0", "erreurs : zéro"),
            Subject("gpu03", 0),
            Verdict.NOT_RUN,
        ),
        SeededFault(
            "no-answer",
            seeding.program_fails("gpu02", "nvlink_errors", rc=None, timed_out=True),
            Subject("gpu02", 1),
            Verdict.NOT_RUN,
        ),
    ),
)
