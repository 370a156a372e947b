"""An NVSwitch that is gone is on the bus again when the fault is cleared; a node without one says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from clusterctl.errors import ClusterctlError
from clusterlab import faults, hardware
from clusterlab.faults.base import FaultTarget


class Off(FaultTarget):
    """A node that does not run: its hardware can be changed all the same."""

    def is_running(self) -> bool:
        return False


def states(target: FaultTarget) -> list[str]:
    return [switch.state for switch in hardware.load(target.hardware_file).nvswitches]


def test_the_last_switch_is_lost_and_comes_back(tmp_path: Path) -> None:
    target = Off("gpu01", "none", tmp_path / "hardware.json")
    hardware.save(hardware.build("hgx-a100-80gb", "gpu01"), target.hardware_file)
    fault = faults.known()["nvswitch-missing"]
    for _ in range(2):
        fault.inject(target)
    assert states(target) == ["present"] * 5 + ["missing"]
    for _ in range(2):
        fault.clear(target)
    assert states(target) == ["present"] * 6


def test_a_node_without_switches_has_nothing_to_break(tmp_path: Path) -> None:
    target = Off("gpu01", "none", tmp_path / "hardware.json")
    built = hardware.build("hgx-a100-80gb", "gpu01")
    hardware.save(built.model_copy(update={"nvswitches": []}), target.hardware_file)
    with pytest.raises(ClusterctlError, match="no NVSwitch"):
        faults.known()["nvswitch-missing"].inject(target)
