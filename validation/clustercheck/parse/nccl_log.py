"""What NCCL says of itself with NCCL_DEBUG=INFO: by which road each pair of ranks is joined.

Lines as of NCCL 2.15 to 2.29. `GPU Direct RDMA ...` and `Pattern ...` are said only with
NCCL_DEBUG_SUBSYS=INIT,ENV,NET,GRAPH.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from clustercheck.parse.python39 import pairwise
from clustercheck.parse.reading import CannotReadError, readable

LARGEST = 256 * 1024 * 1024  # some 12 kB a rank: a group of 16,000 and more
LONGEST_LINE = 8192
RING = 4  # of NCCL_TOPO_PATTERN_*

_LINE = re.compile(
    r"(?:\[\d+,\d+\]<\w+>:\s?|\d+: )?(?:\[[^\]]{0,40}\] )?(\S{1,255}?):(\d+):(\d+) \[-?\d+\] (?:\S+:\d+ )?"
    r"(?:\([^)]{0,80}\) )?NCCL (INFO|WARN) (.*)"
)
_VERSION = re.compile(r"NCCL version (\d+\.\d+\.\d+)\S*$")
_NAMED = re.compile(r"NCCL version (\d{1,4}\.\d{1,4}\.\d{1,4})")
# What is read as a number has at most nine digits: int() refuses thousands.
_READY = re.compile(r"comm 0x[0-9a-f]+ rank (\d{1,9}) n[rR]anks (\d{1,9}) .*- Init COMPLETE$")
_JOINED = re.compile(
    r"Channel (\d{1,9})(?:/(\d{1,9}))? : (\d{1,9})\[[0-9a-f]+\] -> (\d{1,9})\[[0-9a-f]+\] "
    r"(?:\[(send|receive)\] )?via (\S.*)$"
)
_ROAD = re.compile(
    r"(P2P)/((?:IPC|CUMEM|MNNVL|direct pointer|indirect/\d+\[[0-9a-f]+\])(?:/read)?(?:/CE)?)$"
    r"|(SHM)/((?:direct|CE)(?:/(?:direct|CE))?)$|(NET)/(.+)$"
)
_NET = re.compile(r"([A-Za-z][\w .-]*?)/(\d{1,9})(?:\(\d+\))?(/GDRDMA(?:\(PCI\))?)?(?:/Shared)?$", re.ASCII)
_COLLNET = re.compile(
    r"CollNet \d+/\d+ : (\d{1,9}) \[(send|receive)\] via COLLNET/(\S.*?)/(\d+)(/GDRDMA)?(?:\(PCI\))?$"
)
_RING = re.compile(r"Channel (\d{1,9})/(\d{1,9}) :((?: +\d{1,9})+)( *\.\.\.)?$")
_TREES = re.compile(r"Trees((?: \[\d{1,9}\] (?:-?\d{1,9}/){2}-?\d{1,9}->\d{1,9}->-?\d{1,9})+)$")
_TREE = re.compile(r"\[(\d{1,9})\] (-?\d{1,9})/(-?\d{1,9})/(-?\d{1,9})->(\d{1,9})->(-?\d{1,9})")
_ADAPTERS = re.compile(r"NET/IB : Using (.*?)(?:; OOB (\S+?):.*)?$")
RELAXED_ORDERING = "[RO]"
# NCCL formats a line into 1024 bytes (debug.cc): trees of 64 channels are cut, perhaps within a number.
CUT_AT = 1023
_ADAPTER = re.compile(r"([A-Za-z][\w.-]{0,63}):(\d{1,5})/(IB|RoCE)")
_SOCKETS = re.compile(r"NET/Socket : Using (.*)$")
_SOCKET = re.compile(r"\[\d{1,5}\]([^\s:]{1,64}):")
_NETWORK = re.compile(r"Using network (\S.*)$")
_GDR = re.compile(r"NET/.{0,100}GPU Direct RDMA (?:\S+ )?(Enabled|Disabled) for HCA \d+ '([^']+)'")
_PATTERN = re.compile(
    r"Pattern (\d{1,9}), crossNic \d+, nChannels \d+, bw [\d./]+, type (\w+)/(\w+), sameChannels \d"
)
_SET = re.compile(r"(NCCL_\w{1,100}) set by environment to (.*?)\.?$")
_CONNECTED = re.compile(r"Connected all (rings|trees)")


@dataclass(frozen=True, order=True)
class Joined:
    """How one rank reaches another on one channel: ``road`` is P2P, SHM or NET; ``how`` is the rest.

    For NET, ``how`` is the network's name, ``adapter`` its number in NCCL's list, ``gpudirect`` whether the
    adapter reads the GPU's memory by itself, and ``side`` is send or receive.
    """

    channel: int
    sender: int
    receiver: int
    road: str
    how: str
    side: str = ""
    adapter: int = -1
    gpudirect: bool = False


@dataclass
class NcclLog:
    """The whole group. ``hosts`` is the host of each rank, in order; what is by host is by its name.

    ``joined`` are the connections; ``adapters`` (in NCCL's order) and ``sockets`` are what NCCL found to talk
    over, ``gpudirect`` whether an adapter may read GPU memory, ``patterns`` the kind of graph with its worst
    path within a node and between nodes, ``connected`` rings and trees where all of them are, ``collnet`` the
    ranks that a switch reduces for, by which network, and whether with GPUDirect.
    """

    version: str = ""
    hosts: tuple[str, ...] = ()
    joined: tuple[Joined, ...] = ()
    networks: set[str] = field(default_factory=set)
    adapters: dict[str, tuple[str, ...]] = field(default_factory=dict)
    sockets: dict[str, frozenset[str]] = field(default_factory=dict)
    gpudirect: dict[tuple[str, str], bool] = field(default_factory=dict)
    dma_buf: set[str] = field(default_factory=set)
    no_adapter: set[str] = field(default_factory=set)
    nvls: set[str] = field(default_factory=set)
    collnet: set[tuple[int, str, bool]] = field(default_factory=set)
    connected: set[str] = field(default_factory=set)
    patterns: dict[str, set[tuple[int, str, str]]] = field(default_factory=dict)
    environment: dict[str, set[str]] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    def crosses(self, joined: Joined) -> bool:
        """Whether the two ranks are on two hosts."""
        return self.hosts[joined.sender] != self.hosts[joined.receiver]

    def speaker(self, joined: Joined) -> str:
        """The host whose end of the connection this is."""
        return self.hosts[joined.receiver if joined.side == "receive" else joined.sender]

    def adapter(self, joined: Joined) -> str:
        """The adapter's name; empty where NCCL made it of several, or talks over none."""
        names = self.adapters.get(self.speaker(joined), ())
        return names[joined.adapter] if joined.how != "Socket" and 0 <= joined.adapter < len(names) else ""


@dataclass
class _Heard:
    """What the lines said, before it is known whether they are all there."""

    log: NcclLog = field(default_factory=NcclLog)
    ready: dict[int, str] = field(default_factory=dict)
    joined: dict[tuple[int, int, int, int, str], Joined] = field(default_factory=dict)
    rings: dict[int, tuple[int, ...]] = field(default_factory=dict)
    trees: dict[tuple[int, int], tuple[int, ...]] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)


