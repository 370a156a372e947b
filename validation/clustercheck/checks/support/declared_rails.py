"""What InfiniBand and RoCE ports must do because the settings say that they carry compute."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from clustercheck.checks.base import Finding, failed
from clustercheck.checks.support import seeding
from clustercheck.checks.support.rdma import Link, describe_states, name_of
from clustercheck.evidence.cluster import Evidence
from clustercheck.evidence.rails import IB_HCA, declared_rails

GID_INDEX = "NCCL_IB_GID_INDEX"
REMEDY = (
    "Correct {source} (the adapters' names are in /sys/class/infiniband), or find out why the adapter is "
    "missing or its port down: `lspci`, cable, transceiver and switch port."
)


def select_rails(evidence: Evidence, node: str, links: Sequence[Link]) -> list[Link] | None:
    """The declared ones of these ports; None where the settings do not say which carry compute."""
    declared = declared_rails(evidence, node)
    if declared is None or declared.hca is None:
        return None
    return [link for link in links if declared.selects(link[0].name, link[1].number)]


def select_questioned(evidence: Evidence, node: str, links: Sequence[Link]) -> Sequence[Link]:
    """Ports of which the settings do not say whether they must be up: none where hardware_rails is set."""
    if evidence.declared[node].rails:
        return []
    rails = select_rails(evidence, node, links)
    return links if rails is None else rails


def chosen_number(environment: Mapping[str, str], name: str) -> int | None:
    """The number that a variable of the ranks has; None where it is unset or leaves the choice to NCCL."""
    text = environment.get(name, "").strip()
    return int(text) if text.isdecimal() else None


def find_missing_rails(evidence: Evidence, node: str, links: Sequence[Link]) -> Finding | None:
    """A rail that is declared by name and missing or down, or a choice that leaves NCCL no adapter."""
    declared = declared_rails(evidence, node)
    if declared is None or declared.hca is None:
        return None
    remedy = REMEDY.format(source=declared.source)
    hca, problems = declared.hca, []
    if declared.source == IB_HCA:
        if links and not any(declared.selects(link[0].name, link[1].number) for link in links):
            value = evidence.spec.settings_of(node).environment[IB_HCA]
            because = f"{IB_HCA}={value} selects none of its ports: {', '.join(map(name_of, links))}"
            return failed(because, 0, 1, unit="ports", source=IB_HCA, remedy=remedy)
        return None
    for name, number in hca.entries:
        mine = [link for link in links if hca.matches((name, number), link[0].name, link[1].number)]
        if not mine:
            problems.append(f"{name}{'' if number is None else f'/{number}'} is missing")
        elif not any(link[1].up for link in mine):
            problems.append(describe_states(mine))
    if not problems:
        return None
    up, wanted = len(hca.entries) - len(problems), len(hca.entries)
    because = f"{up} of {wanted} declared rails are up: {', '.join(problems)}"
    return failed(because, up, wanted, unit="rails", source=declared.source, remedy=remedy)


def declare(*rails: str, environment: dict[str, str] | None = None) -> seeding.Inject:
    """The operator says which adapters of every node carry compute, or gives ranks an environment."""

    def inject(evidence: Evidence) -> Evidence:
        nodes = tuple(
            replace(
                node,
                rails=rails,
                settings=replace(evidence.spec.settings_of(node.name), environment=environment or {}),
            )
            for node in evidence.spec.nodes
        )
        return replace(evidence, spec=replace(evidence.spec, nodes=nodes))

    return inject
