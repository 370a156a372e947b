"""What NCCL's log shows to be slower than it need be, with the remedy."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from clustercheck.parse.nccl_log import RING, Joined, NcclLog
from clustercheck.parse.plain_text import some_of


@dataclass(frozen=True)
class NcclFinding:
    """One thing that is not as it should be: a stable ``code``, what is seen where, and what to do."""

    code: str
    hosts: tuple[str, ...]
    seen: str
    remedy: str


@dataclass(frozen=True)
class NcclSite:
    """What NCCL could use here, by host.

    ``adapters`` are those of the training network with an active port, empty where it is not known which;
    ``rdma`` the hosts that have any, ``interfaces`` the one for sockets. ``gpudirect`` names hosts whose
    adapters are near enough to the GPUs to read their memory, ``near`` those whose GPUs all reach each other
    without crossing the processors' link; ``peers`` says whether two ranks of a host may use
    peer-to-peer access.
    """

    adapters: Mapping[str, Collection[str]] = field(default_factory=dict)
    rdma: Collection[str] = ()
    interfaces: Mapping[str, str] = field(default_factory=dict)
    gpudirect: Collection[str] = ()
    near: Collection[str] = ()
    peers: Callable[[int, int], bool] = lambda one, other: False


REMEDIES = {
    "sockets": (
        "Give the container /dev/infiniband, unlimited memlock and libibverbs; unset NCCL_IB_DISABLE "
        "and name working adapters in NCCL_IB_HCA."
    ),
    "interface-foreign": (
        "Let NCCL_SOCKET_IFNAME name the interface that carries the node's address (ansible_host), and "
        "nothing in the image set it otherwise."
    ),
    "adapters-unused": (
        "Name all adapters of the training network in NCCL_IB_HCA, or leave it unset; check the "
        "state of the ports that are missing."
    ),
    "adapters-foreign": (
        "Take adapters that are not part of the training network out of NCCL_IB_HCA (for example "
        "NCCL_IB_HCA=^mlx5_bond_0)."
    ),
    "shared-memory": (
        "Unset NCCL_P2P_DISABLE and NCCL_P2P_LEVEL; check `nvidia-smi topo -p2p r`, at ACS and "
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
        "Data between GPUs of a node crosses the processors' link: check NVLink and Fabric Manager "
        "first, then at NUMA settings and that every GPU of the node takes part."
    ),
    "warnings": ("Check the first warning: NCCL continues after most of them, on a slower path."),
}


def findings(log: NcclLog, site: NcclSite) -> tuple[NcclFinding, ...]:
    """What is wrong, worst first; none where all is well, or cannot be better on this hardware."""
    across = [joined for joined in log.joined if log.crosses(joined)]
    within = [joined for joined in log.joined if not log.crosses(joined)]
    rings = {host: {worst for kind, worst, _ in seen if kind == RING} for host, seen in log.patterns.items()}
    found = [
        _of_connections(
            "sockets",
            [j for j in across if j.how == "Socket" and log.speaker(j) in site.rdma],
            log,
            "nodes talk over TCP sockets though they have RDMA adapters",
        ),
        _of_interfaces(log, site, across),
        _of_connections(
            "gpudirect-off",
            [
                j
                for j in across
                if j.road == "NET"
                and j.how != "Socket"
                and not j.gpudirect
                and log.speaker(j) in site.gpudirect
            ],
            log,
            "adapters do not read GPU memory by themselves (no GDRDMA)",
        ),
        _of_connections(
            "network-within-node",
            [j for j in within if j.road == "NET"],
            log,
            "GPUs of one node talk over the network",
        ),
        _of_connections(
            "shared-memory",
            [j for j in within if j.road == "SHM" and site.peers(j.sender, j.receiver)],
            log,
            "GPUs of one node talk through host memory",
        ),
        _finding(
            "ring-over-sys",
            sorted(host for host, worst in rings.items() if "SYS" in worst and host in site.near),
            "rings go over SYS within a node",
            log,
        ),
        _of_adapters("adapters-unused", _unused(log, site), "does not use", log),
        _of_adapters(
            "adapters-foreign", _foreign(log, site, across), "uses, outside the training network,", log
        ),
    ]
    if log.warnings:
        hosts = sorted({warning.partition(": ")[0] for warning in log.warnings})
        found.append(_finding("warnings", hosts, f"NCCL warned: {log.warnings[0]}", log))
    return tuple(finding for finding in found if finding is not None)


def _of_connections(code: str, joined: list[Joined], log: NcclLog, seen: str) -> NcclFinding | None:
    pairs = sorted({(j.sender, j.receiver) for j in joined})
    some = some_of([f"{a} -> {b}" for a, b in pairs], 4)
    return _finding(code, sorted({log.speaker(j) for j in joined}), f"{seen}: ranks {some}", log)


def _of_interfaces(log: NcclLog, site: NcclSite, across: Sequence[Joined]) -> NcclFinding | None:
    """The interfaces that data crosses, where it goes over sockets."""
    over = {log.speaker(j) for j in across if j.how == "Socket"}
    wrong = {
        host: sorted(names - {site.interfaces[host]})
        for host, names in log.sockets.items()
        if host in over and host in site.interfaces and names - {site.interfaces[host]}
    }
    return _of_adapters("interface-foreign", wrong, "talks over another interface than declared:", log)


def _unused(log: NcclLog, site: NcclSite) -> dict[str, list[str]]:
    """What NCCL does not even count among its adapters."""
    return {
        host: sorted(set(site.adapters[host]) - set(listed))
        for host, listed in log.adapters.items()
        if set(site.adapters.get(host, ())) - set(listed)
    }


def _foreign(log: NcclLog, site: NcclSite, across: Sequence[Joined]) -> dict[str, list[str]]:
    """What data does cross; that NCCL counts an adapter among its own does no harm."""
    used: dict[str, set[str]] = {}
    for joined in across:
        if name := log.adapter(joined):
            used.setdefault(log.speaker(joined), set()).add(name)
    return {
        host: sorted(names - set(site.adapters[host]))
        for host, names in used.items()
        if site.adapters.get(host) and names - set(site.adapters[host])
    }


def _of_adapters(code: str, wrong: Mapping[str, list[str]], message: str, log: NcclLog) -> NcclFinding | None:
    text = "; ".join(f"{host} {message} {', '.join(names)}" for host, names in sorted(wrong.items())[:4])
    return _finding(code, sorted(wrong), f"NCCL on {text}", log)


def _finding(code: str, hosts: list[str], seen: str, log: NcclLog) -> NcclFinding | None:
    """With what the environment sets of it, since that is the first thing to inspect; None without hosts."""
    if not hosts:
        return None
    named = [name for name in sorted(log.environment) if name in REMEDIES[code]]
    message = ", ".join(f"{name}={'|'.join(sorted(log.environment[name]))}" for name in named)
    return NcclFinding(code, tuple(hosts), f"{seen} (set: {message})" if message else seen, REMEDIES[code])
