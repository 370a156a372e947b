"""Does a container see the GPUs also where it does not run as root?"""

from __future__ import annotations

from clustercheck.checks.base import Check, Finding, SeededFault, every_gpu_node, failed, not_run, passed
from clustercheck.checks.container_gpus import listed
from clustercheck.checks.support import seeding
from clustercheck.checks.support.docker import not_started
from clustercheck.evidence.cluster import Evidence
from clustercheck.model import Scope, Section, Severity, Subject, Verdict
from clustercheck.parse.reading import (
    CORRUPT_INFOROM,
    CannotReadError,
    ended_well,
    first_line,
    program_output,
)

PART = "container_gpus_as_user"


def judge(evidence: Evidence, subject: Subject) -> Finding:
    """The same GPUs as root sees in a container; whether those are all is another check's question."""
    node = evidence.nodes[str(subject.node)]
    record = node.mapping(PART)
    if (finding := not_started(record)) is not None:
        return finding
    try:
        of_root = listed(program_output(node.part("container_gpus"), "nvidia-smi -L in a container as root"))
    except CannotReadError as error:
        return not_run(f"nothing to compare with: {error}", remedy="See the check container-gpus first.")
    if record.get("timed_out"):
        return failed("the container did not end within its time limit", "hangs", len(of_root))
    if not isinstance(record.get("rc"), int):
        raise CannotReadError("the probe could not start a container")
    if not ended_well(record):
        answer = first_line(str(record.get("stderr") or "")) or first_line(str(record.get("stdout") or ""))
        return failed(f"a non-root container cannot use the GPUs: {answer}", 0, len(of_root))
    seen = listed(str(record.get("stdout") or ""))
    if not of_root or set(seen) - set(of_root):
        raise CannotReadError("a non-root container sees more GPUs than one of root")
    if set(of_root) - set(seen):
        because = f"a container sees {len(seen)} GPU(s) as non-root, {len(of_root)} as root"
        return failed(because, len(seen), len(of_root))
    return passed(len(seen), len(of_root))


def _without_last(raw: seeding.Raw) -> None:
    raw[PART]["stdout"] = "".join(raw[PART]["stdout"].splitlines(keepends=True)[:-1])


def _with_inforom_warning(raw: seeding.Raw) -> None:
    raw[PART]["stdout"] += f"WARNING: {CORRUPT_INFOROM} at gpu 0000:47:00.0\n"
    raw[PART]["rc"] = 14


CHECK = Check(
    id="container-user",
    title="GPUs in containers, not as root",
    section=Section.CONTAINERS,
    scope=Scope.HOST,
    severity=Severity.CRITICAL,
    measures="which GPUs a container of the training image sees whose user is not root",
    method="docker run --rm --user 65534:65534, nvidia-smi -L in the training image, compared by UUID with "
    "the same as root",
    requires="the training image, Docker, the NVIDIA Container Toolkit, GPUs in containers as root",
    expectation="every GPU that a container sees as root",
    remedy="Look at the device files (`ls -l /dev/nvidia*`, 0666 by default): NVreg_DeviceFileMode, "
    "NVreg_DeviceFileGID in /etc/modprobe.d or a udev rule may keep users out; then give the group "
    "with --group-add, or the files to all.",
    subjects=every_gpu_node,
    judge=judge,
    faults=(
        SeededFault("sees-seven", seeding.edit("gpu01", _without_last), Subject("gpu01")),
        SeededFault(
            "inforom-of-a-gpu-corrupted",
            seeding.edit("gpu01", _with_inforom_warning),
            Subject("gpu01"),
            Verdict.PASS,
        ),
        SeededFault(
            "not-permitted",
            seeding.program_fails(
                "gpu02", PART, rc=4, stderr="Failed to initialize NVML: Insufficient Permissions"
            ),
            Subject("gpu02"),
        ),
        SeededFault(
            "docker-stopped",
            seeding.program_fails("gpu01", PART, rc=125, stderr=f"docker: {seeding.NO_DOCKER}"),
            Subject("gpu01"),
            Verdict.NOT_RUN,
        ),
        SeededFault(
            "no-container-at-all",
            seeding.program_fails("gpu03", "container_gpus", rc=125, stderr="docker: Error response"),
            Subject("gpu03"),
            Verdict.NOT_RUN,
        ),
    ),
)
