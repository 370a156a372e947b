"""Errors that each GPU's NVLinks have counted since the driver was loaded, or they were cleared."""

from __future__ import annotations

from functools import partial

from clustercheck.checks import seeding
from clustercheck.checks.base import Check, Fault, Finding, bad, every_gpu, excluded, good
from clustercheck.checks.of_gpu import gpu_of
from clustercheck.evidence import Evidence
from clustercheck.model import Scope, Subject, Verdict
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
    listed = evidence.once(partial(_listed, node=node), ("NVLink errors", node))
    if isinstance(listed, CannotReadError):
        raise listed
    if len(listed) != len(evidence.nodes[node].smi().gpus):
        raise CannotReadError(f"nvidia-smi nvlink -e lists {len(listed)} GPUs")
    links = {number: counts for number, counts in _of(listed, gpu).counts.items() if counts}
    if not links:
        return excluded("no link of this GPU is up: nothing is counted (see nvlink)")
    if hidden := [number for number, counts in links.items() if any(counts.get(n) is None for n in JUDGED)]:
        said = ", ".join(map(str, sorted(hidden)))
        raise CannotReadError(f"replay and recovery errors of link {said} are not told")
    wrong = [
        (number, name, count)
        for number, counts in sorted(links.items())
        for name in JUDGED
        if (count := counts[name])
    ]
    crc = {str(number): count for number, counts in links.items() if (count := counts.get("crc errors"))}
    more = {"links": len(links), "crc_errors": crc}
    if wrong:
        said = ", ".join(f"link {number}: {count} {name}" for number, name, count in wrong[:4])
        total = sum(count for _, _, count in wrong)
        return bad(said, total, 0, unit="errors", source=SOURCE, evidence=more)
    return good(0, 0, unit="errors", source=SOURCE, evidence=more)


def _listed(evidence: Evidence, node: str) -> tuple[GpuLinkErrors, ...] | CannotReadError:
    try:
        return parse_nvlink_errors(
            program_output(evidence.nodes[node].part("nvlink_errors"), "nvidia-smi nvlink -e")
        )
    except CannotReadError as error:
        return error


def _of(listed: tuple[GpuLinkErrors, ...], gpu: Gpu) -> GpuLinkErrors:
    for links in listed:
        if (links.uuid and links.uuid == gpu.uuid) or (not links.uuid and links.index == gpu.index):
            return links
    raise CannotReadError("nvidia-smi nvlink -e does not list this GPU")


def _counts(node: str, name: str, count: str) -> seeding.Inject:
    """On link 3 of the first GPU."""
    return seeding.stdout(
        node, "nvlink_errors", f"Link 3: {name} Errors: 0", f"Link 3: {name} Errors: {count}"
    )


CHECK = Check(
    id="nvlink-errors",
    title="NVLink errors",
    scope=Scope.LINK,
    measures="replay, recovery and CRC errors that every NVLink of every GPU has counted",
    method="nvidia-smi nvlink -e; the counters begin with the driver's load",
    requires="GPUs with NVLink that is up, MIG off",
    expectation="no replay and no recovery error; CRC errors, which are corrected, are told and not judged",
    remedy="Drain the node, clear the counters (`nvidia-smi nvlink -re`), load the links (clusterctl "
    "validate) and look again: what counts on wants the GPU, its bridge or the baseboard reseated, then "
    "replaced. Cleared counters are how what is settled is acknowledged.",
    subjects=every_gpu,
    judge=judge,
    faults=(
        Fault("replays", _counts("gpu01", "Replay", "142"), Subject("gpu01", 0)),
        Fault("recovered", _counts("gpu02", "Recovery", "1"), Subject("gpu02", 0)),
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
