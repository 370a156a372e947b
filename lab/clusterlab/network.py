"""The lab's network: a /24 that nothing on this machine uses yet."""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Iterable, Iterator

from clusterctl.errors import ClusterctlError
from clusterlab import docker
from clusterlab.names import LABEL_LAB, Names, host_number
from clusterlab.process import call

# Private (RFC 1918), and away from what Docker (172.17-31, 192.168) and home routers use.
POOL = ipaddress.IPv4Network("10.87.0.0/16")


def candidates(suffix: str) -> Iterator[ipaddress.IPv4Network]:
    """Every /24 of the pool once, beginning where the suffix says: two clones start apart."""
    subnets = list(POOL.subnets(new_prefix=24))
    start = int(suffix, 16) % len(subnets)
    yield from subnets[start:] + subnets[:start]


def choose_subnet(suffix: str, taken: Iterable[ipaddress.IPv4Network]) -> ipaddress.IPv4Network:
    """The first candidate that overlaps nothing in ``taken``.

    Raises ClusterctlError (``lab.no-subnet``) where all overlap.
    """
    used = list(taken)
    for subnet in candidates(suffix):
        if not any(subnet.overlaps(other) for other in used):
            return subnet
    raise ClusterctlError(
        f"no /24 of {POOL} is free on this machine",
        code="lab.no-subnet",
        where=", ".join(str(network) for network in used[:8]),
        hint="Take down labs that are not needed (clusterctl lab down), or remove the route that covers it.",
    )


def address_of(subnet: ipaddress.IPv4Network, node: str) -> str:
    """The fixed address of a node in the lab's network."""
    return str(subnet[host_number(node)])


def taken_networks() -> list[ipaddress.IPv4Network]:
    """What this machine routes already (a default route takes nothing), and every Docker network."""
    found = []
    routes = json.loads(call(["ip", "-json", "-4", "route", "show", "table", "all"]).stdout)
    for route in routes:
        destination = route.get("dst", "default")
        if destination != "default":
            found.append(ipaddress.IPv4Network(destination, strict=False))
    identities = docker.output(["network", "ls", "--quiet"]).split()
    for network in docker.inspect("network", identities):
        for configuration in network["IPAM"].get("Config") or []:
            subnet = ipaddress.ip_network(configuration["Subnet"], strict=False)
            if isinstance(subnet, ipaddress.IPv4Network):
                found.append(subnet)
    return found


def ensure_network(names: Names) -> ipaddress.IPv4Network:
    """The lab's network, made where it is missing; returns its subnet."""
    existing = docker.inspect("network", [names.network], missing_ok=True)
    if existing:
        return ipaddress.IPv4Network(existing[0]["IPAM"]["Config"][0]["Subnet"])
    subnet = choose_subnet(names.suffix, taken_networks())
    docker.run(
        [
            "network", "create",
            "--subnet", str(subnet),
            "--gateway", str(subnet[1]),
            "--label", f"{LABEL_LAB}={names.suffix}",
            "--opt", f"com.docker.network.bridge.name={names.bridge}",
            names.network,
        ]
    )  # fmt: skip
    return subnet
