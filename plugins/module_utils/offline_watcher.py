# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see plugins/LICENSE)
"""Runs on a node: writes down whom the node turns to, by every packet that leaves it. Blocks nothing.

A program of its own, of the standard library alone: `python3 offline_watcher.py CONFIG.json`. It hears each
beginning (a TCP SYN, a datagram that answers none, an echo request, any other protocol) on every interface.
What the kernel could not hand over is counted: who was not heard is not proved.
"""

from __future__ import annotations

import contextlib
import ctypes
import ipaddress
import json
import os
import signal
import socket
import struct
import sys
import time
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

ETH_P_ALL, ETH_P_IP, ETH_P_IPV6 = 0x0003, 0x0800, 0x86DD
PACKET_HOST, PACKET_OUTGOING = 0, 4
SOL_PACKET, PACKET_STATISTICS = 263, 6
SO_ATTACH_FILTER, SO_RCVBUFFORCE = 26, 33
TCP, UDP, ICMP, ICMPV6 = 6, 17, 1, 58
SYN, ACK = 0x02, 0x10
ECHO, ECHO_V6 = 8, 128
PROTOCOLS = {TCP: "tcp", UDP: "udp", ICMP: "icmp", ICMPV6: "icmp"}
BUFFER = 8 << 20
# What the kernel counts for the smallest one there, with what it keeps of it, is more.
LEAST_PACKET_BYTES = 512
# Conversations over UDP that others started with this node: its answers start no session.
MOST_FLOWS = 8192
MOST_OUTSIDE = 200
# Names that were asked for, and addresses inside: a user of the node may choose any number. What comes after
# these is counted together.
MOST_NAMED, OTHERS = 1000, "others"
MOST_NAME = 253  # characters of a name of DNS
# Of TCP in /proc/net: ESTABLISHED, SYN_SENT, CLOSE_WAIT can carry what we ask for; and LISTEN.
OPEN_STATES, LISTENING = ("01", "02", "08"), "0A"
MOST_LOOKS = 20
# For the programs of sessions that are open already: apply waits for the first record.
LOOK_S = 5.0
WRITE_S = 0.5
# A FIFO next to the record, into which something is written after each.
BELL = "bell"
DNS = 53
DHCP = (67, 547)


def beginnings_filter() -> tuple[bytes, int]:
    """Classic BPF: of TCP only segments with SYN and without ACK; all else of IP; nothing else."""
    protocol = 0xFFFFF000  # SKF_AD_OFF + SKF_AD_PROTOCOL
    accept, drop = 15, 16
    code = [
        (0x20, 0, 0, protocol),         # 0: ld protocol
        (0x15, 1, 0, ETH_P_IP),         # 1: IPv4 -> 3
        (0x15, 7, drop - 3, ETH_P_IPV6),  # 2: IPv6 -> 10, else drop
        (0x30, 0, 0, 9),                # 3: ldb protocol of IPv4
        (0x15, 0, accept - 5, TCP),     # 4: TCP -> 5, else accept
        (0x28, 0, 0, 6),                # 5: ldh fragment
        (0x45, drop - 7, 0, 0x1FFF),    # 6: a later fragment -> drop
        (0xB1, 0, 0, 0),                # 7: ldx 4 * header length
        (0x50, 0, 0, 13),               # 8: ldb flags
        (0x05, 0, 0, 3),                # 9: -> 13
        (0x30, 0, 0, 6),                # 10: ldb next header of IPv6
        (0x15, 0, accept - 12, TCP),    # 11: TCP -> 12, else accept
        (0x30, 0, 0, 53),               # 12: ldb flags
        (0x54, 0, 0, SYN | ACK),        # 13: and
        (0x15, 0, drop - 15, SYN),      # 14: a beginning -> accept, else drop
        (0x06, 0, 0, 0x40000),          # 15: accept
        (0x06, 0, 0, 0),                # 16: drop
    ]  # fmt: skip
    return b"".join(struct.pack("HBBI", *one) for one in code), len(code)


