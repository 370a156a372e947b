"""Faults of one NVLink of a GPU."""

from __future__ import annotations

import time
from collections.abc import Callable

from clusterlab.faults.base import FaultTarget, LabFault
from clusterlab.faults.gpu_edit import change, nvlink_of
from clusterlab.hardware import NvLinkErrors, SimulatedGpu, SimulatedNvLink


def edited(
    kind: str,
    summary: str,
    number: int,
    edit: Callable[[SimulatedNvLink], None],
    restore: Callable[[SimulatedNvLink], None],
    *,
    caught_by: tuple[str, ...],
) -> LabFault:
    """A fault of this NVLink. Raises ClusterctlError (``lab.nothing-to-break``) where the GPU has none."""

    def inject(target: FaultTarget) -> None:
        change(target, lambda one: edit(nvlink_of(target, one, number)))

    def clear(target: FaultTarget) -> None:
        def restore_link(one: SimulatedGpu) -> None:
            for link in one.nvlinks[number : number + 1]:
                restore(link)

        change(target, restore_link)

    return LabFault(kind, summary, "gpu", inject, clear, caught_by=caught_by)


def _count(link: SimulatedNvLink) -> None:
    link.errors = NvLinkErrors(replay=142, crc_flit=2048, counting_since=time.time())


FAULTS = (
    # The driver then reaches every other GPU over one link less.
    edited(
        "nvlink-down",
        "NVLink 5 of a GPU is inactive",
        5,
        lambda link: setattr(link, "active", False),
        lambda link: setattr(link, "active", True),
        caught_by=("nvlink", "gpu-topology"),
    ),
    # It is up, and sends again what did not arrive.
    edited(
        "nvlink-errors",
        "NVLink 3 of a GPU is up and counts replays, and has counted CRC errors",
        3,
        _count,
        lambda link: setattr(link, "errors", NvLinkErrors()),
        caught_by=("nvlink-errors",),
    ),
)
