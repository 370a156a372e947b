"""Does a container of the training image see every GPU?"""

from __future__ import annotations

import re
from collections.abc import Mapping

from clustercheck.checks.base import Check, Finding, SeededFault, every_gpu_node, failed, passed
from clustercheck.checks.support import seeding
from clustercheck.checks.support.docker import not_started
from clustercheck.checks.support.gpu import number_of
from clustercheck.evidence.cluster import Evidence
from clustercheck.model import Scope, Section, Severity, Subject, Verdict
from clustercheck.parse.reading import CannotReadError, first_line, readable

_GPU = re.compile(r"GPU \d{1,4}: .*\(UUID: (GPU-[0-9A-Za-z-]+)\)(?: .*)?\s*")
# Docker's own exit codes: it could not start the container, or not the command in it.
_ENGINE = (125, 126, 127)


def judge(evidence: Evidence, subject: Subject) -> Finding:
    """The same GPUs inside as outside, by UUID. How many there should be is another check's question."""
    node = evidence.nodes[str(subject.node)]
    record = node.mapping("container_gpus")
    if (finding := not_started(record)) is not None:
        return finding
    numbers = {gpu.uuid: number_of(evidence, node.name, gpu.address) for gpu in node.smi().gpus}
    outside = set(numbers)
    if record.get("timed_out"):
        return failed("the container did not end within its time limit", "hangs", len(outside))
    if record.get("rc") != 0:
        answer = first_line(str(record.get("stderr") or "")) or first_line(str(record.get("stdout") or ""))
        how = "could not be started with GPUs" if record.get("rc") in _ENGINE else "cannot use the GPUs"
        return failed(f"a container {how}: {answer}", 0, len(outside))
    return _compare(listed(str(record.get("stdout") or "")), numbers)


def listed(text: str) -> list[str]:
    """UUIDs in the output of `nvidia-smi -L`. Raises CannotReadError."""
    readable(text, "nvidia-smi -L in the container")
    lines = [line for line in text.splitlines() if line.startswith("GPU ")]
    seen = [match[1] for line in lines if (match := _GPU.fullmatch(line))]
    if len(seen) != len(lines) or len(set(seen)) != len(seen):
        raise CannotReadError(f"nvidia-smi -L in the container says {first_line(text)!r}")
    return seen


def _compare(seen: list[str], outside: Mapping[str, int | None]) -> Finding:
    """``outside`` holds the number of each GPU that the driver lists, by UUID; None where it has none."""
    more = {"container": len(seen), "driver": len(outside)}
    if hidden := [number for uuid, number in outside.items() if uuid not in seen]:
        which = ", ".join(str(number) for number in hidden if number is not None)
        because = f"a container sees {len(seen)} of the driver's {len(outside)} GPUs, without GPU {which}"
        return failed(because, len(seen), len(outside), evidence=more)
    if set(seen) - set(outside) or not seen:
        return failed(
            "a container sees other GPUs than the driver lists", len(seen), len(outside), evidence=more
        )
    return passed(len(seen), len(outside), evidence=more)


def _without_last(raw: seeding.Raw) -> None:
    lines = raw["container_gpus"]["stdout"].splitlines(keepends=True)
    raw["container_gpus"]["stdout"] = "".join(lines[:-1])


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
