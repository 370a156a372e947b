"""Is the MTU of the cluster's network the same on equal nodes?"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from clustercheck.checks.base import Check, Finding, SeededFault, every_node
from clustercheck.checks.support import seeding
from clustercheck.checks.support.alike import Traits, judge_alike
from clustercheck.evidence.cluster import Evidence
from clustercheck.evidence.node import NodeEvidence
from clustercheck.model import Scope, Section, Subject, Verdict
from clustercheck.parse.reading import CannotReadError

TRAIT = "MTU"


def traits(evidence: Evidence, node: NodeEvidence) -> Traits:
    """The MTU of the interface with the node's address, else of that with the default route.

    Raises CannotReadError where neither is reported.
    """
    nics = node.records("nics")
    address = evidence.declared[node.name].address
    chosen = [nic for nic in nics if _has(nic, address)]
    chosen = chosen or [nic for nic in nics if nic.get("default_route") is True]
    if not chosen:
        raise CannotReadError("no interface has the node's address or the default route")
    mtu = chosen[0].get("mtu")
    if isinstance(mtu, bool) or not isinstance(mtu, int) or mtu <= 0:
        raise CannotReadError(f"the MTU of {chosen[0].get('name')} is not reported")
    return {TRAIT: str(mtu)}


def judge(evidence: Evidence, subject: Subject) -> Finding:
    """Small messages pass, and a large one that one side sends is dropped by the other: jobs hang."""
    return judge_alike(evidence, subject, partial(traits, evidence))


def _has(nic: Mapping[str, Any], address: str) -> bool:
    addresses = nic.get("addresses")
    return isinstance(addresses, list) and any(str(each).partition("/")[0] == address for each in addresses)


def _mtu(node: str, mtu: int | None) -> seeding.Inject:
    return seeding.edit(node, lambda raw: raw["nics"][0].update(mtu=mtu))


CHECK = Check(
    id="mtu-alike",
    title="MTU alike",
    section=Section.NETWORK,
    scope=Scope.HOST,
    measures="MTU of the interface by which the node is in the cluster's network",
    method="/sys/class/net of the interface with the node's address, else with the default route, compared "
    "with nodes declared to be of the same kind",
    requires="a second node of the same kind",
    expectation="as on more than half of the equal nodes; without such a majority all differ",
    remedy=(
        "Set one MTU on all nodes (`ip link set dev NAME mtu N`, and netplan, NetworkManager or "
        "systemd-networkd for the next boot), not above that of the switches: `ping -M do -s N-28` shows it."
    ),
    subjects=every_node,
    judge=judge,
    faults=(
        SeededFault("smaller", _mtu("gpu02", 1425), Subject("gpu02")),
        SeededFault("larger", _mtu("gpu03", 9000), Subject("gpu03")),
        SeededFault("not-told", _mtu("gpu01", None), Subject("gpu01"), Verdict.NOT_RUN),
    ),
)
