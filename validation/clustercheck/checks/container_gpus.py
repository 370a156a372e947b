"""Does a container of the training image see every GPU?"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from clustercheck.checks.base import Check, Finding, SeededFault, every_gpu_node, failed, not_run, passed
from clustercheck.checks.support import seeding
from clustercheck.checks.support.docker import not_started
from clustercheck.checks.support.gpu import number_of
from clustercheck.evidence.cluster import Evidence
from clustercheck.evidence.node import NodeEvidence
from clustercheck.model import Scope, Section, Severity, Subject, Verdict
from clustercheck.parse.reading import MAX_GPUS, CannotReadError, ended_well, first_line, lines_of, readable

_GPU = re.compile(r"GPU \d{1,4}: .*\(UUID: (GPU-[0-9A-Za-z-]+)\)(?: .*)?\s*")
_GPU_LINE = re.compile(r"(?m)^GPU \d{1,4}: ")
GPU_FIRST = "Fix that GPU first (see gpu-present), then validate again: containers are started with all GPUs."
# Docker's own exit codes: it could not start the container, or not the command in it.
_ENGINE = (125, 126, 127)


def judge(evidence: Evidence, subject: Subject) -> Finding:
    """The same GPUs inside as outside, by UUID. How many there should be is another check's question."""
    node = evidence.nodes[str(subject.node)]
    record = node.mapping("container_gpus")
    if (finding := not_started(record)) is not None:
        return finding
    gone = gone_gpus(evidence, node.name)
    try:
        finding = _of_container(evidence, node, record, gone)
    except CannotReadError as error:
        if not gone:
            raise
        finding = not_run(str(error))
    if not gone or finding.verdict is Verdict.PASS or finding.evidence.get("hidden"):
        return finding
    named = ", ".join(map(str, gone))
    because = f"GPU {named} is gone or lost, and containers are started with all GPUs: {finding.because}"
    return not_run(because, remedy=GPU_FIRST, evidence=finding.evidence)


def gone_gpus(evidence: Evidence, node: str) -> list[int]:
    """Numbers of the GPUs that are gone from the bus or from the driver, or do not answer: no container can
    have them. Where the driver lists none it is the driver that is gone, and says why.
    """
    found = evidence.nodes[node]
    there, lost = set(found.gpu_addresses()), found.lost_gpus()
    there &= {gpu.address for gpu in found.smi_gpus()} or there
    return [
        number
        for number, address in enumerate(evidence.slots(node))
        if address not in there or address in lost
    ]


def _of_container(
    evidence: Evidence, node: NodeEvidence, record: Mapping[str, Any], gone: Sequence[int]
) -> Finding:
    answering = [gpu for gpu in node.smi().gpus if not gpu.lost]
    numbers = {gpu.uuid: number_of(evidence, node.name, gpu.address) for gpu in answering}
    numbers = {uuid: number for uuid, number in numbers.items() if number not in gone}
    outside = set(numbers)
    if record.get("timed_out"):
        return failed("the container did not end within its time limit", "hangs", len(outside))
    if not ended_well(record) and not (gone and _GPU_LINE.search(str(record.get("stdout") or ""))):
        answer = first_line(str(record.get("stderr") or "")) or first_line(str(record.get("stdout") or ""))
        how = "could not be started with GPUs" if record.get("rc") in _ENGINE else "cannot use the GPUs"
        return failed(f"a container {how}: {answer}", 0, len(outside))
    return _compare(listed(str(record.get("stdout") or "")), numbers)


def listed(text: str) -> list[str]:
    """UUIDs in the output of `nvidia-smi -L`. Raises CannotReadError."""
    what = "nvidia-smi -L in the container"
    lines = [line for line in lines_of(readable(text, what), what) if line.startswith("GPU ")]
    seen = [match[1] for line in lines if (match := _GPU.fullmatch(line))]
    if len(seen) != len(lines) or len(set(seen)) != len(seen):
        raise CannotReadError(f"{what} says {first_line(text)!r}")
    if len(seen) > MAX_GPUS:
        raise CannotReadError(f"{what} lists {len(seen)} GPUs, at most {MAX_GPUS} are read")
    return seen


