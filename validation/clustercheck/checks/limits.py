"""May processes lock the memory and open the files that training needs?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from clustercheck.checks.base import Check, Finding, SeededFault, every_node, failed, passed
from clustercheck.checks.support import seeding
from clustercheck.checks.support.alike import Traits, judge_alike
from clustercheck.evidence.cluster import Evidence
from clustercheck.evidence.node import NodeEvidence
from clustercheck.model import Scope, Section, Subject, Verdict
from clustercheck.parse.reading import CannotReadError

UNLIMITED = -1
# What the kernel gives the first process (INR_OPEN_MAX): below it somebody has taken files away.
FILES = 4096
FILES_SOURCE = "Linux kernel, INR_OPEN_MAX; NCCL raises its own limit to the hard one (setFilesLimit)"
LOCKED_SOURCE = "RDMA pins what it sends from: NVIDIA starts such containers with --ulimit memlock=-1"
NAMES = ("memlock", "nofile", "core")
SCOPES = {"log-in": "a log-in as clusterctl does it", "containers": "containers, by default"}


@dataclass(frozen=True)
class ProcessLimit:
    """A soft and a hard limit."""

    soft: int
    hard: int


def judge(evidence: Evidence, subject: Subject) -> Finding:
    """Locked memory if there is RDMA, files everywhere; what has no right value must at least be alike."""
    node = evidence.nodes[str(subject.node)]
    found = {scope: _told(node, scope) for scope in SCOPES}
    rdma = [str(port.get("device")) for port in node.records("rdma")]
    more = {scope: _texts(limits) for scope, limits in found.items()}
    memory = _memory(node) if rdma else 0
    for scope, limits in found.items():
        locked, files = limits.get("memlock"), limits.get("nofile")
        # Of who may lock memory the kernel asks no limit (ib_umem_get, mlock): root is not bound by its own.
        bound = scope != "log-in" or node.mapping("limits").get("may_lock") is not True
        if bound and locked and not _is_enough(locked.soft, memory):
            because = (
                f"{SCOPES[scope]} may lock {_said(locked.soft)} bytes of memory, and {rdma[0]} needs more"
            )
            return failed(
                because, locked.soft, "unlimited", unit="bytes", source=LOCKED_SOURCE, evidence=more
            )
        if files and not _is_enough(files.hard, FILES):
            because = f"{SCOPES[scope]} may open {files.hard} files, {FILES} are needed"
            return failed(because, files.hard, FILES, source=FILES_SOURCE, evidence=more, remedy=MORE_FILES)
    compared = judge_alike(evidence, subject, traits)
    if compared.verdict is not Verdict.EXCLUDED:
        return compared
    return passed(", ".join(f"{name} {value}" for name, value in traits(node).items()), evidence=more)


def limits_of(node: NodeEvidence, scope: str) -> dict[str, ProcessLimit]:
    """The limits by name. Raises CannotReadError where one of them is not told."""
    if node.mapping("limits").get(scope) is None and scope == "containers":
        raise CannotReadError("neither containerd nor dockerd runs: the limits of containers are unknown")
    found = _told(node, scope)
    if missing := [name for name in NAMES if name not in found]:
        raise CannotReadError(f"the limit {missing[0]} of {SCOPES[scope]} is not reported")
    return found


def _told(node: NodeEvidence, scope: str) -> dict[str, ProcessLimit]:
    """The limits that are told, by name."""
    told = node.mapping("limits").get(scope)
    found = {}
    for name in NAMES:
        pair: Any = told.get(name) if isinstance(told, Mapping) else None
        if isinstance(pair, list) and len(pair) == 2 and all(type(value) is int for value in pair):
            found[name] = ProcessLimit(*pair)
    return found


def traits(node: NodeEvidence) -> Traits:
    """Every limit as a text."""
    return {
        f"{name} of {scope}": text
        for scope in SCOPES
        for name, text in _texts(limits_of(node, scope)).items()
    }


def _texts(limits: Mapping[str, ProcessLimit]) -> dict[str, str]:
    return {name: f"{_said(limit.soft)}:{_said(limit.hard)}" for name, limit in limits.items()}


def _said(value: int) -> str:
    return "unlimited" if value == UNLIMITED else str(value)


def _is_enough(value: int, needed: int) -> bool:
    return value == UNLIMITED or value >= needed


def _memory(node: NodeEvidence) -> int:
    total = node.mapping("memory").get("MemTotal")
    if not isinstance(total, int):
        raise CannotReadError("the probe did not report the amount of memory")
    return total * 1024


def _limit(node: str, scope: str, name: str, value: int) -> seeding.Inject:
    def change(raw: seeding.Raw) -> None:
        raw["rdma"] = [{"device": "mlx5_0", "port": "1", "state": "4: ACTIVE"}]
        raw["limits"]["may_lock"] = False
        raw["limits"][scope][name] = [value, value]

    return seeding.edit(node, change)


MORE_FILES = (
    "Raise LimitNOFILE of the services docker and containerd (`systemctl edit`), or nofile of a log-in in "
    "/etc/security/limits.d, then restart what runs with the old limit."
)
CHECK = Check(
    id="limits",
    title="Limits of processes",
    section=Section.SYSTEM,
    scope=Scope.HOST,
    measures="locked memory (memlock), open files (nofile) and core files that processes may have",
    method="getrlimit and CapEff in a log-in as clusterctl does it (root, or through sudo: limits of other "
    "users may differ); for containers Docker's default-ulimits, else the limits of containerd or dockerd",
    requires="Docker that runs",
    expectation=(
        "with an RDMA adapter memlock unlimited, or all of memory, except for processes with "
        f"CAP_IPC_LOCK, such as root's; nofile {FILES} or more (hard limit); all three as on equal nodes"
    ),
    remedy="Let containers lock memory: clusterctl apply --only runtime does, unless "
    "container_runtime_lock_memory is false; let users: `* - memlock unlimited` in /etc/security/limits.d.",
    subjects=every_node,
    judge=judge,
    faults=(
        SeededFault(
            "memlock-of-containers", _limit("gpu02", "containers", "memlock", 8 << 20), Subject("gpu02")
        ),
        SeededFault("memlock-of-log-in", _limit("gpu01", "log-in", "memlock", 65536), Subject("gpu01")),
        SeededFault("few-files", _limit("gpu03", "containers", "nofile", 1024), Subject("gpu03")),
        SeededFault("core-differs", _limit("gpu02", "containers", "core", 0), Subject("gpu02")),
        SeededFault(
            "memlock-of-log-in-and-no-docker",
            seeding.chain(
                _limit("gpu02", "log-in", "memlock", 65536),
                seeding.edit("gpu02", lambda raw: raw["limits"].update(containers=None)),
            ),
            Subject("gpu02"),
        ),
        SeededFault(
            "no-docker",
            seeding.edit("gpu01", lambda raw: raw["limits"].update(containers=None)),
            Subject("gpu01"),
            Verdict.NOT_RUN,
        ),
    ),
)
