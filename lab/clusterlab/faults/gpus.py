"""Faults of one GPU that are values of its simulated hardware (hardware.json): a row each."""

from __future__ import annotations

import copy
import time
from collections.abc import Mapping
from typing import Any

from clusterlab.faults.base import FaultTarget, LabFault
from clusterlab.faults.gpu_edit import change, restore
from clusterlab.hardware import SimulatedGpu


def edited(
    kind: str,
    summary: str,
    values: Mapping[str, Any],
    *,
    caught_by: tuple[str, ...],
    suite: str = "quick",
) -> LabFault:
    """A fault that sets these fields of a GPU, by dotted name; a function makes the value from the old one.

    Cleared, the outermost of the fields are as the GPU was built.
    """

    def inject(target: FaultTarget) -> None:
        change(target, lambda one: _set(one, values))

    def clear(target: FaultTarget) -> None:
        restore(target, *dict.fromkeys(name.partition(".")[0] for name in values))

    return LabFault(kind, summary, "gpu", inject, clear, caught_by=caught_by, suite=suite)


def _set(one: SimulatedGpu, values: Mapping[str, Any]) -> None:
    for path, value in values.items():
        *outer, name = path.split(".")
        owner: Any = one
        for part in outer:
            owner = getattr(owner, part)
        setattr(owner, name, value(getattr(owner, name)) if callable(value) else copy.deepcopy(value))


