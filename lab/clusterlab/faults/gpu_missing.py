"""A GPU is gone from the driver and from the PCI bus, as one that did not train its link at power-on."""

from __future__ import annotations

from clusterctl.errors import EXIT_USAGE, ClusterctlError
from clusterlab.faults.base import Fault, FaultTarget
from clusterlab.hardware import GpuState, Hardware


def inject(target: FaultTarget) -> None:
    """Take the GPU off the bus."""
    _set_state(target, "missing")


def clear(target: FaultTarget) -> None:
    """Put the GPU back."""
    _set_state(target, "present")


def _set_state(target: FaultTarget, state: GpuState) -> None:
    def edit(hardware: Hardware) -> Hardware:
        if target.gpu is None or not 0 <= target.gpu < len(hardware.gpus):
            raise ClusterctlError(
                f"there is no GPU {target.gpu} to take away",
                code="lab.no-such-gpu",
                where=target.node,
                hint=f"It was built with {len(hardware.gpus)} GPUs, counted from 0: name one with --gpu.",
                exit_code=EXIT_USAGE,
            )
        hardware.gpu(target.gpu).state = state
        return hardware

    target.edit_hardware(edit)


FAULT = Fault("gpu-missing", "a GPU is gone from the driver and from the PCI bus", "gpu", inject, clear)
