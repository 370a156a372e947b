"""What NCCL's log shows to be slower than it need be, with the remedy."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from clustercheck.parse.nccl_log import RING, Joined, NcclLog


@dataclass(frozen=True)
class Finding:
    """One thing that is not as it should be: a stable ``code``, what is seen where, and what to do."""

    code: str
    hosts: tuple[str, ...]
    seen: str
    remedy: str


REMEDIES = {
    "sockets": (
        "Give the container /dev/infiniband, unlimited memlock and libibverbs; unset NCCL_IB_DISABLE "
        "and name working adapters in NCCL_IB_HCA."
    ),
    "adapters-unused": (
        "Name all adapters of the training network in NCCL_IB_HCA, or leave it unset; look at the "
        "state of the ports that are missing."
    ),
    "adapters-foreign": (
        "Take adapters that are no part of the training network out of NCCL_IB_HCA (for example "
        "NCCL_IB_HCA=^mlx5_bond_0)."
    ),
    "shared-memory": (
        "Unset NCCL_P2P_DISABLE and NCCL_P2P_LEVEL; look at `nvidia-smi topo -p2p r`, at ACS and "
        "IOMMU (off for GPUs without NVLink), and that one container sees all GPUs of the node."
    ),
    "network-within-node": (
        "Unset NCCL_P2P_DISABLE and NCCL_SHM_DISABLE, and give the container a /dev/shm of 1 GiB or "
        "more: ranks of one node should not talk over the network."
    ),
    "gpudirect-off": (
        "Load nvidia_peermem (modprobe nvidia_peermem), or use the driver's open kernel modules with "
        "a kernel from 5.12 for DMA-BUF; unset NCCL_NET_GDR_LEVEL and NCCL_NET_GDR_DISABLE."
    ),
    "ring-over-sys": (
        "Data between GPUs of a node crosses the processors' link: look at NVLink and Fabric Manager "
        "first, then at NUMA settings and that every GPU of the node takes part."
    ),
    "warnings": ("Look at the first warning: NCCL goes on after most, by a slower road."),
}


def findings(
    log: NcclLog, adapters: Mapping[str, Collection[str]], *, gpus_reach_each_other: bool
) -> tuple[Finding, ...]:
    """What is wrong, worst first; none where all is well.

    ``adapters`` are those of the training network with an active port, by host; ``gpus_reach_each_other``
    says whether GPUs of a node have NVLink or peer-to-peer access over PCIe.
    """
    across = [joined for joined in log.joined if log.crosses(joined)]
    within = [joined for joined in log.joined if not log.crosses(joined)]
    found = [
        _of_connections(
            "sockets",
            [j for j in across if j.how == "Socket" and any(adapters.get(host) for host in _ends(log, j))],
            log,
            "nodes talk over TCP sockets though they have active adapters",
        ),
        _of_connections(
            "gpudirect-off",
            [j for j in across if j.how != "Socket" and not j.gpudirect],
            log,
            "adapters do not read GPU memory by themselves (no GDRDMA)",
        ),
        _of_connections(
            "network-within-node",
            [j for j in within if j.road == "NET"],
            log,
            "GPUs of one node talk over the network",
        ),
    ]
    if gpus_reach_each_other:
        found.append(
            _of_connections(
                "shared-memory",
                [j for j in within if j.road == "SHM"],
                log,
                "GPUs of one node talk through host memory",
            )
        )
        slow = sorted(intra for pattern, intra, _ in log.patterns if pattern == RING and intra == "SYS")
        found.append(
            _finding("ring-over-sys", sorted(set(log.hosts)), "rings go over SYS within a node", log)
            if slow
            else None
        )
    found += [_of_adapters(log, adapters, code) for code in ("adapters-unused", "adapters-foreign")]
    if log.warnings:
        hosts = sorted({warning.partition(": ")[0] for warning in log.warnings})
        found.append(_finding("warnings", hosts, f"NCCL warned: {log.warnings[0]}", log))
    return tuple(finding for finding in found if finding is not None)


def _of_connections(code: str, joined: list[Joined], log: NcclLog, seen: str) -> Finding | None:
    if not joined:
        return None
    pairs = sorted({(j.sender, j.receiver) for j in joined})
    some = ", ".join(f"{a} -> {b}" for a, b in pairs[:4])
    more = f" and {len(pairs) - 4} more" if len(pairs) > 4 else ""
    hosts = sorted({host for j in joined for host in _ends(log, j)})
    return _finding(code, hosts, f"{seen}: ranks {some}{more}", log)


def _of_adapters(log: NcclLog, adapters: Mapping[str, Collection[str]], code: str) -> Finding | None:
    """What NCCL uses and what is there, by host; sockets are found by their connections."""
    wrong = {}
    for host, used in log.adapters.items():
        there = set(adapters.get(host, ()))
        names = there - used if code == "adapters-unused" else used - there
        if there and names:
            wrong[host] = sorted(names)
    if not wrong:
        return None
    said = "does not use" if code == "adapters-unused" else "uses, outside the training network,"
    text = "; ".join(f"{host} {said} {', '.join(names)}" for host, names in sorted(wrong.items())[:4])
    return _finding(code, sorted(wrong), f"NCCL on {text}", log)


def _finding(code: str, hosts: list[str], seen: str, log: NcclLog) -> Finding:
    """With what the environment sets of it, since that is the first thing to look at."""
    named = [name for name in sorted(log.environment) if name in REMEDIES[code]]
    said = ", ".join(f"{name}={'|'.join(sorted(log.environment[name]))}" for name in named)
    return Finding(code, tuple(hosts), f"{seen} (set: {said})" if said else seen, REMEDIES[code])


def _ends(log: NcclLog, joined: Joined) -> tuple[str, str]:
    return log.hosts[joined.sender], log.hosts[joined.receiver]