FAULTS = (
    # As one that did not train its link at power-on.
    edited(
        "gpu-missing",
        "a GPU is gone from the driver and from the PCI bus",
        {"state": "missing"},
        caught_by=("gpu-present",),
    ),
    # Its PCI device reads all ones, and the driver has lost it.
    edited(
        "gpu-fell-off-bus",
        "a GPU is on the PCI bus and no longer answers; nvidia-smi fails, no Xid is in the kernel log",
        {"state": "lost"},
        caught_by=("gpu-present",),
    ),
    # As after a repair with the wrong part.
    edited(
        "gpu-model-wrong",
        "a GPU is of another model than was ordered",
        {"product_name": "NVIDIA A100-SXM4-40GB"},
        caught_by=("gpu-model",),
    ),
    # As a board that was replaced.
    edited(
        "vbios-skew",
        "a GPU runs another VBIOS than all others",
        {"vbios_version": "92.00.36.00.01"},
        caught_by=("gpu-vbios",),
    ),
    # As behind a cable in the wrong port.
    edited(
        "numa-skew",
        "a GPU is near to another CPU socket than on the other nodes",
        {"numa_node": lambda node: 1 - node},
        caught_by=("numa",),
    ),
    # As set by a user who needed its memory.
    edited(
        "ecc-off",
        "ECC of a GPU is switched off",
        {"ecc.enabled": False, "ecc.pending_enabled": False},
        caught_by=("gpu-ecc",),
    ),
    # Only the counters: a check that reads nothing but the kernel log, where the Xid has been rotated out,
    # must not miss it. The error is in the L2 cache, which no row remapping repairs.
    edited(
        "ecc-uncorrectable",
        "a GPU has counted an uncorrectable memory error and asks for a reset",
        {
            "ecc.volatile.sram_uncorrectable_secded": 1,
            "ecc.aggregate.sram_uncorrectable_secded": 1,
            "ecc.sram_sources.l2": 1,
            "recovery_action": "Reset",
        },
        caught_by=("gpu-ecc", "gpu-recovery"),
    ),
    edited(
        "sram-threshold",
        "errors of a GPU's SRAM have exceeded the threshold for a replacement",
        {
            "ecc.aggregate.sram_uncorrectable_secded": 12,
            "ecc.sram_sources.l2": 12,
            "ecc.sram_threshold_exceeded": True,
        },
        caught_by=("gpu-ecc",),
    ),
    # "Drain and Reset" is NVIDIA's term for a GPU that works on with a part of its memory taken out.
    edited(
        "remap-pending",
        "a memory row of a GPU waits to be remapped at its next reset",
        {
            "remapped_rows.uncorrectable": 1,
            "remapped_rows.pending": True,
            "remapped_rows.banks_high": 1,
            "recovery_action": "Drain and Reset",
        },
        caught_by=("gpu-row-remap", "gpu-recovery"),
    ),
    edited(
        "remap-failed",
        "a memory row of a GPU could not be remapped, for want of spare ones",
        {
            "remapped_rows.uncorrectable": 8,
            "remapped_rows.failure": True,
            "remapped_rows.banks_none": 1,
        },
        caught_by=("gpu-row-remap",),
    ),
    # No counter says why.
    edited(
        "recovery-reboot",
        "the driver asks to reboot the node for the sake of a GPU",
        {"recovery_action": "Reboot"},
        caught_by=("gpu-recovery",),
    ),
    # Every model of the lab slows down at 89 degrees by itself.
    edited(
        "throttled",
        "a GPU is too hot: its hardware holds the clocks down",
        {"temperature_c": 90, "clock_reasons": ["hw_slowdown", "hw_thermal_slowdown"]},
        caught_by=("gpu-throttle",),
    ),
    # The rack or its power supply asks for it.
    edited(
        "power-brake",
        "power from outside is short: a GPU's hardware holds its clocks down",
        {"clock_reasons": ["hw_slowdown", "hw_power_brake_slowdown"]},
        caught_by=("gpu-throttle",),
    ),
    # Clocks fall by less than power does, which grows with the cube of them where voltage follows.
    edited(
        "power-limit-low",
        "the power limit of a GPU is lowered to half, and it computes at 0.7 of its speed",
        {
            "power_limit_w": lambda watts: watts / 2,
            "clock_reasons": ["sw_power_cap"],
            "performance.compute": 0.7,
        },
        caught_by=("gpu-gemm", "gpu-limits"),
    ),
    # As by a script that was to save power.
    edited(
        "application-clocks-low",
        "the application clocks of a GPU are set below its default",
        {"application_graphics_mhz": 1050},
        caught_by=("gpu-limits",),
    ),
    # nvidia-smi prints everything, a warning behind it, and ends with 14.
    edited(
        "inforom-corrupted",
        "nvidia-smi warns that the InfoROM of a GPU is corrupted",
        {"inforom_corrupted": True},
        caught_by=("gpu-inforom",),
    ),
    # DCGM takes a GPU with 512 and more for bad.
    edited(
        "rows-worn",
        "540 memory rows of a GPU were remapped for uncorrectable errors",
        {"remapped_rows.uncorrectable": 540, "remapped_rows.banks_low": 12},
        caught_by=("gpu-row-remap",),
    ),
    # As behind a riser that is not well seated; older ones are no fault.
    edited(
        "pcie-replays",
        "the PCI Express link of a GPU sends five packets a second again",
        {"pcie.replay_counter": 150, "pcie.counting_since": lambda _: time.time()},
        caught_by=("pcie-replays",),
    ),
    # As one that is not well seated.
    edited(
        "pcie-narrow",
        "a GPU uses half of its PCI Express lanes",
        {"pcie.width": lambda width: max(1, width // 2)},
        caught_by=("pcie-link", "gpu-transfer"),
    ),
    # Also under load.
    edited(
        "pcie-slow",
        "the PCI Express link of a GPU is a generation too slow",
        {"pcie.gen": lambda generation: max(1, generation - 1)},
        caught_by=("gpu-transfer",),
    ),
    # Its NVLinks are up.
    edited(
        "peer-access-off",
        "a GPU and its peers may not reach each other's memory",
        {"peer_access": False},
        caught_by=("gpu-p2p",),
    ),
    # All its NVLinks are up; 0.5 is far below the floor in use, 238 GB/s of 300.
    edited(
        "nvlink-slow",
        "a GPU copies to and from its peers at half the speed (suite standard)",
        {"performance.peers": 0.5},
        caught_by=("gpu-p2p-bandwidth",),
        suite="standard",
    ),
    # All its NVLinks are up, and what comes to it is as fast as ever.
    edited(
        "nvlink-one-way",
        "a GPU copies to its peers at half the speed, and they to it at full speed (suite standard)",
        {"performance.sends": 0.5},
        caught_by=("gpu-p2p-bandwidth",),
        suite="standard",
    ),
    # Alone each copy is as fast as ever.
    edited(
        "nvlink-slow-together",
        "a GPU copies at half the speed while copies run both ways or between all GPUs (suite full)",
        {"performance.peers_together": 0.5},
        caught_by=("gpu-p2p-exchange",),
        suite="full",
    ),
    # 0.6 is well beyond what equal GPUs differ by.
    edited(
        "gpu-slow",
        "a GPU computes at 0.6 of its speed, and its driver says nothing of it",
        {"performance.compute": 0.6},
        caught_by=("gpu-gemm",),
    ),
    # 0.8 is well beyond what equal GPUs differ by.
    edited(
        "gpu-memory-slow",
        "a GPU copies in its own memory at 0.8 of its speed",
        {"performance.memory": 0.8},
        caught_by=("gpu-memory-bandwidth",),
    ),
    # ECC does not notice.
    edited(
        "gpu-memory-errors",
        "a bit of three words of a GPU's memory is stuck: a pattern test finds it (suite standard)",
        {"performance.stuck_bits": 3},
        caught_by=("gpu-memory-pattern",),
        suite="standard",
    ),
    # No counter notices.
    edited(
        "gpu-wrong-numbers",
        "one element of every matrix product of a GPU is wrong",
        {"performance.wrong_products": True},
        caught_by=("gpu-gemm",),
    ),
    # No counter notices.
    edited(
        "gpu-copy-corrupt",
        "bytes change on their way between host and a GPU",
        {"performance.wrong_copies": True},
        caught_by=("gpu-transfer",),
    ),
    # As where interrupts of its slot go to a busy CPU. Launches differ much between equal GPUs: less than a
    # factor of four would be no fault.
    edited(
        "gpu-launch-slow",
        "starting a kernel on a GPU takes four times as long as it should",
        {"performance.launch": 0.25},
        caught_by=("gpu-launch-latency",),
    ),
)
