"""InfiniBand and RoCE adapters in a probe's record of /sys/class/infiniband."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from clustercheck.parse.document import member
from clustercheck.parse.reading import CannotReadError, bus_address, readable

# As the kernel writes them: drivers/infiniband/core/sysfs.c.
STATES = {0: "NOP", 1: "DOWN", 2: "INIT", 3: "ARMED", 4: "ACTIVE", 5: "ACTIVE_DEFER"}
PHYSICAL = {
    1: "Sleep",
    2: "Polling",
    3: "Disabled",
    4: "PortConfigurationTraining",
    5: "LinkUp",
    6: "LinkErrorRecovery",
    7: "Phy Test",
}
LANE_GBPS = {
    "SDR": 2.5, "DDR": 5, "QDR": 10, "FDR10": 10, "FDR": 14, "EDR": 25, "HDR": 50, "NDR": 100, "XDR": 200,
}  # fmt: skip
# What counts up where a link is bad, as the kernel and mlx5 name it.
ERRORS = (
    "symbol_error", "link_error_recovery", "link_downed", "port_rcv_errors",
    "port_rcv_remote_physical_errors", "port_xmit_discards", "local_link_integrity_errors",
    "excessive_buffer_overrun_errors", "out_of_sequence", "packet_seq_err",
    "local_ack_timeout_err", "rx_icrc_encapsulated",
)  # fmt: skip
MOST, MOST_PORTS = 64, 128
_WHAT = "the probe's record of InfiniBand adapters"
_RATE = re.compile(r"(\d{1,5}(?:\.5)?) Gb/sec \((\d{1,2})X(?: (\w{3,5}))?\)")
_GID = re.compile(r"[0-9a-f]{4}(?::[0-9a-f]{4}){7}")
_NAME = re.compile(r"[\w.:-]{1,64}", re.ASCII)  # longer ones the kernel has none of; all ranks are told them
_NO_COUNTER = ("N/A", "N/A (no PMA)")  # of virtual functions


@dataclass(frozen=True)
class Gid:
    """One address of a port; ``type`` is IB/RoCE v1 or RoCE v2, ``interface`` the network's behind it."""

    index: int
    gid: str
    type: str
    interface: str


@dataclass(frozen=True)
class Port:
    """One port. ``generation`` is HDR, NDR...; counters are those that it has, of link and of transport."""

    number: int
    state: str
    physical_state: str
    rate_gbps: float
    lanes: int
    generation: str
    link_layer: str
    counters: Mapping[str, int]
    gids: tuple[Gid, ...]

    @property
    def up(self) -> bool:
        """Whether it carries data."""
        return self.state == "ACTIVE" and self.physical_state == "LinkUp"

    @property
    def errors(self) -> dict[str, int]:
        """What it counts of errors, where that is not zero."""
        return {name: self.counters[name] for name in ERRORS if self.counters.get(name)}


@dataclass(frozen=True)
class RdmaAdapter:
    """One adapter; ``address`` is empty for one that is on no PCI bus (Soft-RoCE)."""

    name: str
    address: str
    firmware: str
    board: str
    numa_node: int | None
    ports: tuple[Port, ...]


def parse_infiniband(record: Any) -> tuple[RdmaAdapter, ...]:
    """The adapters, by name; none where the node has none.

    Raises CannotReadError where the probe did not read all, or an adapter says what none says.
    """
    left_out = member(record, "left_out", list, _WHAT)
    if left_out:
        raise CannotReadError(f"the adapters did not answer in time: {str(left_out[0])[:120]}")
    devices = member(record, "devices", list, _WHAT)
    if len(devices) > MOST:
        raise CannotReadError(f"{_WHAT} has {len(devices)} adapters")
    adapters = tuple(sorted((_adapter(answer) for answer in devices), key=lambda adapter: adapter.name))
    if (ports := sum(len(adapter.ports) for adapter in adapters)) > MOST_PORTS:
        raise CannotReadError(f"{_WHAT} has {ports} ports, at most {MOST_PORTS} are read")
    if len({adapter.name for adapter in adapters}) != len(adapters):
        raise CannotReadError(f"{_WHAT} has one adapter twice")
    return adapters


