"""A GPU's own processor (GSP) does not answer the driver: Xid 119 in the kernel log, and nothing else yet."""

from __future__ import annotations

from clusterlab import hardware
from clusterlab.faults import gpu, kernel_log
from clusterlab.faults.base import Fault, FaultTarget

CODE = 119


def inject(target: FaultTarget) -> None:
    """Say what the driver says. Raises ClusterctlError where there is no such GPU."""
    one = gpu.of(hardware.load(target.hardware_file), target)
    bus = one.pci_address.rpartition(".")[0]
    lines = [
        f"NVRM: GPU at PCI:{bus}: {one.uuid}",
        f"NVRM: GPU Board Serial Number: {one.serial}",
        f"NVRM: Xid (PCI:{bus}): {CODE}, pid=4711, name=python3, Timeout after 6s of waiting for RPC response"
        f" from GPU{one.index} GSP! Expected function 76 (GSP_RM_CONTROL) (0x20801702 0x4).",
    ]
    kernel_log.say(target, _name(target), lines)


def clear(target: FaultTarget) -> None:
    """Take the lines out of the log; after a reboot they are those of an earlier boot."""
    kernel_log.forget(target, _name(target))


def _name(target: FaultTarget) -> str:
    return f"lab-xid-gpu{target.gpu}"


FAULT = Fault(
    "xid",
    f"the kernel log has Xid {CODE} of a GPU (its GSP does not answer), until the node reboots",
    "gpu",
    inject,
    clear,
    caught_by=("xid",),
)
