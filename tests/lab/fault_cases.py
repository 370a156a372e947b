"""Every kind of fault with a place to put it and words of what must be said; and a sample drawn by a seed."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from clusterlab import faults
from clusterlab.faults.base import LabFault

Family = Literal["host", "gpu", "link", "job"]
FAMILIES: tuple[Family, ...] = ("host", "gpu", "link", "job")


@dataclass(frozen=True)
class Case:
    """A fault at a place, words of the one culprit's remedy and reason, and which family it is of.

    ``ordinary``: an ordinary run may have it; what takes over 90 s (docs/reliability.md), or a lab of other
    hardware, is the campaign's.
    """

    family: Family
    kind: str
    node: str
    remedy: str
    because: str = ""
    gpu: int | None = None
    peer: str | None = None
    ordinary: bool = True

    @property
    def fault(self) -> LabFault:
        """What the lab knows of it."""
        return faults.known()[self.kind]

    @property
    def options(self) -> list[str]:
        """What ``lab fault inject`` wants besides node and kind."""
        gpu = [] if self.gpu is None else ["--gpu", str(self.gpu)]
        return gpu + ([] if self.peer is None else ["--peer", self.peer])


# Two that follow one another are on two nodes: what one leaves behind is blamed next to the next.
_WITH_WORDS = (
    Case("host", "node-down", "gpu02", "power", "does not answer"),
    Case("host", "node-hung", "gpu01", "reset", "it hangs"),
    Case("host", "clock-skew", "gpu02", "time server", "ahead"),
    Case("host", "dns-broken", "gpu03", "/etc/resolv.conf", "no name server answers"),
    Case("host", "disk-full", "gpu01", "Free space", "/var/lib/clusterctl has 0 MB free"),
    Case("host", "disk-read-only", "gpu02", "dmesg", "/var/log is mounted read-only"),
    Case("host", "inodes-full", "gpu03", "Free space", "/var/tmp has room for 0 more files"),
    Case("host", "shm-small", "gpu02", "remount", "/dev/shm is 64 MiB"),
    Case("host", "mount-gone", "gpu01", "Mount it", "/scratch is not mounted"),
    Case("host", "mount-read-only", "gpu03", "root_squash", "/scratch cannot be written to as ops"),
    Case("host", "kernel-crashed", "gpu01", "journalctl -k -b -1", "Fatal hardware error"),
    Case("host", "power-supply-failed", "gpu03", "cable, feed and breaker", "Power Supply AC lost"),
    Case("host", "fan-failed", "gpu02", "Fans: replace", "FAN2 is critical at 0 RPM"),
    Case("host", "bmc-event", "gpu01", "ipmitool sel elist", "Uncorrectable ECC"),
    Case("host", "process-stuck", "gpu03", "No signal ends", "in uninterruptible sleep for all of"),
    Case("host", "zombies", "gpu01", "Restart the parent", "3 zombie(s)"),
    Case("host", "os-skew", "gpu02", "one release", "bullseye"),
    Case("host", "memory-missing", "gpu01", "reseated", "memory is"),
    Case("host", "cpu-offline", "gpu03", "lscpu", "CPUs are offline"),
    Case("host", "huge-pages-skew", "gpu01", "transparent_hugepage", "transparent huge pages"),
    Case("host", "files-limited", "gpu02", "LimitNOFILE", "may open 1024 files"),
    Case(
        "host", "cgroup-driver-systemd", "gpu03", "nvidia_container_toolkit_cgroup_driver", "systemd manages"
    ),
    Case("host", "registry-down", "registry01", "clusterctl-registry", "no node got an answer"),
    Case("host", "docker-stopped", "gpu01", "systemctl start docker", "Docker daemon"),
    Case("host", "driver-hung", "gpu02", "", "did not answer", ordinary=False),
    Case("host", "persistence-off", "gpu03", "nvidia-persistenced", "persistence mode is off"),
    Case("host", "driver-library-mismatch", "gpu01", "reboot the node", "mismatch"),
    Case("host", "driver-version-skew", "gpu03", "clusterctl apply --only driver", "580.82.07"),
    Case("host", "fabricmanager-stopped", "gpu02", "start it"),
    Case("host", "fabricmanager-version-skew", "gpu01", "driver's exact version"),
    Case("host", "toolkit-broken", "gpu03", "CDI", "7 of"),
    Case("host", "device-files-closed", "gpu02", "NVreg_DeviceFileMode", "non-root container"),
    Case("host", "sxid", "gpu01", "", "SXid 20034"),
    Case("host", "nvswitch-missing", "gpu02", "Power-cycle", "5 of 6 NVSwitches"),
    Case("host", "adapter-power-low", "gpu01", "power-cycle it", "too little power"),
    Case("host", "numa-skew", "gpu03", "BIOS", "GPUs by NUMA node", gpu=1),
    Case("host", "peermem-errors", "gpu02", "GPUDirect RDMA", "nvidia-peermem reports errors: 3"),
    Case("gpu", "gpu-missing", "gpu01", "", "gone from the PCI bus", gpu=3),
    Case("gpu", "gpu-fell-off-bus", "gpu02", "power-cycle", "fell off the bus", gpu=3),
    Case("gpu", "gpu-model-wrong", "gpu03", "not the ordered model", "40GB", gpu=5),
    Case("gpu", "gpu-uuid-twice", "gpu02", "Reload the driver", "one UUID at 2 places", gpu=4),
    Case("gpu", "xid", "gpu01", "reset the GPU", "Xid 119", gpu=6),
    Case("gpu", "ecc-uncorrectable", "gpu03", "reset the GPU", gpu=0),
    Case("gpu", "ecc-off", "gpu02", "Switch it on", "switched off", gpu=6),
    Case("gpu", "sram-threshold", "gpu01", "Replace the GPU", "threshold", gpu=1),
    Case("gpu", "remap-pending", "gpu02", "reset the GPU", gpu=7),
    Case("gpu", "remap-failed", "gpu03", "spare rows are used up", gpu=4),
    Case("gpu", "recovery-reboot", "gpu01", "reboot it", "Reboot", gpu=2),
    Case("gpu", "vbios-skew", "gpu03", "Bring all boards to one version", "on 23 of 24 GPUs", gpu=6),
    Case("gpu", "mig-enabled", "gpu02", "clusterctl mig apply", "disabled was declared", gpu=3),
    Case("gpu", "throttled", "gpu03", "air flow", "too hot", gpu=4),
    Case("gpu", "power-brake", "gpu02", "power supplies", "power brake", gpu=1),
    Case("gpu", "application-clocks-low", "gpu01", "nvidia-smi -i N -rac", "graphics clock", gpu=5),
    Case("gpu", "inforom-corrupted", "gpu03", "write the InfoROM again", "InfoROM is corrupted", gpu=2),
    Case("gpu", "rows-worn", "gpu02", "Have the GPU replaced", "540 rows", gpu=6),
    Case("gpu", "pcie-error", "gpu01", "power-cycle it", "uncorrected PCI Express error", gpu=3),
    Case("link", "pcie-replays", "gpu02", "seat GPU, riser and cable", "a minute expected", gpu=0),
    Case("link", "nvlink-down", "gpu01", "Restart Fabric Manager", "link 5 is down", gpu=2),
    Case("link", "pcie-narrow", "gpu02", "seat GPU", "8 of 16 lanes", gpu=5),
    Case("link", "nvlink-errors", "gpu01", "nvidia-smi nvlink -re", "replay errors", gpu=0),
    Case("link", "pcie-slow", "gpu03", "PCIe link", "generation 3", gpu=7),
    Case("link", "peer-access-off", "gpu01", "restart Fabric Manager", "peer access", gpu=4),
    Case("link", "fabric-not-joined", "gpu03", "Fabric Manager", "In Progress", gpu=6, ordinary=False),
    Case("link", "slow-link", "gpu02", "Check cable", "slow with every partner", ordinary=False),
    Case("link", "packet-loss", "gpu03", "Check cable", "slow with every partner", ordinary=False),
    Case("link", "pair-slow", "gpu01", "Check cable", "only the pair", peer="gpu03", ordinary=False),
    Case("link", "firewall", "gpu03", "nft list ruleset", "2 of 2 nodes cannot connect to it"),
    Case("link", "mtu-skew", "gpu01", "Set one MTU", "MTU is 1400"),
    Case("link", "link-cut", "gpu02", "systemctl status", "cannot be reached", peer="registry01"),
    Case("job", "gpu-slow", "gpu01", "throttle reasons under load", gpu=5),
    Case("job", "power-limit-low", "gpu03", "Set the default again", gpu=7),
    Case("job", "nvlink-slow", "gpu02", "nvidia-smi nvlink", gpu=3, ordinary=False),
    Case("job", "nvlink-one-way", "gpu03", "nvidia-smi nvlink", "from GPU 4 to GPU", gpu=4, ordinary=False),
    Case("job", "nvlink-slow-together", "gpu02", "nvidia-smi nvlink", gpu=5, ordinary=False),
    Case("job", "gpu-memory-slow", "gpu01", "remapped rows", gpu=0),
    Case("job", "gpu-wrong-numbers", "gpu03", "have it replaced", gpu=2),
    Case("job", "gpu-copy-corrupt", "gpu02", "PCIe link", "corrupted", gpu=4),
    Case("job", "gpu-launch-slow", "gpu03", "CPU governor", gpu=6),
    Case("job", "gpu-memory-errors", "gpu01", "", "did not hold the written data", gpu=5, ordinary=False),
    Case("job", "rank-crash", "gpu03", "log", "SIGSEGV"),
    Case("job", "rank-killed", "gpu01", "log", "SIGKILL"),
    Case("job", "rank-hang", "gpu02", "log", "is stopped", ordinary=False),
    Case("job", "rank-raises", "gpu03", "log", "unhandled system error"),
    Case("job", "sums-wrong", "gpu01", "", "wrong sums"),
    Case(
        "job",
        "samples-repeated",
        "gpu03",
        "Pull the training image again",
        "samples never came",
        ordinary=False,
    ),
    Case(
        "job", "launch-samples-repeated", "gpu02", "the log of the process", "samples twice", ordinary=False
    ),
    Case(
        "job",
        "sharding-raises",
        "gpu01",
        "reduce and broadcast",
        "cannot allocate memory of the shard",
        ordinary=False,
    ),
)


def _is_ordinary(fault: LabFault) -> bool:
    return fault.suite == "quick" and not fault.hardware


def _without_words(fault: LabFault, node: str) -> Case:
    """A fault that has no row above: it is put in place and found, whatever is said of it."""
    family: Family = "host" if fault.scope == "node" else fault.scope
    peer = "gpu01" if fault.scope == "link" and node != "gpu01" else None
    gpu = 3 if fault.scope == "gpu" else None
    return Case(family, fault.kind, node, "", gpu=gpu, peer=peer, ordinary=_is_ordinary(fault))


_NEW = [fault for kind, fault in faults.known().items() if kind not in {case.kind for case in _WITH_WORDS}]
CASES = (
    *_WITH_WORDS,
    *(_without_words(fault, ("gpu02", "gpu03")[number % 2]) for number, fault in enumerate(_NEW)),
)
BY_KIND = {case.kind: case for case in CASES}


def sample(seed: str, count: int) -> list[Case]:
    """That many ordinary cases, of as many families as there can be; the same for the same seed."""
    chosen = random.Random(seed)  # noqa: S311 - a choice that can be repeated, and no secret
    ordinary = [case for case in CASES if case.ordinary]
    families = FAMILIES if count >= len(FAMILIES) else chosen.sample(FAMILIES, count)
    first = [chosen.choice(_of(ordinary, family)) for family in families]
    others = [case for case in ordinary if case not in first]
    return [*first, *chosen.sample(others, count - len(first))]


def _of(cases: Sequence[Case], family: Family) -> list[Case]:
    return [case for case in cases if case.family == family]
