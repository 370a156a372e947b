"""Faults of which only the kernel log tells, such as an Xid of a GPU or an SXid of an NVSwitch.

All are gone after a reboot.
"""

from __future__ import annotations

from clusterlab import hardware
from clusterlab.faults.base import FaultTarget, LabFault
from clusterlab.faults.gpu_edit import gpu_of
from clusterlab.faults.on_kernel_log import remove_lines, write_lines

XID, SXID = 119, 20034
_SXID_NAME = "lab-sxid"
_ADAPTER_NAME = "lab-adapter-power"
_PEERMEM_NAME = "lab-peermem"
PEERMEM_ERRORS = 3


def write_xid(target: FaultTarget) -> None:
    """Write the driver's lines. Raises ClusterctlError if there is no such GPU."""
    one = gpu_of(hardware.load(target.hardware_file), target)
    bus = one.pci_address.rpartition(".")[0]
    lines = [
        f"NVRM: GPU at PCI:{bus}: {one.uuid}",
        f"NVRM: GPU Board Serial Number: {one.serial}",
        f"NVRM: Xid (PCI:{bus}): {XID}, pid=4711, name=python3, Timeout after 6s of waiting for RPC response"
        f" from GPU{one.index} GSP! Expected function 76 (GSP_RM_CONTROL) (0x20801702 0x4).",
    ]
    write_lines(target, _xid_name(target), lines)


def _xid_name(target: FaultTarget) -> str:
    return f"lab-xid-gpu{target.gpu}"


def write_port_error(target: FaultTarget) -> None:
    """Write the kernel's line. Raises ClusterctlError if there is no such GPU."""
    one = gpu_of(hardware.load(target.hardware_file), target)
    line = (
        f"nvidia {one.pci_address}: PCIe Bus Error: severity=Uncorrectable (Non-Fatal), "
        "type=Transaction Layer, (Requester ID)"
    )
    write_lines(target, _port_error_name(target), [line])


def _port_error_name(target: FaultTarget) -> str:
    return f"lab-aer-gpu{target.gpu}"


def write_sxid(target: FaultTarget) -> None:
    """Write the driver's line. Raises ClusterctlError (``lab.nothing-to-break``) without an NVSwitch."""
    switches = hardware.load(target.hardware_file).nvswitches
    if not switches:
        raise target.nothing_to_break(
            "there is no NVSwitch that could fail",
            "Bring up a lab whose nodes have NVSwitches: --hardware hgx-a100-80gb.",
        )
    address = switches[0].pci_address
    line = f"nvidia-nvswitch0: SXid (PCI:{address}): {SXID}, Fatal, Link 30 LTSSM Fault Up"
    write_lines(target, _SXID_NAME, [line])


def write_adapter_power(target: FaultTarget) -> None:
    """Write its driver's line. Raises ClusterctlError (``lab.nothing-to-break``) without an adapter."""
    adapters = hardware.load(target.hardware_file).hcas
    if not adapters:
        raise target.nothing_to_break(
            "there is no adapter that could lack power",
            "Bring up a lab whose nodes have adapters: --hardware hgx-a100-80gb.",
        )
    line = (
        f"mlx5_core {adapters[0].pci_address}: mlx5_pcie_event:301:(pid 7): "
        "Detected insufficient power on the PCIe slot (27W)."
    )
    write_lines(target, _ADAPTER_NAME, [line])


def write_peermem_errors(target: FaultTarget) -> None:
    """Write its lines: of a job whose memory was gone before the adapter had let go of it."""
    line = "nvidia-peermem nv_get_p2p_free_callback:127 ERROR detected invalid context, skipping"
    write_lines(target, _PEERMEM_NAME, [line] * PEERMEM_ERRORS)


FAULTS = (
    LabFault(
        "pcie-error",
        "the kernel log has an uncorrected PCI Express error of a GPU, until the node reboots",
        "gpu",
        write_port_error,
        lambda target: remove_lines(target, _port_error_name(target)),
        caught_by=("xid",),
    ),
    LabFault(
        "xid",
        f"the kernel log has Xid {XID} of a GPU (its GSP does not answer), until the node reboots",
        "gpu",
        write_xid,
        lambda target: remove_lines(target, _xid_name(target)),
        caught_by=("xid",),
    ),
    LabFault(
        "sxid",
        f"the kernel log has the fatal SXid {SXID} of an NVSwitch, until the node reboots",
        "node",
        write_sxid,
        lambda target: remove_lines(target, _SXID_NAME),
        caught_by=("kernel-log",),
    ),
    LabFault(
        "adapter-power-low",
        "the kernel log has an adapter whose slot gives it too little power, until the node reboots",
        "node",
        write_adapter_power,
        lambda target: remove_lines(target, _ADAPTER_NAME),
        caught_by=("kernel-log",),
    ),
    LabFault(
        "peermem-errors",
        "the kernel log has errors of nvidia-peermem, until the node reboots",
        "node",
        write_peermem_errors,
        lambda target: remove_lines(target, _PEERMEM_NAME),
        caught_by=("kernel-log",),
        verdict="warning",
    ),
)
