"""What nccl-tests and NCCL say on a healthy node whose GPUs are joined by its two rails of HDR alone.

The table is that of samples/nccl_tests.py, the log in the words of NCCL 2.22 as samples/nccl.py has them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from clustercheck.parse.python39 import pairwise
from clustercheck.samples.nccl_tests import table

SIZE_BYTES = 1 << 30
GPUS = 8
BUSBW_GBPS = 5.2  # of the 6.25 that are a GPU's part of two ports of 25


def loopback_run(node: str, busbw: float, wrong: int = 0, gpus: int = GPUS) -> dict[str, Any]:
    """The run of all_reduce_perf, of one size."""
    return {
        "exit_code": 0, "limit_s": 60.0, "json": "", "command": f"all_reduce_perf -g {gpus}",
        "text": table("all_reduce", [node], gpus, busbw, wrong, sizes=(SIZE_BYTES, SIZE_BYTES), curve={}),
    }  # fmt: skip


def loopback_log(node: str, road: str = "", gpus: int = GPUS, rails: int = 2) -> str:
    """NCCL's log of the process that has all GPUs: joined by ``road``, else by the rail that is near."""
    ring = (*range(gpus), 0)
    said = [(0, "NCCL version 2.22.3+cuda12.5")]
    for rank in range(gpus):
        said.append((rank, "Using network IB"))
        said.append((rank, f"Trees [0] {rank + 1 if rank < gpus - 1 else -1}/-1/-1->{rank}->{rank - 1}"))
    said.append((0, f"Channel 00/01 : {' '.join(f'{rank:3}' for rank in ring[:-1])}"))
    joins = {*pairwise(ring), *((b, a) for a, b in pairwise(ring[:-1]))}
    for one, other in sorted(joins):
        ends = f"Channel 00/0 : {one}[{one}] -> {other}[{other}]"
        near = road or f"NET/IB/{rails * one // gpus}/GDRDMA"
        sides = ((one, "[send] "), (other, "[receive] ")) if near.startswith("NET/") else ((one, ""),)
        said += [(rank, f"{ends} {side}via {near}") for rank, side in sides]
    for rank in range(gpus):
        comm = f"ncclCommInitRank comm 0x{rank + 1:x} rank {rank} nranks {gpus} cudaDev {rank}"
        said += [(rank, "Connected all rings"), (rank, "Connected all trees")]
        said.append((rank, f"{comm} busId 7000 commId 0x1 - Init COMPLETE"))
    return "".join(f"{node}:4100:{4200 + rank} [{rank}] NCCL INFO {line}\n" for rank, line in said)


def loopback_verdict(
    rank: int, nodes: Sequence[str], busbw: float = BUSBW_GBPS, gpus: int = GPUS, rails: int = 2
) -> Mapping[str, Any]:
    """What a node's rank says."""
    return {
        "rank": rank, "world": len(nodes), "interface": "eth0", "simulated": False, "ok": True, "because": "",
        "without": "", "gpus": gpus, "run": loopback_run(nodes[rank], busbw, gpus=gpus),
        "nccl_log": loopback_log(nodes[rank], gpus=gpus, rails=rails),
    }  # fmt: skip
