"""What NCCL says on every rank of a healthy group: NVLink within nodes, two channels, each with its rail.

Made up in the words of NCCL 2.22 (src/init.cc, src/graph, src/transport).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from clustercheck.parse.python39 import pairwise

GPUS = 8
SHOWN = 20  # ranks of a ring that NCCL prints [NCCL, src/graph/rings.cc, MAXWIDTH]
HEADS = (0, 4)  # of each channel: the GPU next to its rail, where data leaves a node
ADAPTERS = "[0]mlx5_0:1/IB [1]mlx5_1:1/IB [2]mlx5_2:1/RoCE"


@dataclass(frozen=True)
class NcclPaths:
    """How NCCL joins the GPUs of a group: a channel for each of ``heads``, the GPU where data leaves a node.

    ``across`` has a place for the channel's number. ``found`` is what NCCL says of adapters and networks.
    """

    gpus: int = GPUS
    heads: tuple[int, ...] = HEADS
    within: str = "P2P/CUMEM/read"
    across: str = "NET/IB/{}/GDRDMA"
    found: tuple[str, ...] = (
        f"NET/IB : Using {ADAPTERS} [RO]; OOB eth0:192.0.2.1<0>",
        "Using network IB",
        "NET/IB : GPU Direct RDMA Enabled for HCA 0 'mlx5_0'",
    )
    path_types: str = "NVL/PXB"


@dataclass(frozen=True)
class _Channel:
    """A ring and a tree, whose edges are (down, up)."""

    number: int
    ring: tuple[int, ...]
    tree: frozenset[tuple[int, int]]

    @cached_property
    def joins(self) -> Mapping[int, Sequence[tuple[int, int]]]:
        """(sender, receiver) of every connection, by either end."""
        found: dict[int, list[tuple[int, int]]] = defaultdict(list)
        around = pairwise((*self.ring, self.ring[0]))
        for join in sorted({*around, *self.tree, *((up, down) for down, up in self.tree)}):
            for end in set(join):
                found[end].append(join)
        return found

    @cached_property
    def _ups(self) -> Mapping[int, int]:
        return dict(self.tree)

    @cached_property
    def _downs(self) -> Mapping[int, Sequence[int]]:
        found: dict[int, list[int]] = defaultdict(list)
        for below, above in sorted(self.tree):
            found[above].append(below)
        return found

    def place(self, rank: int) -> str:
        """A rank's neighbours in the tree, as NCCL writes them."""
        down, up = self._downs.get(rank, ()), self._ups.get(rank, -1)
        return f"[{self.number}] {'/'.join(map(str, [*down, -1, -1, -1][:3]))}->{rank}->{up}"


def nccl_logs(nodes: Sequence[str], paths: NcclPaths = NcclPaths()) -> list[str]:
    """The log of each rank, a rank a GPU."""
    channels = [_channel(number, head, len(nodes), paths.gpus) for number, head in enumerate(paths.heads)]
    return [_log(rank, nodes, channels, paths) for rank in range(len(nodes) * paths.gpus)]


def _channel(number: int, head: int, nodes: int, gpus: int) -> _Channel:
    """In each node a chain from its head, which hangs on the head of the node before."""
    chains = [[node * gpus + (head + step) % gpus for step in range(gpus)] for node in range(nodes)]
    within = {(below, above) for chain in chains for above, below in pairwise(chain)}
    across = {(below[0], above[0]) for above, below in pairwise(chains)}
    return _Channel(number, tuple(rank for chain in chains for rank in chain), frozenset(within | across))


def _log(rank: int, nodes: Sequence[str], channels: Sequence[_Channel], paths: NcclPaths) -> str:
    gpus, count = paths.gpus, len(channels)
    node, gpu = nodes[rank // gpus], rank % gpus
    lines = [
        *paths.found,
        f"DMA-BUF is available on GPU device {gpu}",
        f"Pattern 4, crossNic 0, nChannels {count}, bw 24.000000/24.000000, type {paths.path_types}, "
        "sameChannels 0",
    ]
    if gpu == 0:
        lines.insert(0, "NCCL version 2.22.3+cuda12.5")
    if rank == 0:
        lines += [
            f"Channel {c.number:02}/{count:02} : {' '.join(f'{r:3}' for r in c.ring[:SHOWN])}"
            for c in channels
        ]
    lines.append(f"Trees {' '.join(channel.place(rank) for channel in channels)}")
    for channel in channels:
        for sender, receiver in channel.joins[rank]:
            ends = (
                f"Channel {channel.number:02}/0 : {sender}[{sender % gpus}] -> {receiver}[{receiver % gpus}]"
            )
            crosses = sender // gpus != receiver // gpus
            path = paths.across.format(channel.number) if crosses else paths.within
            if path.startswith("NET/"):
                side = "send" if rank == sender else "receive"
                lines.append(f"{ends} [{side}] via {path}")
            elif rank == sender:
                lines.append(f"{ends} via {path}")
    comm = f"ncclCommInitRank comm 0x{rank + 1:x} rank {rank} nranks {len(nodes) * gpus} cudaDev {gpu}"
    lines += ["Connected all rings", "Connected all trees", f"{comm} busId 7000 commId 0x1 - Init COMPLETE"]
    return "".join(f"{node}:{4100 + rank}:{4200 + rank} [{gpu}] NCCL INFO {line}\n" for line in lines)