def _compare(seen: list[str], outside: Mapping[str, int | None]) -> Finding:
    """``outside`` holds the number of each GPU that the driver lists, by UUID; None where it has none."""
    more: dict[str, Any] = {"container": len(seen), "driver": len(outside)}
    if hidden := [number for uuid, number in outside.items() if uuid not in seen]:
        which = ", ".join(str(number) for number in hidden if number is not None)
        because = f"a container sees {len(seen)} of the driver's {len(outside)} GPUs, without GPU {which}"
        return failed(because, len(seen), len(outside), evidence={**more, "hidden": hidden})
    if set(seen) - set(outside) or not seen:
        return failed(
            "a container sees other GPUs than the driver lists", len(seen), len(outside), evidence=more
        )
    return passed(len(seen), len(outside), evidence=more)


def _without_last(raw: seeding.Raw) -> None:
    lines = raw["container_gpus"]["stdout"].splitlines(keepends=True)
    raw["container_gpus"]["stdout"] = "".join(lines[:-1])


def _without_first_and_last(raw: seeding.Raw) -> None:
    lines = raw["container_gpus"]["stdout"].splitlines(keepends=True)
    raw["container_gpus"]["stdout"] = "".join(lines[1:-1])


def _refused_without(gpu: int, *, from_bus: bool) -> seeding.Inject:
    """As the toolkit's CDI specification refuses, where it still names the GPU's device file."""
    message = (
        "docker: Error response from daemon: failed to create task for container: error gathering device "
        f'information while adding custom device "/dev/nvidia{gpu}": no such file or directory'
    )
    return seeding.chain(
        seeding.lose_gpu("gpu02", gpu, from_bus=from_bus),
        seeding.program_fails("gpu02", "container_gpus", rc=125, stderr=message),
    )


CHECK = Check(
    id="container-gpus",
    title="GPUs in containers",
    section=Section.CONTAINERS,
    scope=Scope.HOST,
    severity=Severity.CRITICAL,
    measures="which GPUs a container of the training image sees",
    method="docker run --rm, nvidia-smi -L in the training image, compared by UUID with the driver's list",
    requires="the training image on the node, Docker, the NVIDIA Container Toolkit",
    expectation="every GPU that the driver lists",
    remedy="Refresh the CDI specification (systemctl restart nvidia-cdi-refresh), and configure the toolkit "
    "again: clusterctl apply --only runtime",
    subjects=every_gpu_node,
    judge=judge,
    faults=(
        SeededFault("container-sees-seven", seeding.edit("gpu01", _without_last), Subject("gpu01")),
        SeededFault("gpu-gone", _refused_without(3, from_bus=True), Subject("gpu02"), Verdict.NOT_RUN),
        SeededFault(
            "gpu-lost",
            seeding.chain(
                seeding.smi("gpu02", 3, "serial", "GPU is lost"),
                seeding.program_fails(
                    "gpu02",
                    "container_gpus",
                    rc=15,
                    stdout="Unable to determine the device handle: GPU is lost\n",
                ),
            ),
            Subject("gpu02"),
            Verdict.NOT_RUN,
        ),
        SeededFault(
            "another-hidden-beside-a-gone-one",
            seeding.chain(
                seeding.lose_gpu("gpu02", 0, from_bus=True), seeding.edit("gpu02", _without_first_and_last)
            ),
            Subject("gpu02"),
        ),
        SeededFault(
            "gone-from-the-driver-alone",
            _refused_without(3, from_bus=False),
            Subject("gpu02"),
            Verdict.NOT_RUN,
        ),
        SeededFault(
            "toolkit-missing",
            seeding.program_fails(
                "gpu02",
                "container_gpus",
                rc=125,
                stderr='docker: could not select device driver "" with capabilities: [[gpu]].',
            ),
            Subject("gpu02"),
        ),
        SeededFault(
            "docker-stopped",
            seeding.program_fails("gpu02", "container_gpus", rc=125, stderr=f"docker: {seeding.NO_DOCKER}"),
            Subject("gpu02"),
            Verdict.NOT_RUN,
        ),
        SeededFault(
            "image-missing",
            seeding.program_fails(
                "gpu02", "container_gpus", rc=1, skipped="the training image is not on this node"
            ),
            Subject("gpu02"),
            Verdict.NOT_RUN,
        ),
    ),
)
