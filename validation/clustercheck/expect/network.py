"""What a group may be expected to reach across nodes, from the network that was detected."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from clustercheck.expect.effects import effect
from clustercheck.expect.physics import network_gbps
from clustercheck.model import Effect
from clustercheck.tables import read_table


@cache
def _rules() -> Mapping[str, Any]:
    rules: dict[str, Any] = read_table(Path(__file__).with_name("network"))
    return rules


@dataclass(frozen=True)
class Adapter:
    """The network that one node brings to the group: ``rails`` ports with together ``gbps`` GB/s one way.

    ``physical`` is False for virtual adapters. ``kind`` is tcp, infiniband or roce (network.yml).
    """

    name: str
    gbps: float
    physical: bool
    kind: str
    rails: int = 1


@dataclass(frozen=True)
class NetworkExpectation:
    """Floor and ceiling of bus bandwidth in GB/s; no ceiling where most nodes' adapters are virtual.

    The floor holds for messages of ``from_bytes``, and ``from_bytes_per_rank`` for each rank, and more: with
    smaller ones no network is at its plateau.
    The ceiling is the rate of the slowest adapter that is physical, ``bound``. Without one there is no
    ``effect`` either: their speed is that of the machine below them, which others share.
    ``bad_below`` is the part of what the better pairs reach, below which a pair is bad, and its reason.
    """

    floor_gbps: float
    from_bytes: int
    ceiling_gbps: float | None
    nominal_gbps: float
    bad_below: float
    bad_below_because: str
    bound: str
    method: str
    source: str
    effect: Effect | None = None
    from_bytes_per_rank: int = 0


def socket_adapter(nics: Sequence[Mapping[str, Any]], interface: str = "") -> Adapter | None:
    """The adapter that sockets use: the one named, else the one with the default route; None if unknown."""
    chosen = [nic for nic in nics if nic.get("name") == interface] if interface else []
    chosen = chosen or [nic for nic in nics if nic.get("default_route")]
    for nic in chosen:
        speed = nic.get("speed_mbps")
        if isinstance(speed, (int, float)) and speed > 0:
            return Adapter(str(nic.get("name")), network_gbps(speed), bool(nic.get("physical")), "tcp")
    return None


def chosen_sockets(nics: Sequence[Mapping[str, Any]]) -> Adapter | None:
    """What the chosen interfaces carry of which the rate is known; None if there is none.

    Of several the slowest is asked for, and there is no ceiling: how NCCL divides among them is its choice.
    """
    known = [adapter for nic in nics if (adapter := socket_adapter([nic], str(nic.get("name")))) is not None]
    if not known:
        return None
    slowest = min(known, key=lambda adapter: adapter.gbps)
    names = ", ".join(adapter.name for adapter in known)
    return slowest if len(known) == 1 else replace(slowest, name=names, physical=False)


def rdma_adapter(ports: Sequence[Mapping[str, Any]]) -> Adapter | None:
    """The active ones of these InfiniBand and RoCE ports together; None if there is none.

    Any Ethernet among them makes it RoCE: then less is asked.
    """
    rates, layers = [], set()
    for port in ports:
        match = re.match(r"\s*(\d{1,6}(?:\.\d{1,6})?) Gb/sec", str(port.get("rate") or ""))
        if match and "ACTIVE" in str(port.get("state") or ""):
            rates.append(float(match[1]) / 8)
            layers.add(str(port.get("link_layer") or ""))
    kind = "infiniband" if layers == {"InfiniBand"} else "roce"
    return Adapter(f"{len(rates)} RDMA ports", sum(rates), True, kind, len(rates)) if rates else None


def expectation(adapters: Mapping[str, Adapter], collective: str = "all_reduce") -> NetworkExpectation:
    """What the group must reach over these nodes' networks: the slowest sets it.

    Whether there is a ceiling, and how much of a change counts, most nodes say: one alone could have nothing
    compared by calling its adapter virtual, or of another kind.
    """
    slowest = min(adapters, key=lambda node: adapters[node].gbps)
    adapter = adapters[slowest]
    physical = {node: each for node, each in adapters.items() if each.physical}
    bound = min(physical, key=lambda node: physical[node].gbps, default="")
    # One that calls itself physical gains nothing by it.
    is_bound = adapter.physical or 2 * len(physical) >= len(adapters)
    kinds = Counter(each.kind for each in adapters.values())
    kind = max(kinds, key=lambda name: (kinds[name], name == adapter.kind))
    rule = _rules()[adapter.kind]
    if collective != "all_reduce":
        rule = {**rule, **rule.get("other_collectives", {})}
    floor = float(rule["floors"][max(rails for rails in rule["floors"] if rails <= adapter.rails)])
    return NetworkExpectation(
        floor_gbps=adapter.gbps * floor,
        from_bytes=int(rule["from_bytes"]),
        ceiling_gbps=physical[bound].gbps if is_bound else None,
        nominal_gbps=adapter.gbps,
        bad_below=float(rule["bad_below"]),
        bad_below_because=str(rule["bad_below_because"]),
        bound=f"{physical[bound].name} of {bound}" if is_bound else "",
        method=str(rule["method"]),
        source=f"{floor:.0%} of {adapter.gbps:g} GB/s ({adapter.name} of {slowest}); " + str(rule["source"]),
        effect=effect(str(_rules()[kind]["effect"])) if is_bound else None,
        from_bytes_per_rank=int(rule.get("from_bytes_per_rank", 0)),
    )