def named_version(text: str) -> str | None:
    """The version that a log of one rank names; the first rank of each node says it near the start."""
    match = _NAMED.search(text, 0, 1 << 20)
    return match[1] if match else None


def parse_nccl_log(text: str, ranks: int) -> NcclLog:
    """Read what all ``ranks`` ranks of one group said, one log after another or mixed.

    Raises CannotReadError where a rank never got ready, a connection is missing or of unknown kind, lines run
    into each other, or ranks contradict each other.
    """
    return _whole(_hear_all(text, ranks), ranks)


def parse_nccl_log_of(text: str, hosts: tuple[str, ...], ranks: Sequence[int]) -> NcclLog:
    """Read what these ranks, all of one host, said, by the host of each rank: their ends of connections, and
    nothing that they say of other ranks. ``version`` is empty where none of them names it.

    Raises CannotReadError as `parse_nccl_log` does.
    """
    return _of_host(_hear_all(text, len(hosts)), hosts, ranks)


def _hear_all(text: str, ranks: int) -> _Heard:
    if len(text) > LARGEST:
        raise CannotReadError(f"NCCL's log is {len(text)} characters long")
    heard = _Heard()
    for line in readable(text, "NCCL").splitlines():
        if "NCCL version" in line and (version := _VERSION.search(line[-200:])):
            _say_once(heard, version[1])
        elif "NCCL INFO" in line or "NCCL WARN" in line:
            match = _LINE.fullmatch(line.rstrip()) if len(line) <= LONGEST_LINE else None
            if match is None or line.count(" NCCL ") > 1:
                raise CannotReadError(f"NCCL's log has lines that run into each other: {line[:120]!r}")
            host, level, message = match[1], match[4], match[5]
            if len(line.rstrip()) >= CUT_AT and message.startswith("Trees ["):
                message = message.rpartition(" [")[0]
            if level == "WARN":
                heard.warnings.append(f"{host}: {message}"[:300])
            else:
                _hear(host, message, heard, ranks)
    return heard


def _say_once(heard: _Heard, version: str) -> None:
    if heard.log.version not in ("", version):
        raise CannotReadError(f"ranks run two versions of NCCL, {heard.log.version} and {version}")
    heard.log.version = version


