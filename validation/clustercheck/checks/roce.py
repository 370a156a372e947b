"""RoCE ports: an address of version 2, and the same MTU on all nodes."""

from __future__ import annotations

from dataclasses import replace

from clustercheck.checks.base import Check, Finding, SeededFault, every_node, failed, not_applicable, passed
from clustercheck.checks.support import seeding
from clustercheck.checks.support.alike import Traits, is_alone, judge_alike
from clustercheck.checks.support.declared_rails import GID_INDEX, chosen_number, declare, select_rails
from clustercheck.checks.support.rdma import Link, edit_adapter, links_of, name_of, unread, without_adapter
from clustercheck.evidence.cluster import Evidence
from clustercheck.evidence.node import NodeEvidence
from clustercheck.model import Scope, Section, Subject, Verdict
from clustercheck.parse.infiniband import Gid, Port
from clustercheck.parse.reading import CannotReadError

V2 = "RoCE v2"
SOURCE = "NCCL_IB_GID_INDEX and NCCL_IB_ROCE_VERSION_NUM of NCCL's guide: it takes version 2 by default"
ADDRESSES_READ = 64  # of a port, by probe/infiniband.py
INDEX_REMEDY = (
    "Set NCCL_IB_GID_INDEX of validation_environment (and of your jobs) to the index of RoCE v2 with the "
    "interface's IPv4 address (`show_gids`), for the group of hosts that need another; or leave it unset: "
    "NCCL from 2.21 on finds it."
)
NO_ROCE = "no port of the node is an Ethernet port that is up: there is no RoCE"


def judge(evidence: Evidence, subject: Subject) -> Finding:
    """Every Ethernet port of an RDMA adapter that is up."""
    links = links_of(evidence, subject)
    if not links:
        return without_adapter(evidence, subject)
    roce = roce_links(links)
    if not roce:
        return not_applicable(NO_ROCE)
    node = evidence.nodes[str(subject.node)]
    if (finding := _not_at_index(evidence, str(subject.node), roce)) is not None:
        return finding
    addresses = {name_of(link): sorted({gid.type for gid in link[1].gids}) for link in roce}
    for name, kinds in addresses.items():
        if V2 not in kinds:
            types, output = " and ".join(kinds) or "no address at all", {"addresses": addresses}
            return failed(f"{name} has {types}, and none of {V2}", types, V2, source=SOURCE, evidence=output)
    more = {
        name_of(link): {"addresses": addresses[name_of(link)], "interface": interface_of(link)}
        for link in roce
    }
    if is_alone(evidence, subject):
        return passed(
            ", ".join(f"{name} {output}" for name, output in traits(node).items()), V2, evidence=more
        )
    compared = judge_alike(evidence, subject, traits)
    return replace(compared, evidence={**compared.evidence, "ports": more})


def _not_at_index(evidence: Evidence, node: str, roce: list[Link]) -> Finding | None:
    """A rail whose address at NCCL_IB_GID_INDEX is missing, or not of the version that NCCL is set to use."""
    environment = evidence.spec.settings_of(node).environment
    index = chosen_number(environment, GID_INDEX)
    rails = select_rails(evidence, node, roce)
    if index is None or index >= ADDRESSES_READ:
        return None
    wanted = "IB/RoCE v1" if chosen_number(environment, "NCCL_IB_ROCE_VERSION_NUM") == 1 else V2
    for link in roce if rails is None else rails:
        here = {gid.index: gid.type for gid in link[1].gids}.get(index)
        if here != wanted:
            others = ", ".join(f"{gid.index} ({gid.type})" for gid in link[1].gids) or "none"
            because = f"{name_of(link)} has {here or 'no address'} at index {index}; its addresses: {others}"
            return failed(because, here or "none", wanted, source=GID_INDEX, remedy=INDEX_REMEDY)
    return None


def roce_links(links: list[Link]) -> list[Link]:
    """Those whose port is of Ethernet and up."""
    return [link for link in links if link[1].link_layer == "Ethernet" and link[1].up]


def interface_of(link: Link) -> str:
    """The network interface behind a port. Raises CannotReadError where no address of it names one."""
    names = [gid.interface for gid in _newest_first(link[1]) if gid.interface]
    if not names:
        raise CannotReadError(f"{name_of(link)} does not report its network interface")
    return names[0]


def traits(node: NodeEvidence) -> Traits:
    """The MTU by port. Raises CannotReadError where it is not told."""
    mtus = {str(nic.get("name")): nic.get("mtu") for nic in node.records("nics")}
    found = {}
    for adapter in node.rdma():
        for link in roce_links([(adapter, port) for port in adapter.ports]):
            mtu = mtus.get(interface_of(link))
            if not isinstance(mtu, int) or mtu <= 0:
                raise CannotReadError(f"the MTU of {interface_of(link)} is not known")
            found[f"MTU of {name_of(link)}"] = str(mtu)
    return found


def _newest_first(port: Port) -> list[Gid]:
    return sorted(port.gids, key=lambda gid: gid.type != V2)


def _first_version(device: seeding.Raw) -> None:
    for gid in device["ports"][0]["gids"]:
        gid["type"] = "IB/RoCE v1"


def _nameless(device: seeding.Raw) -> None:
    """Of the first version, with no interface behind it."""
    for gid in device["ports"][0]["gids"]:
        gid.update(type="IB/RoCE v1", interface="")


def _mtu(mtu: int | None) -> seeding.Inject:
    def change(raw: seeding.Raw) -> None:
        next(nic for nic in raw["nics"] if nic["name"] == "ens2f0np0")["mtu"] = mtu

    return seeding.edit("gpu02", change)


CHECK = Check(
    id="roce",
    title="RoCE addresses and MTU",
    section=Section.NETWORK,
    scope=Scope.HOST,
    measures="kinds of addresses (GIDs) of every RoCE port, and the MTU of the network interface behind it",
    method="gid_attrs in /sys/class/infiniband, mtu in /sys/class/net, compared with equal nodes",
    requires="a RoCE port that is up",
    expectation="an address of RoCE v2 (at NCCL_IB_GID_INDEX, where validation_environment sets it), and the "
    "MTU of more than half of the equal nodes",
    remedy=(
        "If version 2 is missing: give the interface an IP address, and check `show_gids` (or `rdma "
        "link`). Set the same MTU on all nodes and switch ports."
    ),
    subjects=every_node,
    judge=judge,
    faults=(
        SeededFault("only-version-1", edit_adapter("gpu01", 2, _first_version), Subject("gpu01")),
        SeededFault("only-version-1-and-no-interface", edit_adapter("gpu03", 2, _nameless), Subject("gpu03")),
        SeededFault(
            "no-address-at-the-index", declare(environment={"NCCL_IB_GID_INDEX": "4"}), Subject("gpu01")
        ),
        SeededFault(
            "version-1-at-the-index", declare(environment={"NCCL_IB_GID_INDEX": "0"}), Subject("gpu01")
        ),
        SeededFault("mtu-differs", _mtu(1500), Subject("gpu02")),
        SeededFault("mtu-not-told", _mtu(None), Subject("gpu02"), Verdict.NOT_RUN),
        SeededFault("not-in-time", unread("gpu03"), Subject("gpu03"), Verdict.NOT_RUN),
    ),
)