def listen() -> socket.socket:
    """A socket that hears every interface; raises OSError where this is not allowed."""
    heard = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(ETH_P_ALL))
    program, length = beginnings_filter()
    kept = ctypes.create_string_buffer(program, len(program))
    heard.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, struct.pack("HL", length, ctypes.addressof(kept)))
    try:
        heard.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, BUFFER)
    except OSError:
        heard.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER)
    return heard


def parse(packet: bytes, ether: int) -> tuple[Any, Any, int, int, int, bytes, int] | None:
    """Source, goal, protocol, both ports, payload and ICMP type of a beginning; None for what is none."""
    try:
        if ether == ETH_P_IP:
            start, protocol = (packet[0] & 15) * 4, packet[9]
            source, goal = ipaddress.IPv4Address(packet[12:16]), ipaddress.IPv4Address(packet[16:20])
            later = struct.unpack_from("!H", packet, 6)[0] & 0x1FFF
            if later:
                return None
        elif ether == ETH_P_IPV6:
            start, protocol = 40, packet[6]
            source, goal = ipaddress.IPv6Address(packet[8:24]), ipaddress.IPv6Address(packet[24:40])
        else:
            return None
        ports = struct.unpack_from("!HH", packet, start) if protocol in (TCP, UDP) else (0, 0)
        # What came before the filter did is looked at here.
        if protocol == TCP and packet[start + 13] & (SYN | ACK) != SYN:
            return None
        kind = packet[start] if protocol in (ICMP, ICMPV6) else 0
        return source, goal, protocol, ports[0], ports[1], packet[start + 8 :], kind
    except (IndexError, ValueError, struct.error):
        return None


def asked_name(payload: bytes) -> str:
    """The name that a DNS question asks for; "" for what is none."""
    try:
        if payload[2] & 0x80 or struct.unpack_from("!H", payload, 4)[0] < 1:
            return ""
        words, at = [], 12
        while payload[at]:
            length = payload[at]
            if length > 63:
                return ""
            words.append(payload[at + 1 : at + 1 + length].decode("ascii"))
            at += 1 + length
        return ".".join(words).lower()[:MOST_NAME]
    except (IndexError, struct.error, UnicodeDecodeError):
        return ""