def _hear(host: str, message: str, heard: _Heard, ranks: int) -> None:
    for pattern, word, reader in _READERS:
        if word in message:
            if match := pattern.search(message):
                reader(match, host, heard, ranks)
                return
            if pattern in (_COLLNET, _JOINED, _READY, _TREES, _GDR, _PATTERN):
                raise CannotReadError(f"NCCL says in an unknown form: {message[:120]!r}")


def _ready(match: re.Match[str], host: str, heard: _Heard, ranks: int) -> None:
    rank, of_ranks = int(match[1]), int(match[2])
    if of_ranks != ranks:
        raise CannotReadError(f"NCCL's log is of a group of {of_ranks} ranks, not of {ranks}")
    if rank >= ranks or heard.ready.setdefault(rank, host) != host:
        raise CannotReadError(f"NCCL's log has rank {rank} on two hosts, or beyond {ranks}")


def _joined(match: re.Match[str], host: str, heard: _Heard, ranks: int) -> None:
    channel, sender, receiver, side = int(match[1]), int(match[3]), int(match[4]), match[5] or ""
    said_road = _ROAD.match(match[6])
    road, how = [part for part in said_road.groups() if part] if said_road else ("", "")
    net = _NET.fullmatch(how) if road == "NET" else None
    if not road or (road == "NET") != (net is not None) or bool(net) != bool(side):
        raise CannotReadError(f"NCCL joins ranks by an unknown road: {match[6][:60]!r}")
    if sender >= ranks or receiver >= ranks or sender == receiver:
        raise CannotReadError(f"NCCL joins rank {sender} and rank {receiver} in a group of {ranks}")
    answer = Joined(
        channel,
        sender,
        receiver,
        road,
        net[1] if net else how,
        side,
        int(net[2]) if net else -1,
        bool(net and net[3]),
    )
    key = (channel, int(match[2] or 0), sender, receiver, side)
    if heard.joined.setdefault(key, answer) != answer:
        raise CannotReadError(
            f"NCCL joins rank {sender} and rank {receiver} in two ways on channel {channel}"
        )


def _collnet(match: re.Match[str], host: str, heard: _Heard, ranks: int) -> None:
    """To the switch that reduces by itself, and from it."""
    heard.log.collnet.add((int(match[1]), match[3], match[5] is not None))


def _ring(match: re.Match[str], host: str, heard: _Heard, ranks: int) -> None:
    """NCCL truncates long rings, perhaps within a number."""
    order = tuple(int(rank) for rank in match[3].split())
    cut = match[4] is not None or len(order) < ranks
    ring = order[:-1] if cut else (*order, order[0])
    if heard.rings.setdefault(int(match[1]), ring) != ring:
        raise CannotReadError(f"NCCL's log has two rings of channel {match[1]}")


def _trees(match: re.Match[str], host: str, heard: _Heard, ranks: int) -> None:
    for tree in _TREE.finditer(match[1]):
        channel, *down, rank, up = (int(number) for number in tree.groups())
        neighbours = tuple(sorted(n for n in (*down, up) if n >= 0))
        if heard.trees.setdefault((channel, rank), neighbours) != neighbours:
            raise CannotReadError(f"NCCL says twice where rank {rank} is in its tree")


def _adapters(match: re.Match[str], host: str, heard: _Heard, ranks: int) -> None:
    if match[1].strip() in ("", RELAXED_ORDERING) and host not in heard.log.adapters:
        return  # NCCL 2.28 says so after "No device found"
    names = tuple(name for name, _, _ in _ADAPTER.findall(match[1]))
    if not names or heard.log.adapters.setdefault(host, names) != names:
        raise CannotReadError(f"NCCL says in two ways which adapters {host} has")


def _sockets(match: re.Match[str], host: str, heard: _Heard, ranks: int) -> None:
    names = frozenset(_SOCKET.findall(match[1]))
    if not names or heard.log.sockets.setdefault(host, names) != names:
        raise CannotReadError(f"NCCL says in two ways which interfaces {host} has")


def _network(match: re.Match[str], host: str, heard: _Heard, ranks: int) -> None:
    heard.log.networks.add(match[1].strip())


def _gpudirect(match: re.Match[str], host: str, heard: _Heard, ranks: int) -> None:
    on = match[1] == "Enabled"
    heard.log.gpudirect[host, match[2]] = on and heard.log.gpudirect.get((host, match[2]), True)


def _pattern(match: re.Match[str], host: str, heard: _Heard, ranks: int) -> None:
    heard.log.patterns.setdefault(host, set()).add((int(match[1]), match[2], match[3]))


def _dma_buf(match: re.Match[str], host: str, heard: _Heard, ranks: int) -> None:
    heard.log.dma_buf.add(host)


def _no_adapter(match: re.Match[str], host: str, heard: _Heard, ranks: int) -> None:
    heard.log.no_adapter.add(host)


