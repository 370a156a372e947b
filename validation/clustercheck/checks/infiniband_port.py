"""InfiniBand and RoCE ports: up, at full rate, on all lanes of the cable and on enough PCI Express."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from clustercheck.checks.base import (
    Check,
    Finding,
    SeededFault,
    every_node,
    failed,
    not_applicable,
    not_run,
    passed,
)
from clustercheck.checks.support import seeding
from clustercheck.checks.support.declared_rails import (
    declare,
    find_missing_rails,
    select_questioned,
    select_rails,
)
from clustercheck.checks.support.rdma import (
    DRIVER,
    NO_ADAPTER,
    Link,
    controllers,
    describe_states,
    edit_port,
    links_of,
    lose_adapter,
    name_of,
    place_of,
    rate,
    unread,
    without_adapter,
    without_drivers,
)
from clustercheck.checks.support.rdma_slot import EQUALS, poor_slot
from clustercheck.evidence.cluster import Evidence
from clustercheck.evidence.rails import near_gpus
from clustercheck.expect.rdma import LANES, lanes_missing
from clustercheck.model import Scope, Section, Severity, Subject, Verdict

DECLARED = "hardware_rdma_ports and hardware_rdma_gbps"
RAILS = "nvidia-smi topo -m: adapters next to GPUs are rails"
PEERS = "ports at the same place on equal nodes, and ports of equal adapters"
SUBNET_MANAGER = (
    "The cable is good and no subnet manager has configured the port: start opensm (or the switch's own), "
    "look at `sminfo` on a node whose port is active, and at the partition of this port."
)
CABLE = (
    "Check cable, transceiver and switch port (`ibdiagnet`, `mlxlink -d ADAPTER`), swap the cable, "
    "then the switch port; if the port still fails, have the adapter replaced."
)
OTHER_NETWORK = "If it is the storage's, on slower switches, name the adapters for jobs in hardware_rails."
DECLARE = (
    "Say in hardware_rdma_ports how many ports of each node must be up (0 for none), or in hardware_rails "
    "which adapters: nothing else tells a port that was never cabled from one whose cable is out."
)


def judge(evidence: Evidence, subject: Subject) -> Finding:
    """As many ports up as declared, and those of equal nodes; and each that is up as good as it can be."""
    node = str(subject.node)
    declared = evidence.declared[node].rdma_ports
    if declared == 0:
        return not_applicable("hardware_rdma_ports says that no port need be up")
    links = links_of(evidence, subject)
    if not links and (finding := find_missing_rails(evidence, node, links)) is not None:
        return replace(finding, remedy=f"{DRIVER} {finding.remedy}")
    if not links:
        return _without_port(evidence, subject)
    up = [link for link in links if link[1].up]
    more = {
        "ports": {
            name_of(link): f"{link[1].state} {link[1].physical_state} {rate(link[1])} {link[1].link_layer}"
            for link in links
        }
    }
    finding = find_missing_rails(evidence, node, links)
    finding = finding or _not_up(evidence, subject, links, up) or _poor(evidence, node, up)
    if finding is not None:
        return replace(finding, evidence=more)
    if not up:
        return not_applicable("no Ethernet port that could do RDMA is up, on any equal node", evidence=more)
    slowest = min(up, key=lambda link: link[1].rate_gbps)
    source = DECLARED if declared is not None else PEERS
    return passed(
        f"{len(up)} ports, {rate(slowest[1])}", _expected(evidence, node), source=source, evidence=more
    )


def _without_port(evidence: Evidence, subject: Subject) -> Finding:
    """Without a driver on any node, jobs take the slow network and nothing else says so."""
    finding, node = without_adapter(evidence, subject), str(subject.node)
    on_bus = controllers(evidence, node)
    if finding.verdict is Verdict.EXCLUDED and on_bus:
        because = f"{NO_ADAPTER}, and the PCI bus has InfiniBand controllers: {', '.join(on_bus)}"
        return not_run(because, remedy=f"{DRIVER} {DECLARE}")
    return finding


def _not_up(
    evidence: Evidence, subject: Subject, links: Sequence[Link], up: Sequence[Link]
) -> Finding | None:
    """What is wrong with how many ports are up; None if nothing is."""
    node = str(subject.node)
    declared = evidence.declared[node].rdma_ports
    waiting = [link for link in links if link[1].physical_state == "LinkUp" and not link[1].up]
    waiting = [link for link in waiting if link[1].link_layer == "InfiniBand"]
    remedy = SUBNET_MANAGER if waiting else ""
    down = [link for link in links if not link[1].up]
    number = sum(link in up for link in _counted(links, declared))
    if declared is not None and number < declared:
        because = (
            f"{number} of {declared} ports are up: {describe_states(down) or f'there are {len(links)} ports'}"
        )
        return failed(because, number, declared, unit="ports", source=DECLARED, remedy=remedy)
    wanted = evidence.fabric.wanted(node)
    places = {place_of(link): link for link in links}
    guilty = [link for place, link in places.items() if link in down and (place in wanted or link in waiting)]
    gone = [place for place in wanted if place not in places]
    if guilty or gone:
        missing = [f"no adapter is at {address} (port {number})" for address, number in gone]
        told = [describe_states(guilty), *missing] if guilty else missing
        others = [wanted[place] for place in (*gone, *map(place_of, guilty)) if place in wanted]
        because = "; ".join(told) + (f"; up on {min(others)} equal nodes" if others else "")
        expected = len({*(place_of(link) for link in up), *wanted, *map(place_of, waiting)})
        return failed(because, len(up), expected, unit="ports", source=PEERS, remedy=remedy)
    questioned = select_questioned(evidence, node, down)
    unsure = [link for link in questioned if link[1].link_layer == "InfiniBand"]
    rails = near_gpus(evidence.nodes[node])
    cabled = {_card(link) for link in up}  # a second port of the same card may well be left free
    dead = [link for link in unsure if link[0].name in rails and _card(link) not in cabled]
    if dead and up and declared is None and evidence.fabric.equals(node):
        because = f"{describe_states(dead)}: next to a GPU, and down on all equal nodes"
        return failed(because, len(up), len(up) + len(dead), unit="ports", source=RAILS, remedy=DECLARE)
    untold = not rails and any(_card(link) not in cabled for link in unsure)
    if unsure and declared is None and (untold or not (up and evidence.fabric.equals(node))):
        return not_run(
            f"cannot determine whether these should be up: {describe_states(unsure)}", remedy=DECLARE
        )
    return None


def _counted(links: Sequence[Link], declared: int | None) -> list[Link]:
    """The ports that a declared number speaks of: InfiniBand alone, if there are as many of them."""
    of_infiniband = [link for link in links if link[1].link_layer == "InfiniBand"]
    return of_infiniband if declared is not None and len(of_infiniband) >= declared else list(links)


def _card(link: Link) -> str:
    """The PCI device without its function, which a port may have of its own."""
    return (link[0].address or link[0].name).rpartition(".")[0] or link[0].name


def _poor(evidence: Evidence, node: str, up: Sequence[Link]) -> Finding | None:
    """What is wrong with the ports that are up; None if nothing is."""
    spec = evidence.declared[node]
    if spec.rdma_gbps is not None:
        fast = [link for link in up if link[1].rate_gbps >= spec.rdma_gbps]
        needed = spec.rdma_ports if spec.rdma_ports is not None else len(up)
        if len(fast) < needed:
            slow = ", ".join(f"{name_of(link)} {rate(link[1])}" for link in up if link not in fast)
            because = f"{len(fast)} of {needed} ports have {spec.rdma_gbps} Gb/s: {slow}"
            return failed(because, len(fast), needed, unit="ports", source=DECLARED)
    for link in up:
        port = link[1]
        if lanes_missing(port):
            because = f"{name_of(link)} runs on {port.lanes} lanes: {rate(port)}"
            return failed(because, port.lanes, LANES, unit="lanes", source="InfiniBand: a cable has 4 lanes")
        if (finding := _slow(evidence, node, link)) is not None:
            return finding
    return poor_slot(evidence, node, up)


def _slow(evidence: Evidence, node: str, link: Link) -> Finding | None:
    """A port of less than such adapters have; the storage's may hang on slower switches, as on equal nodes.

    Where neither settings nor topology tell, it is taken for one that jobs use: of these all may be slow.
    """
    adapter, port = link
    usual = evidence.fabric.usual_gbps(adapter, port)
    if port.rate_gbps >= usual:
        return None
    others, source = "most ports of such adapters", f"equal adapters ({adapter.board})"
    declared, near = select_rails(evidence, node, [link]), near_gpus(evidence.nodes[node])
    if declared == [] or (declared is None and near and adapter.name not in near):
        at_place = evidence.fabric.usual_gbps_at(node, place_of(link))
        if at_place is None and declared == []:
            return None  # of a single node nothing but its settings says so
        if at_place is not None and at_place < usual:
            usual, others, source = at_place, f"most at {EQUALS}", EQUALS
    if port.rate_gbps >= usual:
        return None
    because = f"{name_of(link)} has {rate(port)}, {others} {usual:g} Gb/s"
    remedy = f"{CABLE} {OTHER_NETWORK}"
    return failed(because, port.rate_gbps, usual, unit="Gb/s", source=source, remedy=remedy)


def _expected(evidence: Evidence, node: str) -> str:
    spec = evidence.declared[node]
    if spec.rdma_ports is None:
        return "as on equal nodes" if evidence.fabric.equals(node) else "every InfiniBand port up"
    return f"{spec.rdma_ports} ports" + (f", {spec.rdma_gbps} Gb/s" if spec.rdma_gbps else "")


def _declare(ports: int, gbps: int | None = None) -> seeding.Inject:
    """The operator says what every node must have."""

    def inject(evidence: Evidence) -> Evidence:
        nodes = tuple(replace(each, rdma_ports=ports, rdma_gbps=gbps) for each in evidence.spec.nodes)
        return replace(evidence, spec=replace(evidence.spec, nodes=nodes))

    return inject


def _far(node: str) -> seeding.Inject:
    """Every adapter is behind the CPU, as in virtual machines."""

    def move(raw: seeding.Raw) -> None:
        raw["topology"]["stdout"] = re.sub(r"\b(PIX|PXB|PHB)\b(?!\s*=)", "NODE", raw["topology"]["stdout"])

    return seeding.edit(node, move)


def _narrow(raw: seeding.Raw) -> None:
    at = raw["infiniband"]["devices"][1]["address"]
    next(each for each in raw["pci"] if each["address"] == at)["link_width"] = "8"


_DOWN = {"state": "1: DOWN", "phys_state": "2: Polling"}
_EVERYWHERE = seeding.chain(*(edit_port(f"gpu0{n}", 1, **_DOWN) for n in (1, 2, 3)))
CHECK = Check(
    id="infiniband-port",
    title="InfiniBand and RoCE ports",
    section=Section.NETWORK,
    scope=Scope.HOST,
    measures="state, rate and lanes of every port of every RDMA adapter, and the adapter's PCI Express link",
    method="/sys/class/infiniband and sysfs of the PCI bus; against what is declared, ports at the same "
    "place on equal nodes, and ports of equal adapters (same board id)",
    requires="an RDMA adapter, here or declared; hardware_rdma_ports or hardware_rails, or a second node "
    "of the same kind",
    expectation="every declared rail up; active and LinkUp, the rate of equal adapters (of ports that "
    "jobs do not use, of the same place on equal nodes), 4 lanes (2 of a split HDR, NDR or XDR port), and a "
    "PCI Express link that supports the ports' rates and is not lower than on equal nodes",
    remedy=CABLE,
    severity=Severity.CRITICAL,
    subjects=every_node,
    judge=judge,
    faults=(
        SeededFault("port-down", edit_port("gpu02", 0, **_DOWN), Subject("gpu02")),
        SeededFault("no-subnet-manager", edit_port("gpu01", 1, state="2: INIT"), Subject("gpu01")),
        SeededFault("half-the-rate", edit_port("gpu03", 0, rate="100 Gb/sec (4X EDR)"), Subject("gpu03")),
        SeededFault("one-lane", edit_port("gpu03", 1, rate="50 Gb/sec (1X HDR)"), Subject("gpu03")),
        SeededFault("adapter-gone", lose_adapter("gpu02", 1), Subject("gpu02")),
        SeededFault("narrow-pcie", seeding.edit("gpu01", _narrow), Subject("gpu01")),
        SeededFault("fewer-than-declared", seeding.chain(_declare(3), _EVERYWHERE), Subject("gpu03")),
        SeededFault("dead-rail-on-all-nodes", _EVERYWHERE, Subject("gpu03")),
        SeededFault(
            "dead-rail-and-ethernet-counted", seeding.chain(_declare(2), _EVERYWHERE), Subject("gpu03")
        ),
        SeededFault(
            "dead-rail-far-from-all-gpus",
            seeding.chain(_EVERYWHERE, _far("gpu01"), _far("gpu02"), _far("gpu03")),
            Subject("gpu03"),
            Verdict.NOT_RUN,
        ),
        SeededFault(
            "declared-rail-down-on-all-nodes",
            seeding.chain(declare("mlx5_0", "mlx5_1"), _EVERYWHERE),
            Subject("gpu03"),
        ),
        SeededFault(
            "declared-rail-missing",
            seeding.chain(declare("mlx5_0", "mlx5_1"), *(lose_adapter(f"gpu0{n}", 1) for n in (1, 2, 3))),
            Subject("gpu03"),
        ),
        SeededFault("no-adapter-selected", declare(environment={"NCCL_IB_HCA": "=mlx4_0"}), Subject("gpu01")),
        SeededFault("slower-than-declared", _declare(2, 400), Subject("gpu01")),
        SeededFault(
            "none-declared", seeding.chain(_declare(0), _EVERYWHERE), Subject("gpu03"), Verdict.EXCLUDED
        ),
        SeededFault(
            "no-driver-anywhere",
            without_drivers("gpu01", "gpu02", "gpu03"),
            Subject("gpu03"),
            Verdict.NOT_RUN,
        ),
        SeededFault("not-in-time", unread("gpu03"), Subject("gpu03"), Verdict.NOT_RUN),
    ),
)
