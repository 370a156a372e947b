"""Has Fabric Manager joined each GPU to the NVLink fabric, and is the GPU healthy there?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import partial

from clustercheck.checks.base import Check, Finding, SeededFault, every_gpu, failed, not_applicable, passed
from clustercheck.checks.support import seeding
from clustercheck.checks.support.gpu import gpu_of
from clustercheck.evidence.cluster import Evidence
from clustercheck.evidence.node import NodeEvidence
from clustercheck.model import Scope, Section, Severity, Subject, Verdict
from clustercheck.parse.nvidia_smi import SmiGpu
from clustercheck.parse.reading import CannotReadError

# These report no state, although there may be NVSwitches (captures of A100).
WITHOUT = ("Volta", "Turing", "Ampere", "Ada Lovelace")
NONE = ("", "N/A", "Not Supported")
JOINED, SUCCESS = "Completed", "Success"
GOOD = {
    "summary": ("healthy",),
    "bandwidth": ("full", "false"),
    "route_recovery_in_progress": ("false",),
    "route_unhealthy": ("false",),
    "access_timeout_recovery": ("false",),
    "incorrect_configuration": ("none", "false"),
}
BAD = ("unhealthy", "limited capacity", "degraded", "true")
LINKS = (
    "Read the Fabric Manager's log and the kernel log for Xid 144 to 150, see the NVLinks (nvidia-smi nvlink "
    "-s and -e), then drain the node and reset its GPUs together."
)


def judge(evidence: Evidence, subject: Subject) -> Finding:
    """The state first: until it is complete CUDA is refused. Then what of the fabric's health is not good."""
    gpu, node = gpu_of(evidence, subject), evidence.nodes[str(subject.node)]
    if gpu.mig == "Enabled":
        return not_applicable("MIG is on, which switches NVLink off")
    fabric = gpu.fabric or {}
    state = fabric.get("state", "")
    if state in NONE:
        if node.nvswitch_addresses() and gpu.architecture and gpu.architecture not in WITHOUT:
            raise CannotReadError(f"the fabric's state is {state or 'not printed'}, and there are NVSwitches")
        return not_applicable("this GPU reports no fabric")
    more = {name: fabric.get(name, "") for name in ("state", "status", "cliqueId", "clusterUuid")}
    cliques = evidence.once(partial(_cliques, node=node), ("cliques", node.name))
    because, remedy = _not_joined(fabric), ""
    if not because:
        because, remedy = _unhealthy(fabric), LINKS
    because = because or _elsewhere(cliques, gpu)
    if because:
        measured = f"{state}, {fabric.get('status', '')}"
        return failed(because, measured, f"{JOINED}, {SUCCESS}, healthy", evidence=more, remedy=remedy)
    return passed(f"{state}, {SUCCESS}", f"{JOINED}, {SUCCESS}, healthy", evidence=more)


def _not_joined(fabric: Mapping[str, str]) -> str:
    state, status = fabric.get("state", ""), fabric.get("status", "")
    if state != JOINED:
        return f"the fabric's state is {state}, not {JOINED}: until then CUDA is refused (error 802)"
    if status in NONE:
        raise CannotReadError(f"the fabric's status is {status or 'not printed'}")
    if status != SUCCESS:
        return f"the GPU was joined to the fabric with the status {status}"
    return ""


def _unhealthy(fabric: Mapping[str, str]) -> str:
    """What is wrong by the fields of its health. Raises CannotReadError for a word that is not known."""
    printed = {name: fabric.get(f"health/{name}", "") for name in GOOD}
    told = {name: value for name, value in printed.items() if value not in NONE}
    wrong = {name: value for name, value in told.items() if value.lower() not in GOOD[name]}
    known = {n: v for n, v in wrong.items() if v.lower() in BAD or n == "incorrect_configuration"}
    if known:
        named = (f"{name.replace('_', ' ')}: {value}" for name, value in known.items())
        return f"the fabric's health: {', '.join(named)}"
    if wrong:
        name, value = next(iter(wrong.items()))
        raise CannotReadError(f"the fabric's health says {value[:40]!r} of {name}")
    return ""


