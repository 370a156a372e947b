"""Does the driver answer for the GPUs at all?"""

from __future__ import annotations

from clustercheck.checks.base import Check, Finding, SeededFault, every_gpu_node, failed, not_run, passed
from clustercheck.checks.support import seeding
from clustercheck.checks.support.gpu import number_of
from clustercheck.evidence.cluster import Evidence
from clustercheck.model import Scope, Section, Severity, Subject, Verdict
from clustercheck.parse.reading import ended_well, first_line


def judge(evidence: Evidence, subject: Subject) -> Finding:
    """nvidia-smi must end by itself, well, and with output that can be read."""
    node = evidence.nodes[str(subject.node)]
    record = node.mapping("nvidia_smi")
    answer = first_line(str(record.get("stderr") or "")) or first_line(str(record.get("stdout") or ""))
    expected = "nvidia-smi ends with 0"
    if record.get("missing"):
        return failed("nvidia-smi is not installed", "not installed", expected)
    if record.get("timed_out"):
        return failed(
            "nvidia-smi did not answer within its time limit: a GPU or the driver hangs",
            "hangs",
            expected,
            remedy="Read the kernel log for Xid messages, drain the node and reboot it.",
        )
    if not ended_well(record):
        lost = [number_of(evidence, str(subject.node), address) for address in node.lost_gpus()]
        judged = [str(number) for number in lost if number in range(evidence.gpu_count(str(subject.node)))]
        if judged:
            # The GPU is the culprit, and its own check names it.
            return not_run(
                f"nvidia-smi ended with {record.get('rc')}, as GPU {', '.join(judged)} fell off the bus",
                remedy="Fix that GPU first: nvidia-smi fails for the whole node while it is lost.",
            )
        text = str(record.get("stdout") or "") + str(record.get("stderr") or "")
        mismatch = "version mismatch" in text.lower()
        remedy = (
            "The loaded module is not of the installed version: reload it or reboot the node."
            if mismatch
            else ""
        )
        return failed(f"nvidia-smi ended with {record.get('rc')}: {answer}", answer, expected, remedy=remedy)
    log = node.smi()
    return passed(
        "answers",
        expected,
        evidence={
            "driver": log.driver_version,
            "cuda": log.cuda_version,
            "duration_s": record.get("duration_s"),
        },
    )


_FAIL = seeding.program_fails
CHECK = Check(
    id="gpu-driver",
    title="Driver answers",
    section=Section.DRIVER,
    scope=Scope.HOST,
    severity=Severity.CRITICAL,
    measures="whether nvidia-smi -q -x ends by itself with output that can be read",
    method="nvidia-smi -q -x with a time limit of 30 s",
    requires="the NVIDIA driver",
    expectation="exit code 0 and whole XML",
    remedy="Install or fix the driver: clusterctl apply --only driver",
    subjects=every_gpu_node,
    judge=judge,
    faults=(
        SeededFault("driver-missing", _FAIL("gpu01", "nvidia_smi", rc=None, missing=True), Subject("gpu01")),
        SeededFault("driver-hangs", _FAIL("gpu02", "nvidia_smi", rc=None, timed_out=True), Subject("gpu02")),
        SeededFault(
            "library-mismatch",
            _FAIL(
                "gpu02",
                "nvidia_smi",
                rc=18,
                stdout="Failed to initialize NVML: Driver/library version mismatch\n",
            ),
            Subject("gpu02"),
        ),
        SeededFault("gpu-lost", seeding.fall_off_bus("gpu02", 3), Subject("gpu02"), Verdict.NOT_RUN),
        SeededFault(
            "gpu-lost-in-a-field",
            seeding.chain(
                seeding.smi("gpu02", 3, "serial", "GPU is lost"),
                seeding.edit("gpu02", lambda raw: raw["nvidia_smi"].update(rc=15)),
            ),
            Subject("gpu02"),
            Verdict.NOT_RUN,
        ),
        SeededFault(
            "output-cut-off",
            seeding.stdout("gpu01", "nvidia_smi", "</nvidia_smi_log>", ""),
            Subject("gpu01"),
            Verdict.NOT_RUN,
        ),
        SeededFault(
            "output-not-text",
            seeding.stdout("gpu01", "nvidia_smi", "<serial>", "<serial>\N{REPLACEMENT CHARACTER}"),
            Subject("gpu01"),
            Verdict.NOT_RUN,
        ),
        SeededFault("empty-output", _FAIL("gpu01", "nvidia_smi", rc=0), Subject("gpu01"), Verdict.NOT_RUN),
    ),
)
