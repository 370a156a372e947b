"""Is each node a machine of its own? One under two names is tested twice, and the other not at all."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from clustercheck.checks.base import Check, Finding, SeededFault, every_node, failed, passed
from clustercheck.checks.support import seeding
from clustercheck.evidence.cluster import Evidence
from clustercheck.locate.pairs import Pair, sort_pair
from clustercheck.model import Scope, Section, Severity, Subject, Verdict
from clustercheck.parse.reading import CannotReadError

EXPECTED = "a machine and GPUs of its own"
NAMES = (
    "Correct the inventory: each name must lead to a different machine (ansible_host, DNS, ports that are "
    "forwarded)."
)
UUIDS = "Reload the driver, or reboot the drained node; if it stays so, call the supplier."


@dataclass(frozen=True)
class _Claims:
    """By two nodes, in order of names: why they cannot both be what they say. ``odd`` are the nodes that
    clash with several others which do not clash with each other: of these the others are not blamed.
    """

    between: Mapping[Pair, str]
    odd: frozenset[str]

    def clashing(self, node: str) -> list[str]:
        """With whom a node clashes that counts against it."""
        others = [other for pair in self.between if node in pair for other in pair if other != node]
        return sorted(others if node in self.odd else set(others) - self.odd)


def judge(evidence: Evidence, subject: Subject) -> Finding:
    """No other node has its boot id, and no other GPU the UUID of one of its GPUs.

    Of two nodes that say the same of themselves either may lie: they are named as a pair.
    """
    name = str(subject.node)
    boot_id, gpus = _boot_id(evidence, name), evidence.once(_gpus)
    mine = evidence.once(_uuids).get(name, ())
    for uuid in mine:
        if [node for node, _ in gpus[uuid]].count(name) > 1:
            return failed(_places(gpus[uuid]), uuid[:60], EXPECTED, remedy=UUIDS)
    claims = evidence.once(_claims)
    if others := claims.clashing(name):
        peer = "" if name in claims.odd else others[0]
        twins = [other for other in others if boot_id and claims.between[sort_pair(name, other)] == boot_id]
        if twins:
            because = f"{', '.join(twins)} is the same machine under another name"
            return failed(because, f"boot id {str(boot_id)[:60]}", EXPECTED, remedy=NAMES, between=peer)
        uuid = claims.between[sort_pair(name, others[0])]
        return failed(_places(gpus[uuid]), uuid[:60], EXPECTED, remedy=UUIDS, between=peer)
    if boot_id is None:
        raise CannotReadError("the node does not report its boot id")
    return passed(f"1 machine, {len(mine)} GPUs", EXPECTED)


def _places(places: Sequence[tuple[str, int]]) -> str:
    where = ", ".join(f"GPU {gpu} of {node}" for node, gpu in places)
    return f"one UUID at {len(places)} places: {where}"


def _claims(evidence: Evidence) -> _Claims:
    """What two nodes have in common that only one can have: the boot id, else the first UUID."""
    between: dict[Pair, str] = {}
    for boot_id, names in evidence.once(_machines).items():
        for one, other in combinations(names, 2):
            between[sort_pair(one, other)] = boot_id
    for uuid, places in evidence.once(_gpus).items():
        for one, other in combinations(dict.fromkeys(node for node, _ in places), 2):
            between.setdefault(sort_pair(one, other), uuid)
    others: dict[str, set[str]] = defaultdict(set)
    for one, other in between:
        others[one].add(other)
        others[other].add(one)
    odd = {
        node
        for node, clashing in others.items()
        if len(clashing) > 1 and not any(pair in between for pair in combinations(sorted(clashing), 2))
    }
    return _Claims(between, frozenset(odd))


def _boot_id(evidence: Evidence, name: str) -> str | None:
    boot_id = evidence.nodes[name].mapping("host").get("boot_id")
    return boot_id if isinstance(boot_id, str) and boot_id else None


def _machines(evidence: Evidence) -> Mapping[str, list[str]]:
    """Names by boot id."""
    found: dict[str, list[str]] = defaultdict(list)
    for name in evidence.reachable:
        host = evidence.nodes[name].raw.get("host")
        if isinstance(host, Mapping) and isinstance(boot_id := host.get("boot_id"), str) and boot_id:
            found[boot_id].append(name)
    return found


def _gpus(evidence: Evidence) -> Mapping[str, list[tuple[str, int]]]:
    """Nodes and numbers of GPUs by UUID, as far as the driver tells."""
    found: dict[str, list[tuple[str, int]]] = defaultdict(list)
    for name in evidence.reachable:
        for gpu in evidence.nodes[name].smi_gpus():
            if gpu.uuid.startswith("GPU-"):
                found[gpu.uuid].append((name, gpu.index))
    return found


def _uuids(evidence: Evidence) -> Mapping[str, list[str]]:
    """The UUIDs of each node's GPUs, each once."""
    found: dict[str, list[str]] = defaultdict(list)
    for uuid, places in evidence.once(_gpus).items():
        for node in dict.fromkeys(node for node, _ in places):
            found[node].append(uuid)
    return found


def _as(node: str, other: str) -> seeding.Inject:
    """The first name leads to the other's machine."""

    def inject(evidence: Evidence) -> Evidence:
        theirs = evidence.nodes[other].raw
        return seeding.edit(node, lambda raw: raw.update({k: theirs[k] for k in ("host", "nvidia_smi")}))(
            evidence
        )

    return inject


def _with_uuid_of(node: str, gpu: int, other: str, other_gpu: int) -> seeding.Inject:
    def inject(evidence: Evidence) -> Evidence:
        uuid = evidence.nodes[other].smi().gpus[other_gpu].uuid
        return seeding.smi(node, gpu, "uuid", uuid)(evidence)

    return inject


CHECK = Check(
    id="node-identity",
    title="Distinct machine",
    section=Section.CLUSTER,
    scope=Scope.HOST,
    severity=Severity.CRITICAL,
    measures="whether two names lead to the same machine, or two GPUs have the same UUID",
    method="/proc/sys/kernel/random/boot_id and the UUIDs of nvidia-smi -q -x, compared among all nodes",
    requires="an answer of the node",
    expectation="no boot id and no UUID twice",
    remedy=NAMES,
    subjects=every_node,
    judge=judge,
    faults=(
        SeededFault("one-machine-two-names", _as("gpu02", "gpu01"), Subject("gpu02")),
        SeededFault("one-machine-two-names-the-other", _as("gpu02", "gpu01"), Subject("gpu01")),
        SeededFault("uuid-on-two-nodes", _with_uuid_of("gpu02", 3, "gpu03", 5), Subject("gpu03")),
        SeededFault("uuid-twice-on-a-node", _with_uuid_of("gpu01", 0, "gpu01", 7), Subject("gpu01")),
        SeededFault(
            "uuid-twice-and-no-boot-id",
            seeding.chain(
                _with_uuid_of("gpu01", 0, "gpu01", 7),
                seeding.edit("gpu01", lambda raw: raw["host"].update(boot_id=None)),
            ),
            Subject("gpu01"),
        ),
        SeededFault(
            "boot-id-not-told",
            seeding.edit("gpu01", lambda raw: raw["host"].update(boot_id=None)),
            Subject("gpu01"),
            Verdict.NOT_RUN,
        ),
    ),
)
