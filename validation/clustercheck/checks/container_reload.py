"""Do containers keep their GPUs when systemd reads its units again?"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from clustercheck.checks.base import Check, Finding, SeededFault, every_gpu_node, failed, not_run, passed
from clustercheck.checks.support import seeding
from clustercheck.checks.support.docker import START, not_started
from clustercheck.evidence.cluster import Evidence
from clustercheck.evidence.node import NodeEvidence
from clustercheck.model import Scope, Section, Subject, Verdict
from clustercheck.parse.plain_text import one_line
from clustercheck.parse.reading import CannotReadError, whole_number

SOURCE = (
    "NVIDIA Container Toolkit, troubleshooting: containers losing access to GPUs (NVML Unknown Error); "
    "github.com/NVIDIA/nvidia-container-toolkit/issues/48"
)
CDI = "nvidia.com/gpu"
MAX_WORD = 60  # characters of what docker info names
GPUS_MAY_BE_CDI = 29  # github.com/moby/moby/pull/50228, and 52704, which may take it back


def judge(evidence: Evidence, subject: Subject) -> Finding:
    """Systemd takes away devices that it was not told of; a hook adds them unseen, CDI tells them."""
    node = evidence.nodes[str(subject.node)]
    record = node.mapping("docker")
    if record.get("timed_out"):
        return not_run("docker info did not answer within its time limit", remedy=START)
    return not_started(record) or _by_cause(evidence, node, node.docker_info())


def _by_cause(evidence: Evidence, node: NodeEvidence, info: Mapping[str, Any]) -> Finding:
    driver, runtime = info.get("CgroupDriver"), info.get("DefaultRuntime")
    runtime = one_line(runtime, MAX_WORD) if isinstance(runtime, str) else None
    if driver not in ("cgroupfs", "systemd", "none"):
        raise CannotReadError(f"docker info names {one_line(str(driver), MAX_WORD)!r} as its cgroup driver")
    arguments = evidence.spec.settings_of(node.name).container_gpu_arguments
    by_cdi = any(CDI in word for word in arguments)
    how = f"{driver}, GPUs by {'CDI' if by_cdi else 'hook'}"
    expected, more = "cgroupfs, or GPUs by CDI", {"default_runtime": runtime}
    if driver != "systemd":
        return passed(how, expected, source=SOURCE, evidence=more)
    if not by_cdi and runtime == "nvidia":
        return not_run("NVIDIA's runtime is the default: how it adds GPUs is not known", evidence=more)
    if not by_cdi and info.get("CDISpecDirs") and _version(info) >= GPUS_MAY_BE_CDI:
        version = one_line(str(info.get("ServerVersion")), MAX_WORD)
        because = f"Docker {version} may handle --gpus by CDI or by a hook: which one is not known"
        return not_run(because, source=SOURCE, evidence=more)
    if not by_cdi:
        because = "systemd manages the containers' devices and does not know the GPUs, which a hook adds"
        return failed(because, how, expected, source=SOURCE, evidence=more)
    missing = [
        str(link.get("path")) for link in node.records("device_links") if link.get("there") is not True
    ]
    if missing:
        because = (
            f"/dev/char has no link to {', '.join(missing[:4])}: some versions of runc then do not inform "
            "systemd"
        )
        return not_run(because, source=SOURCE, evidence={**more, "without_link": missing}, remedy=LINKS)
    return passed(how, expected, source=SOURCE, evidence=more)


def _version(info: Mapping[str, Any]) -> int:
    """Docker's major version; 0 where it does not say."""
    return whole_number(str(info.get("ServerVersion") or "").partition(".")[0]) or 0


def _info(node: str, **how: Any) -> seeding.Inject:
    return seeding.edit(node, lambda raw: raw["docker"].update(stdout=json.dumps(how)))


LINKS = (
    "`nvidia-ctk system create-dev-char-symlinks --create-all`, at every boot after the driver is loaded; "
    "and a runc that is up to date."
)
CHECK = Check(
    id="container-reload",
    title="GPUs after a daemon-reload",
    section=Section.CONTAINERS,
    scope=Scope.HOST,
    measures="whether containers that run would lose their GPUs at the next `systemctl daemon-reload`, as "
    "any package's installation brings it",
    method="judged by the known cause, since trying it would harm who works there: cgroup driver of docker "
    "info, the way GPUs are given to containers, links in /dev/char",
    requires="Docker that runs",
    expectation="cgroup driver cgroupfs, or GPUs by CDI with links in /dev/char",
    remedy="`clusterctl apply --only runtime` has Docker keep cgroups itself "
    "(nvidia_container_toolkit_cgroup_driver: cgroupfs), where no native.cgroupdriver of "
    "container_runtime_daemon_options says otherwise; or give GPUs by CDI, where Docker knows it: "
    "nvidia_container_toolkit_mode: cdi.",
    subjects=every_gpu_node,
    judge=judge,
    faults=(
        SeededFault("hook-and-systemd", _info("gpu02", CgroupDriver="systemd"), Subject("gpu02")),
        SeededFault(
            "nvidia-runtime",
            _info("gpu01", CgroupDriver="systemd", DefaultRuntime="nvidia"),
            Subject("gpu01"),
            Verdict.NOT_RUN,
        ),
        SeededFault(
            "gpus-by-hook-or-cdi",
            _info("gpu01", CgroupDriver="systemd", ServerVersion="29.1.0", CDISpecDirs=["/etc/cdi"]),
            Subject("gpu01"),
            Verdict.NOT_RUN,
        ),
        SeededFault(
            "docker-silent",
            seeding.program_fails("gpu03", "docker", rc=1, stderr=seeding.NO_DOCKER),
            Subject("gpu03"),
            Verdict.NOT_RUN,
        ),
    ),
)
