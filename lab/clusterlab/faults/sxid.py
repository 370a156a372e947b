"""An NVSwitch has met a fatal error: its SXid is in the kernel log, and nothing else says so yet."""

from __future__ import annotations

from clusterctl.errors import EXIT_USAGE, ClusterctlError
from clusterlab import hardware
from clusterlab.faults import kernel_log
from clusterlab.faults.base import Fault, FaultTarget

CODE = 20034
_NAME = "lab-sxid"


def inject(target: FaultTarget) -> None:
    """Say what the driver says. Raises ClusterctlError (``lab.nothing-to-break``) without an NVSwitch."""
    switches = hardware.load(target.hardware_file).nvswitches
    if not switches:
        raise ClusterctlError(
            "there is no NVSwitch that could fail",
            code="lab.nothing-to-break",
            where=target.node,
            hint="Bring up a lab whose nodes have NVSwitches: --hardware hgx-a100-80gb.",
            exit_code=EXIT_USAGE,
        )
    address = switches[0].pci_address
    kernel_log.say(
        target, _NAME, [f"nvidia-nvswitch0: SXid (PCI:{address}): {CODE}, Fatal, Link 30 LTSSM Fault Up"]
    )


def clear(target: FaultTarget) -> None:
    """Take the line out of the log; after a reboot it is one of an earlier boot."""
    kernel_log.forget(target, _NAME)


FAULT = Fault(
    "sxid",
    f"the kernel log has the fatal SXid {CODE} of an NVSwitch, until the node reboots",
    "node",
    inject,
    clear,
    caught_by=("kernel-log",),
)
