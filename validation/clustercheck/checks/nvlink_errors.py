"""Errors that each GPU's NVLinks count while the run's jobs load them."""

from __future__ import annotations

from clustercheck.checks import seeding
from clustercheck.checks.base import Check, Fault, Finding, bad, every_gpu, excluded, good
from clustercheck.checks.of_counters import Counts, before_and_after, grown
from clustercheck.checks.of_gpu import gpu_of
from clustercheck.evidence import Evidence
from clustercheck.model import Scope, Subject, Verdict
from clustercheck.node_evidence import NodeEvidence
from clustercheck.parse.nvidia_smi import Gpu
from clustercheck.parse.nvlink import GpuLinkErrors, parse_nvlink_errors
from clustercheck.parse.reading import CannotReadError, program_output

# One is a failure to DCGM's health watch; CRC errors matter to it from 100 a second on, and are told.
JUDGED = ("replay errors", "recovery errors")
SOURCE = "NVIDIA/DCGM, DcgmHealthWatch and dcgm_gpu_hardware_limits.h: replay and recovery errors from 1 on"


def judge(evidence: Evidence, subject: Subject) -> Finding:
    """A link that had to send again or to be trained anew loses bandwidth, and may be lost itself."""
    node = str(subject.node)
    profile = evidence.profile(node)
    if profile is not None and profile.nvlink is None:
        return excluded(f"{profile.summary} has no NVLink")
    gpu = gpu_of(evidence, subject)
    if gpu.mig == "Enabled":
        return excluded("MIG is on, which switches NVLink off")
    listed = _listed(evidence, evidence.nodes[node])
    if len(listed) != len(evidence.nodes[node].smi().gpus):
        raise CannotReadError(f"nvidia-smi nvlink -e lists {len(listed)} GPUs")
    links = {number: counts for number, counts in _of(listed, gpu).counts.items() if counts}
    if not links:
        return excluded("no link of this GPU is up: nothing is counted (see nvlink)")
    before, after = before_and_after(
        evidence, node, lambda said: _counts_of(_of(_listed(evidence, said), gpu))
    )
    grew = {key: count for key, count in grown(before, after).items() if count}
    wrong = [(where, name, count) for (where, name), count in sorted(grew.items()) if name in JUDGED]
    more = {"links": len(links), "before": _told(before), "grown": _told(grew)}
    if wrong:
        said = ", ".join(f"{where}: {count} {name}" for where, name, count in wrong[:4])
        total = sum(count for _, _, count in wrong)
        return bad(f"over the jobs of this run {said}", total, 0, unit="errors", source=SOURCE, evidence=more)
    return good(0, 0, unit="errors", source=SOURCE, evidence=more)


def _counts_of(links: GpuLinkErrors) -> Counts:
    """Raises CannotReadError where the driver does not tell what is judged."""
    for number, counts in sorted(links.counts.items()):
        if counts and any(counts.get(name) is None for name in JUDGED):
            raise CannotReadError(f"replay and recovery errors of link {number} are not told")
    return {
        (f"link {number}", name): count
        for number, counts in links.counts.items()
        for name, count in counts.items()
        if count is not None
    }


def _told(counts: Counts) -> dict[str, int]:
    return {f"{where}: {name}": count for (where, name), count in sorted(counts.items()) if count}


def _listed(evidence: Evidence, node: NodeEvidence) -> tuple[GpuLinkErrors, ...]:
    found = evidence.once(lambda _: _read(node), ("NVLink errors", id(node)))
    if isinstance(found, CannotReadError):
        raise found
    return found


def _read(node: NodeEvidence) -> tuple[GpuLinkErrors, ...] | CannotReadError:
    try:
        return parse_nvlink_errors(program_output(node.part("nvlink_errors"), "nvidia-smi nvlink -e"))
    except CannotReadError as error:
        return error


def _of(listed: tuple[GpuLinkErrors, ...], gpu: Gpu) -> GpuLinkErrors:
    for links in listed:
        if (links.uuid and links.uuid == gpu.uuid) or (not links.uuid and links.index == gpu.index):
            return links
    raise CannotReadError("nvidia-smi nvlink -e does not list this GPU")


def _counts(node: str, name: str, count: str) -> seeding.Inject:
    """On link 3 of the first GPU, after the jobs."""
    return seeding.later(
        seeding.stdout(node, "nvlink_errors", f"Link 3: {name} Errors: 0", f"Link 3: {name} Errors: {count}")
    )


CHECK = Check(
    id="nvlink-errors",
    title="NVLink errors",
    scope=Scope.LINK,
    measures="replay, recovery and CRC errors that every NVLink of every GPU counts while the jobs of the "
    "run load it",
    method="nvidia-smi nvlink -e before the jobs and after them: the difference. The counters begin with "
    "the driver's load; what they had before is told",
    requires="GPUs with NVLink that is up, MIG off",
    expectation="no replay and no recovery error; CRC errors, which are corrected, are told and not judged",
    remedy="Drain the node, load the links once more (clusterctl validate) and look again: what counts on "
    "wants the GPU, its bridge or the baseboard reseated, then replaced (`nvidia-smi nvlink -re` clears the "
    "counters).",
    subjects=every_gpu,
    judge=judge,
    counters=("nvlink_errors",),
    faults=(
        Fault("replays", _counts("gpu01", "Replay", "142"), Subject("gpu01", 0)),
        Fault("recovered", _counts("gpu02", "Recovery", "1"), Subject("gpu02", 0)),
        Fault(
            "cleared-in-between",
            seeding.stdout("gpu03", "nvlink_errors", "Replay Errors: 0", "Replay Errors: 7"),
            Subject("gpu03", 0),
            Verdict.NOT_RUN,
        ),
        Fault(
            "not-read-again",
            seeding.later(seeding.unreachable("gpu01")),
            Subject("gpu01", 0),
            Verdict.NOT_RUN,
        ),
        Fault("not-told", _counts("gpu03", "Replay", "N/A"), Subject("gpu03", 0), Verdict.NOT_RUN),
        Fault(
            "translated",
            seeding.stdout("gpu03", "nvlink_errors", "Replay Errors: 0", "erreurs : zéro"),
            Subject("gpu03", 4),
            Verdict.NOT_RUN,
        ),
        Fault(
            "no-answer",
            seeding.program_fails("gpu02", "nvlink_errors", rc=None, timed_out=True),
            Subject("gpu02", 1),
            Verdict.NOT_RUN,
        ),
    ),
)
