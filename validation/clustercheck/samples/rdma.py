"""What ib_write_bw prints on healthy ports, in the words of perftest's src/perftest_parameters.c."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from clustercheck.jobs.rdma_write import SIZE_BYTES
from clustercheck.locate.rounds import both_ways, round_robin
from clustercheck.samples.links import RDMA, RdmaPort

PART = {True: 0.975, False: 0.983}  # of the rate, with another node: of RoCE, and of InfiniBand
WITH_ITSELF = 0.965  # of what it reaches with another [superbench-results v0.4.0: 23.7 GB/s of HDR]
LINE = "-" * 87


def gbps_of(port: RdmaPort) -> float:
    """What it reaches with another node, Gb/s."""
    return float(port.rate.split()[0]) * PART[port.ethernet]


GBPS = {port.name: gbps_of(port) for port in RDMA}


def gpu_text(device: str, gbps: float, gpu: int) -> str:
    """The client's output where it sends a GPU's memory, in the words of src/cuda_memory.c."""
    said = [
        "initializing CUDA", "Listing all CUDA devices in system:", "",
        f"Picking device No. {gpu}",
        "[pid = 69, dev = 0] device name = [NVIDIA A100-SXM4-80GB]", "creating CUDA Ctx",
        "making it the current CUDA Ctx", f"cuMemAlloc() of a {2 * SIZE_BYTES} bytes GPU buffer",
        "allocated GPU buffer address at 00007f2418000000 pointer=0x7f2418000000",
    ]  # fmt: skip
    return "\n".join([*said, write_text(device, gbps)])


def gpudirect_verdict(
    rank: int, nodes: Sequence[str], gpus: int = 8, ports: Sequence[RdmaPort] = RDMA
) -> Mapping[str, Any]:
    """What a node's rank says: as many GPUs next to each rail of InfiniBand."""
    rails = [port for port in ports if not port.ethernet]
    near = [rails[len(rails) * gpu // gpus] for gpu in range(gpus)]
    writes = [
        {
            "device": port.name, "port": 1, "unpinned": "", "exit_code": 0, "gpu": gpu,
            "way": "nvidia_peermem", "text": gpu_text(port.name, 0.98 * gbps_of(port), gpu),
        }
        for gpu, port in enumerate(near)
    ]  # fmt: skip
    return {
        "rank": rank, "world": len(nodes), "interface": "eth0", "simulated": False, "ok": True, "because": "",
        "without": "", "unable": "", "writes": writes,
    }  # fmt: skip


def write_text(device: str, gbps: float) -> str:
    """The client's output."""
    link = "Ethernet" if device == "mlx5_2" else "IB"
    rate = gbps / 8e-3 / SIZE_BYTES
    return "\n".join(
        [
            LINE, "                    RDMA_Write BW Test",
            f" Dual-port       : OFF\t\tDevice         : {device}",
            " Number of qps   : 1\t\tTransport type : IB", " Mtu             : 4096[B]",
            f" Link type       : {link}", LINE,
            " #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]",
            f" {SIZE_BYTES}    1000             {rate * SIZE_BYTES * 8e-3:.2f}             "
            f"{rate * SIZE_BYTES * 8e-3:.2f}\t\t     {rate:.6f}",
            LINE, "",
        ]
    )  # fmt: skip


@lru_cache(maxsize=8)
def _rounds(count: int, limit: int | None) -> list[list[tuple[int, int]]]:
    return both_ways(round_robin(count, limit))


def rdma_write_verdict(
    rank: int, nodes: Sequence[str], rounds: int | None = None, ports: Sequence[RdmaPort] = RDMA
) -> Mapping[str, Any]:
    """What a node's rank says: each port with itself, and its end of every pair of so many rounds."""
    writes = [
        {
            "device": port.name, "port": 1, "unpinned": "", "exit_code": 0,
            "text": write_text(port.name, gbps_of(port)),
            "rail": rail, "round": number, "role": "client" if rank == pair[0] else "server",
            "peer": pair[1] if rank == pair[0] else pair[0],
        }
        for number, pairs in enumerate(_rounds(len(nodes), rounds))
        for pair in pairs
        if rank in pair
        for rail, port in enumerate(ports)
    ]  # fmt: skip
    loopback = [
        {
            "device": port.name, "port": 1, "unpinned": "", "exit_code": 0,
            "text": write_text(port.name, WITH_ITSELF * gbps_of(port)),
        }
        for port in ports
    ]  # fmt: skip
    return {
        "rank": rank, "world": len(nodes), "interface": "eth0", "simulated": False, "ok": True, "because": "",
        "without": "", "loopback": loopback, "writes": writes,
    }  # fmt: skip