def _nvls(match: re.Match[str], host: str, heard: _Heard, ranks: int) -> None:
    heard.log.nvls.add(host)


def _set(match: re.Match[str], host: str, heard: _Heard, ranks: int) -> None:
    heard.log.environment.setdefault(match[1], set()).add(match[2].strip()[:120])


def _connected(match: re.Match[str], host: str, heard: _Heard, ranks: int) -> None:
    heard.log.connected.add(match[1])


_Reader = Callable[[re.Match[str], str, _Heard, int], None]
_READERS: tuple[tuple[re.Pattern[str], str, _Reader], ...] = (
    (_READY, "Init COMPLETE", _ready),
    (_COLLNET, "via COLLNET/", _collnet),
    (_JOINED, "] via ", _joined),
    (_RING, "Channel ", _ring),
    (_TREES, "Trees [", _trees),
    (_ADAPTERS, "NET/IB : Using", _adapters),
    (_SOCKETS, "NET/Socket : Using", _sockets),
    (_NETWORK, "Using network", _network),
    (_GDR, "GPU Direct RDMA", _gpudirect),
    (_PATTERN, "crossNic", _pattern),
    (re.compile("DMA-BUF is available"), "DMA-BUF is available", _dma_buf),
    (re.compile("NET/IB : No device found"), "NET/IB : No device found", _no_adapter),
    (re.compile("NVLS multicast support is available"), "NVLS multicast support", _nvls),
    (_SET, "set by environment", _set),
    (_CONNECTED, "Connected all", _connected),
)


def _whole(heard: _Heard, ranks: int) -> NcclLog:
    missing = [rank for rank in range(ranks) if rank not in heard.ready]
    if missing:
        raise CannotReadError(f"NCCL's log does not show that rank {missing[0]} got ready")
    if not heard.log.version:
        raise CannotReadError("NCCL's log names no version")
    heard.log.hosts = tuple(heard.ready[rank] for rank in range(ranks))
    heard.log.joined = tuple(sorted(heard.joined.values()))
    heard.log.warnings = tuple(dict.fromkeys(heard.warnings))
    if ranks > 1 and not heard.joined:
        raise CannotReadError("NCCL's log shows no connection; let the group do one collective operation")
    there = {(key[0], *key[2:]) for key in heard.joined}
    for channel, sender, receiver in sorted(_expected(heard)):
        if not {(channel, sender, receiver, ""), (channel, sender, receiver, "send")} & there:
            raise CannotReadError(f"NCCL's log lacks how rank {sender} reaches rank {receiver}")
    for channel, sender, receiver, side in sorted(there):
        other = {"send": "receive", "receive": "send"}.get(side, side)
        if (channel, sender, receiver, other) not in there:
            raise CannotReadError(f"NCCL's log has but one end between rank {sender} and rank {receiver}")
    return heard.log


def _of_host(heard: _Heard, hosts: tuple[str, ...], ranks: Sequence[int]) -> NcclLog:
    if missing := [rank for rank in ranks if rank not in heard.ready]:
        raise CannotReadError(f"NCCL's log does not show that rank {missing[0]} got ready")
    heard.log.hosts, mine = hosts, hosts[ranks[0]]
    heard.log.joined = tuple(
        joined for joined in sorted(heard.joined.values()) if heard.log.speaker(joined) == mine
    )
    heard.log.warnings = tuple(dict.fromkeys(heard.warnings))
    if not heard.log.joined:
        raise CannotReadError("NCCL's log shows no connection; let the group do one collective operation")
    there = {(joined.channel, joined.sender, joined.receiver, joined.side) for joined in heard.log.joined}
    for channel, sender, receiver in sorted(_expected(heard)):
        if (
            sender in ranks
            and not {(channel, sender, receiver, ""), (channel, sender, receiver, "send")} & there
        ):
            raise CannotReadError(f"NCCL's log lacks how rank {sender} reaches rank {receiver}")
    for channel, sender, receiver, side in sorted(there):
        other = {"send": "receive", "receive": "send"}.get(side, side)
        if {sender, receiver} <= {*ranks} and (channel, sender, receiver, other) not in there:
            raise CannotReadError(f"NCCL's log has but one end between rank {sender} and rank {receiver}")
    return heard.log


def _expected(heard: _Heard) -> set[tuple[int, int, int]]:
    """Every step of the rings and trees that NCCL says are connected."""
    steps: set[tuple[int, int, int]] = set()
    if "rings" in heard.log.connected:
        for channel, order in heard.rings.items():
            steps |= {(channel, a, b) for a, b in pairwise(order) if a != b}
    if "trees" in heard.log.connected:
        for (channel, rank), neighbours in heard.trees.items():
            steps |= {step for n in neighbours for step in ((channel, rank, n), (channel, n, rank))}
    return steps
