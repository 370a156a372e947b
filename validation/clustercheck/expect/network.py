"""What a group may be expected to reach across nodes, from the network that was detected."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from clustercheck.expect.effects import effect
from clustercheck.expect.figures import Effect
from clustercheck.expect.physics import network_gbps


@cache
def _rules() -> Mapping[str, Any]:
    rules: dict[str, Any] = yaml.safe_load(
        (Path(__file__).parent / "network.yml").read_text(encoding="utf-8")
    )
    return rules


@dataclass(frozen=True)
class Adapter:
    """The network that one node brings to the group. ``physical`` is False for virtual adapters."""

    name: str
    gbps: float
    physical: bool
    kind: str


@dataclass(frozen=True)
class NetworkExpectation:
    """Floor and ceiling of bus bandwidth in GB/s; no ceiling where the slowest adapter is virtual.

    Then there is no ``effect`` either: its speed is that of the machine below it, which others share.
    ``bad_below`` is the part of what the better pairs reach, below which a pair is bad, and its reason.
    """

    floor_gbps: float
    ceiling_gbps: float | None
    nominal_gbps: float
    bad_below: float
    bad_below_because: str
    slowest: str
    method: str
    source: str
    effect: Effect | None = None


def socket_adapter(nics: Sequence[Mapping[str, Any]], interface: str = "") -> Adapter | None:
    """The adapter that sockets use: the one named, else the one with the default route; None if unknown."""
    chosen = [nic for nic in nics if nic.get("name") == interface] if interface else []
    chosen = chosen or [nic for nic in nics if nic.get("default_route")]
    for nic in chosen:
        speed = nic.get("speed_mbps")
        if isinstance(speed, int | float) and speed > 0:
            return Adapter(str(nic.get("name")), network_gbps(speed), bool(nic.get("physical")), "tcp")
    return None


def rdma_adapter(ports: Sequence[Mapping[str, Any]]) -> Adapter | None:
    """All active InfiniBand and RoCE ports of a node together; None where there is none."""
    rates = []
    for port in ports:
        match = re.match(r"\s*(\d+(?:\.\d+)?) Gb/sec", str(port.get("rate") or ""))
        if match and "ACTIVE" in str(port.get("state") or ""):
            rates.append(float(match[1]) / 8)
    return Adapter(f"{len(rates)} RDMA ports", sum(rates), True, "rdma") if rates else None


def expectation(adapters: Mapping[str, Adapter]) -> NetworkExpectation:
    """What the group must reach over these nodes' networks: the slowest sets it."""
    slowest = min(adapters, key=lambda node: adapters[node].gbps)
    adapter = adapters[slowest]
    rule = _rules()[adapter.kind]
    return NetworkExpectation(
        floor_gbps=adapter.gbps * float(rule["floor"]),
        ceiling_gbps=adapter.gbps if adapter.physical else None,
        nominal_gbps=adapter.gbps,
        bad_below=float(rule["bad_below"]),
        bad_below_because=str(rule["bad_below_because"]),
        slowest=f"{adapter.name} of {slowest}",
        method=str(rule["method"]),
        source=f"{float(rule['floor']):.0%} of {adapter.gbps:g} GB/s ({adapter.name} of {slowest}); "
        + str(rule["source"]),
        effect=effect(adapter.kind) if adapter.physical else None,
    )
