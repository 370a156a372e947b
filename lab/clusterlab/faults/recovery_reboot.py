"""The driver asks for a reboot of the node, and no counter says why."""

from __future__ import annotations

from clusterlab.faults import gpu
from clusterlab.hardware import Gpu


def _break(one: Gpu) -> None:
    one.recovery_action = "Reboot"


FAULT = gpu.edited(
    "recovery-reboot",
    "the driver asks to reboot the node for the sake of a GPU",
    _break,
    "recovery_action",
    caught_by=("gpu-recovery",),
)
