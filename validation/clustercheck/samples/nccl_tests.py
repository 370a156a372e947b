"""What nccl-tests prints on a healthy group: the table of one program, as version 2.18 writes it.

Made up in the words of its src/util.cu and src/common.cu; bandwidths rise with the size as on 8 x A100 SXM.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from clustercheck.parse.nccl_tests import COLLECTIVES

LEAST, MOST = 8 << 20, 4 << 30
WITHIN_GBPS, ACROSS_GBPS = 236.0, 45.0
OF_A_SIZE = {8 << 20: 0.46, 16 << 20: 0.48, 32 << 20: 0.6, 64 << 20: 0.75, 128 << 20: 0.8, 256 << 20: 0.85,
             512 << 20: 0.95, 1 << 30: 0.98}  # fmt: skip


def table(
    program: str,
    nodes: Sequence[str],
    gpus: int,
    gbps: float,
    wrong: int = 0,
    *,
    sizes: tuple[int, int] = (LEAST, MOST),
    curve: Mapping[int, float] = OF_A_SIZE,
) -> str:
    """The output of one program over these nodes' GPUs, from the first to the last of ``sizes``.

    ``gbps`` is the largest size's bus bandwidth, ``curve`` what part of it other sizes have: all of it where
    they are not named.
    """
    (least, most), ranks = sizes, len(nodes) * gpus
    a_process = gpus if len(nodes) == 1 else 1
    lines = [
        f"# nThread 1 nGpus {a_process} minBytes {least} maxBytes {most} step: 2(factor) warmup iters: 5 "
        "iters: 20 agg iters: 1 validation: 1 graph: 0",
        "#",
        "# Using devices",
    ]
    for rank in range(ranks):
        node, gpu = nodes[rank // gpus], rank % gpus
        lines.append(
            f"#  Rank {rank:2} Group  0 Pid {1000 + rank} on {node} device {gpu} [0x07] A100-SXM4-80GB"
        )
    half = "time   algbw   busbw #wrong"
    lines += ["#", f"#       size         count      type   redop    root     {half}     {half}"]
    factor, of_one_rank = COLLECTIVES[program]
    size, busbws = least, []
    while size <= most:
        count = size // 4 // (ranks if of_one_rank else 1)
        exact = count * 4 * (ranks if of_one_rank else 1)
        time_us = round(exact * factor(ranks) / (gbps * curve.get(size, 1.0) * 1e3), 2)
        algbw = exact / time_us / 1e3
        busbws.append(round(algbw * factor(ranks), 2))
        timing = f"{time_us:.2f} {algbw:.2f} {algbw * factor(ranks):.2f}"
        in_place = "N/A" if program == "alltoall" else str(wrong)
        lines.append(f"{exact:12} {count:12} float none -1 {timing} {wrong} {timing} {in_place}")
        size *= 2
    bounds = f"{wrong} FAILED" if wrong else "0 OK"
    lines += [
        f"# Out of bounds values : {bounds}",
        f"# Avg bus bandwidth    : {sum(busbws) / len(busbws):.4f}",
    ]
    return "\n".join([*lines, "#", ""])


def program_run(
    program: str,
    nodes: Sequence[str],
    gpus: int,
    gbps: float,
    *,
    sizes: tuple[int, int] = (LEAST, MOST),
    curve: Mapping[int, float] = OF_A_SIZE,
) -> dict[str, Any]:
    """One program's run, as the job hands it over."""
    return {
        "exit_code": 0, "limit_s": 60.0, "text": table(program, nodes, gpus, gbps, sizes=sizes, curve=curve),
        "json": "", "command": f"{program}_perf -g {gpus}",
    }  # fmt: skip


PROGRAMS = tuple(name for name in COLLECTIVES if name != "sendrecv")


def nccl_tests_verdict(rank: int, nodes: Sequence[str], gpus: int = 8) -> Mapping[str, Any]:
    """What a node's rank says of all programs."""
    within = {name: program_run(name, [nodes[rank]], gpus, WITHIN_GBPS) for name in PROGRAMS}
    all_to_all = ACROSS_GBPS / gpus
    across = {
        name: program_run(name, nodes, gpus, all_to_all if name == "alltoall" else ACROSS_GBPS)
        for name in PROGRAMS
    }
    return programs_verdict(rank, nodes, gpus, within, {} if rank else across)


def programs_verdict(
    rank: int, nodes: Sequence[str], gpus: int, within: Mapping[str, Any], across: Mapping[str, Any]
) -> Mapping[str, Any]:
    """The same of these runs, by program."""
    return {
        "rank": rank, "world": len(nodes), "interface": "eth0", "simulated": False, "ok": True, "because": "",
        "without": "", "without_mpi": "", "gpus": gpus, "world_gpus": gpus * len(nodes),
        "within": dict(within), "across": dict(across),
    }  # fmt: skip