def _adapter(answer: Any) -> RdmaAdapter:
    name = member(answer, "name", str, _WHAT)
    if not _NAME.fullmatch(name):
        raise CannotReadError(f"{_WHAT} names an adapter {name[:40]!r}")
    address = member(answer, "address", str, _WHAT)
    numa = answer.get("numa_node")
    if numa is not None and not re.fullmatch(r"-1|\d{1,4}", str(numa)):
        raise CannotReadError(f"{name[:40]} is on the NUMA node {str(numa)[:20]!r}")
    ports = tuple(_port(port, name) for port in member(answer, "ports", list, _WHAT))
    if not ports or len({port.number for port in ports}) != len(ports):
        raise CannotReadError(f"{name[:40]} has no port, or one port twice")
    return RdmaAdapter(
        name=name,
        address=bus_address(address) if address else "",
        firmware=_text(answer, "fw_ver"),
        board=_text(answer, "board_id"),
        numa_node=int(numa) if numa is not None and int(numa) >= 0 else None,
        ports=ports,
    )


def _port(answer: Any, adapter: str) -> Port:
    number = member(answer, "port", str, _WHAT)
    if not re.fullmatch(r"\d{1,3}", number):
        raise CannotReadError(f"{adapter[:40]} has the port {number[:20]!r}")
    at = f"{adapter[:40]}/{number}"
    state = _known(member(answer, "state", str, _WHAT), STATES, at)
    physical = _known(member(answer, "phys_state", str, _WHAT), PHYSICAL, at)
    if state == "ACTIVE" and physical in ("Sleep", "Polling", "Disabled"):
        raise CannotReadError(f"{at} is said to be active and {physical}")
    layer = member(answer, "link_layer", str, _WHAT)
    if layer not in ("InfiniBand", "Ethernet"):
        raise CannotReadError(f"{at} has the link layer {layer[:20]!r}")
    rate, lanes, generation = _rate(member(answer, "rate", str, _WHAT), at)
    counters: dict[str, int] = {}
    for room in ("hw_counters", "counters"):
        for name, value in member(answer, room, dict, _WHAT).items():
            if value is None or value in _NO_COUNTER:
                continue
            if not re.fullmatch(r"\d{1,20}", str(value)):
                raise CannotReadError(f"{at} counts {str(value)[:20]!r} of {str(name)[:40]}")
            counters[str(name)] = int(value)
    gids = tuple(_gid(gid, at) for gid in member(answer, "gids", list, _WHAT))
    return Port(int(number), state, physical, rate, lanes, generation, layer, counters, gids)


def _known(text: str, words: Mapping[int, str], at: str) -> str:
    """The word of ``4: ACTIVE``, where number and word belong together."""
    number, _, word = text.partition(": ")
    if not number.isdecimal() or words.get(int(number[:3])) != word:
        raise CannotReadError(f"{at} is in the unknown state {text[:40]!r}")
    return word


def _rate(text: str, at: str) -> tuple[float, int, str]:
    match = _RATE.fullmatch(text)
    if match is None:
        raise CannotReadError(f"{at} has the rate {text[:40]!r}")
    rate, lanes, generation = float(match[1]), int(match[2]), match[3] or "SDR"
    if generation not in LANE_GBPS or rate != LANE_GBPS[generation] * lanes:
        raise CannotReadError(f"{at} has a rate that contradicts itself: {text[:40]!r}")
    return rate, lanes, generation


def _gid(answer: Any, at: str) -> Gid:
    gid = member(answer, "gid", str, _WHAT)
    if not _GID.fullmatch(gid):
        raise CannotReadError(f"{at} has the address {gid[:60]!r}")
    return Gid(member(answer, "index", int, _WHAT), gid, _text(answer, "type"), _text(answer, "interface"))


def _text(record: Mapping[str, Any], name: str) -> str:
    value = record.get(name)
    if value is not None and not isinstance(value, str):
        raise CannotReadError(f"{_WHAT} does not say {name!r} as it should")
    return readable((value or "").strip()[:200], _WHAT)