def is_nobody(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    """Whether an address is not a host of the network: loopback, several at once, or none."""
    return (
        address.is_loopback or address.is_multicast or address.is_unspecified
        or address == ipaddress.IPv4Address("255.255.255.255")
    )  # fmt: skip


def is_inside(interface: str, root: Path = Path("/sys/class/net")) -> bool:
    """Whether an interface leads to containers of this very host: a bridge is heard again at its ports."""
    here = root / interface
    return interface == "lo" or (here / "bridge").exists() or (
        (here / "brport").exists() and not (here / "device").exists()
    )  # fmt: skip


def process_of(protocol: int, port: int, family: int) -> tuple[str, str]:
    """(program, unit) that holds a local port, as far as /proc shows it now."""
    table = Path(f"/proc/net/{PROTOCOLS[protocol]}{'6' if family == 6 else ''}")
    names = [table] + ([Path(f"/proc/net/{PROTOCOLS[protocol]}6")] if family == 4 else [])
    inodes = set()
    for name in names:
        for fields in sockets_of(name):
            if int(fields[1].rpartition(":")[2], 16) == port and len(inodes) < MOST_OUTSIDE:
                inodes.add(f"socket:[{fields[9]}]")
    if not inodes:
        return "", ""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            with os.scandir(process / "fd") as descriptors:
                is_holder = any(os.readlink(one) in inodes for one in descriptors)  # noqa: PTH115
            if is_holder:
                unit = [
                    word
                    for word in _text(process / "cgroup").replace("\n", "/").split("/")
                    if word.endswith((".service", ".scope"))
                ]
                return _text(process / "comm").strip(), unit[-1] if unit else ""
        except OSError:
            continue
    return "", ""


def _text(path: Path) -> str:
    """What the kernel says of a process, whose name may be any bytes. Raises OSError."""
    return path.read_text(encoding="utf-8", errors="replace")


def sockets_of(table: Path) -> Iterator[list[str]]:
    """The fields of each socket in a table of the kernel, one at a time: a user may have very many."""
    with contextlib.suppress(OSError), table.open(encoding="ascii") as lines:
        next(lines, "")
        for line in lines:
            fields = line.split()
            if len(fields) > 9:
                yield fields


def _address_of(word: str) -> Any:
    """An address as /proc/net has it: words of 32 bits, each in this machine's own order."""
    raw = b"".join(struct.pack("=I", int(word[at : at + 8], 16)) for at in range(0, len(word), 8))
    found = ipaddress.ip_address(raw)
    return getattr(found, "ipv4_mapped", None) or found


def open_sessions(root: Path = Path("/proc/net")) -> Iterator[tuple[Any, int, int]]:
    """Far address, far port and own port of TCP sessions that this host may have started.

    Not those to a port that listens here: others started them.
    """
    tables = [root / name for name in ("tcp", "tcp6")]
    served = {
        one[1].rpartition(":")[2] for table in tables for one in sockets_of(table) if one[3] == LISTENING
    }
    for table in tables:
        for one in sockets_of(table):
            own, (far, _, far_port) = one[1].rpartition(":")[2], one[2].rpartition(":")
            if one[3] in OPEN_STATES and own not in served:
                yield _address_of(far), int(far_port, 16), int(own, 16)


class Watch:
    """What was heard so far; `record` is what is written down."""

    def __init__(self, config: dict[str, Any], earlier: dict[str, Any], now: float) -> None:
        self.allowed = [ipaddress.ip_network(one) for one in config["allowed"]]
        self.resolvers = set(config.get("name_servers", []))
        boots = [*earlier.get("boots", [])]
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        boots += [boot] if boot not in boots else []
        # An end within one boot means that nobody listened for a while.
        gap = bool(earlier) and boot in earlier.get("boots", [])
        self.record: dict[str, Any] = {
            "run": config["run"], "began": earlier.get("began", now), "alive": now, "boots": boots,
            "gaps": earlier.get("gaps", 0) + int(gap), "lost": earlier.get("lost", 0),
            "inside": earlier.get("inside", {}), "outside": earlier.get("outside", []),
            "names": earlier.get("names", {}), "open": earlier.get("open", []), "drained": False,
        }  # fmt: skip
        self.flows: OrderedDict[tuple[Any, int, int], bool] = OrderedDict()

    def find_open(self, sessions: Iterable[tuple[Any, int, int]]) -> None:
        """Write down sessions with outsiders that started before the watch: what they carry is not heard."""
        strangers = (
            one
            for one in sessions
            if not is_nobody(one[0]) and not any(one[0] in network for network in self.allowed)
        )
        end = time.monotonic() + LOOK_S
        for number, (far, far_port, own_port) in enumerate(strangers):
            is_looked_for = number < MOST_OUTSIDE and time.monotonic() < end
            by, unit = process_of(TCP, own_port, far.version) if is_looked_for else ("", "")
            one = {
                "address": str(far),
                "protocol": "tcp",
                "port": far_port,
                "times": 1,
                "by": by,
                "unit": unit,
            }
            if one not in self.record["open"] and len(self.record["open"]) < MOST_OUTSIDE:
                self.record["open"].append(one)

    def hear(self, packet: bytes, ether: int, kind: int, interface: str) -> bool:
        """Take one packet; True where the record has something new."""
        parsed = parse(packet, ether)
        if parsed is None or is_inside(interface):
            return False
        source, goal, protocol, source_port, goal_port, payload, icmp = parsed
        if kind != PACKET_OUTGOING:
            if protocol == UDP and kind == PACKET_HOST:
                self.flows[(source, source_port, goal_port)] = True
                if len(self.flows) > MOST_FLOWS:
                    self.flows.popitem(last=False)
            return False
        if is_nobody(goal) or (protocol == UDP and (goal, goal_port, source_port) in self.flows):
            return False
        if protocol in (ICMP, ICMPV6) and icmp not in (ECHO, ECHO_V6):
            return False
        new = False
        if protocol == UDP and goal_port == DNS and (name := asked_name(payload)):
            new = count(self.record["names"], name)
        return self.contact(goal, protocol, source_port, goal_port) or new

    def contact(self, goal: Any, protocol: int, source_port: int, goal_port: int) -> bool:
        """The node turns to somebody; True where it did not before."""
        known = any(goal in network for network in self.allowed)
        # The site's own name server, where the node is told to ask, and who gives it its address: what is out
        # in the world is not the site's.
        if not known and goal.is_private:
            known = goal_port in DHCP or (goal_port == DNS and str(goal) in self.resolvers)
        if known:
            return count(self.record["inside"], str(goal))
        word = PROTOCOLS.get(protocol, f"protocol {protocol}")
        for one in self.record["outside"]:
            if (one["address"], one["protocol"], one["port"]) == (str(goal), word, goal_port):
                one["times"] += 1
                # Who was answered at once has gone before /proc is read; who comes again may be met.
                if not one["by"] and one["times"] <= MOST_LOOKS and protocol in (TCP, UDP):
                    one["by"], one["unit"] = process_of(protocol, source_port, goal.version)
                    return bool(one["by"])
                return False
        if len(self.record["outside"]) < MOST_OUTSIDE:
            by, unit = process_of(protocol, source_port, goal.version) if protocol in (TCP, UDP) else ("", "")
            self.record["outside"].append(
                {"address": str(goal), "protocol": word, "port": goal_port, "times": 1,
                 "at": time.time(), "by": by, "unit": unit}
            )  # fmt: skip
        return True


def count(counts: dict[str, int], name: str) -> bool:
    """Count one more of a name; True where it is the first."""
    name = name if name in counts or len(counts) < MOST_NAMED else OTHERS
    counts[name] = counts.get(name, 0) + 1
    return counts[name] == 1


def write(path: Path, record: dict[str, Any]) -> None:
    """Write the record whole; it is root's alone."""
    temporary = path.with_name(f".{path.name}.new")
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as stream:
        json.dump(record, stream)
    temporary.replace(path)
    ring(path.with_name(BELL))


def ring(bell: Path) -> None:
    """Wake who waits for a record; mostly there is nobody."""
    with contextlib.suppress(OSError):
        stream = os.open(bell, os.O_WRONLY | os.O_NONBLOCK)
        try:
            os.write(stream, b".")
        finally:
            os.close(stream)


def read(path: Path) -> dict[str, Any]:
    """An earlier record, {} where there is none."""
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def lost(heard: socket.socket) -> int:
    """Packets that the kernel dropped since this was asked last."""
    return struct.unpack("II", heard.getsockopt(SOL_PACKET, PACKET_STATISTICS, 8))[1]


def drain(heard: socket.socket, watch: Watch) -> None:
    """Hear what came before the signal, which is still in the buffer; what comes meanwhile has no end, where
    somebody sends without one."""
    heard.settimeout(0)
    with contextlib.suppress(OSError):
        for _ in range(heard.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) // LEAST_PACKET_BYTES + 1):
            packet, address = heard.recvfrom(2048)
            watch.hear(packet, address[1], address[2], address[0])


def main() -> None:
    """Listen until told to end, or until the time is over."""
    config = json.loads(Path(sys.argv[1]).read_text())
    output = Path(config["output"])
    ending: list[bool] = []
    earlier = read(output)
    heard = listen()
    watch = Watch(config, earlier if earlier.get("run") == config["run"] else {}, time.time())
    signal.signal(signal.SIGTERM, lambda *_: ending.append(True))
    # After the socket listens: a session that starts in between is found twice, and missed by none.
    watch.find_open(open_sessions())
    heard.settimeout(WRITE_S)
    write(output, watch.record)
    written, changed = time.monotonic(), False
    while not ending and time.time() < config["until"]:
        try:
            packet, address = heard.recvfrom(2048)
            changed = watch.hear(packet, address[1], address[2], address[0]) or changed
        except (socket.timeout, InterruptedError):  # noqa: UP041 (the same only from Python 3.10)
            pass
        if time.monotonic() - written >= WRITE_S:
            watch.record["lost"] += lost(heard)
            watch.record["alive"] = time.time()
            write(output, watch.record)
            written, changed = time.monotonic(), False
    drain(heard, watch)
    watch.record["lost"] += lost(heard)
    # Who told it to end, and whether that was the end of the run, is not known here: the module judges it.
    watch.record.update(alive=time.time(), drained=bool(ending))
    write(output, watch.record)


if __name__ == "__main__":
    main()