def _cliques(_evidence: Evidence, *, node: NodeEvidence) -> Counter[str]:
    """How many GPUs of the node are in which clique."""
    fabrics = [gpu.fabric for gpu in node.smi_gpus() if gpu.fabric and gpu.fabric.get("state") == JOINED]
    return Counter(_clique(fabric) for fabric in fabrics)


def _clique(fabric: Mapping[str, str]) -> str:
    return f"{fabric.get('cliqueId', '')} of {fabric.get('clusterUuid', '')}"


def _elsewhere(cliques: Counter[str], gpu: SmiGpu) -> str:
    """Where most GPUs of its node are in another clique: NVLink joins those of one clique alone."""
    usual, count = cliques.most_common(1)[0]
    if _clique(gpu.fabric or {}) == usual or 2 * count <= sum(cliques.values()):
        return ""
    return f"clique {_clique(gpu.fabric or {})}, and {usual} of {count} GPUs of this node"


_SMI = seeding.smi


def _health(node: str, gpu: int, name: str, value: str) -> seeding.Inject:
    return _SMI(node, gpu, f"fabric/health/{name}", value)


CHECK = Check(
    id="gpu-fabric",
    title="Fabric state",
    section=Section.DRIVER,
    scope=Scope.GPU,
    severity=Severity.CRITICAL,
    measures="whether each GPU is joined to its NVLink fabric, its health there, and its clique",
    method="nvidia-smi -q -x, fabric",
    requires="GPUs that report a fabric: with NVSwitches of Hopper or later; MIG off",
    expectation="state Completed, status Success, healthy where health is reported, and in the clique of the "
    "node's other GPUs",
    remedy="See Fabric Manager (systemctl status nvidia-fabricmanager, journalctl -u nvidia-fabricmanager); "
    "start it, or restart it when the node is drained. Of a rack whose NVSwitches have trays of their own, "
    "see those.",
    subjects=every_gpu,
    judge=judge,
    faults=(
        SeededFault(
            "no-fabric", _SMI("gpu01", 1, "fabric/state", "N/A"), Subject("gpu01", 1), Verdict.EXCLUDED
        ),
        SeededFault("healthy", _health("gpu01", 1, "summary", "Healthy"), Subject("gpu01", 1), Verdict.PASS),
        SeededFault("in-progress", _SMI("gpu01", 2, "fabric/state", "In Progress"), Subject("gpu01", 2)),
        SeededFault("not-started", _SMI("gpu02", 0, "fabric/state", "Not Started"), Subject("gpu02", 0)),
        SeededFault(
            "joined-with-an-error",
            _SMI("gpu02", 4, "fabric/status", "Invalid State"),
            Subject("gpu02", 4),
        ),
        SeededFault("route-unhealthy", _health("gpu03", 1, "route_unhealthy", "True"), Subject("gpu03", 1)),
        SeededFault("bandwidth-degraded", _health("gpu03", 2, "bandwidth", "Degraded"), Subject("gpu03", 2)),
        SeededFault("limited", _health("gpu01", 3, "summary", "Limited Capacity"), Subject("gpu01", 3)),
        SeededFault(
            "wrongly-configured",
            _health("gpu01", 5, "incorrect_configuration", "Insufficient NVLinks"),
            Subject("gpu01", 5),
        ),
        SeededFault(
            "in-another-clique",
            _SMI("gpu02", 6, "fabric/cliqueId", "3"),
            Subject("gpu02", 6),
        ),
        SeededFault(
            "health-translated",
            _health("gpu03", 4, "route_unhealthy", "oui"),
            Subject("gpu03", 4),
            Verdict.NOT_RUN,
        ),
        SeededFault(
            "not-told-with-nvswitches",
            seeding.chain(
                _SMI("gpu01", 7, "product_architecture", "Hopper"), _SMI("gpu01", 7, "fabric/state", "N/A")
            ),
            Subject("gpu01", 7),
            Verdict.NOT_RUN,
        ),
    ),
)
