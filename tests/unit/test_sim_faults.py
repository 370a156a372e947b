"""Faults of the simulated driver: what they write, and that clearing undoes it."""

from __future__ import annotations

from pathlib import Path

import pytest

from clusterctl.errors import ClusterctlError
from clusterlab import hardware
from clusterlab.faults import driver_version_skew, gpu_missing
from clusterlab.faults.base import Fault, FaultTarget


class StoppedNode(FaultTarget):
    """A node that does not run: only its file changes."""

    def is_running(self) -> bool:
        return False


@pytest.fixture
def target(tmp_path: Path) -> FaultTarget:
    path = tmp_path / "hardware.json"
    hardware.save(hardware.build("a100-pcie-40gb", "gpu01"), path)
    return StoppedNode(node="gpu01", container="none", hardware_file=path, gpu=2)


def test_gpu_missing_takes_that_gpu_alone(target: FaultTarget) -> None:
    gpu_missing.FAULT.inject(target)
    states = [gpu.state for gpu in hardware.load(target.hardware_file).gpus]
    assert states == ["present", "present", "missing", "present"]


@pytest.mark.parametrize("gpu", [None, 4, -1])
def test_gpu_missing_wants_a_gpu_that_is_there(target: FaultTarget, gpu: int | None) -> None:
    target.gpu = gpu
    before = target.hardware_file.read_text()
    with pytest.raises(ClusterctlError, match="no GPU") as caught:
        gpu_missing.FAULT.inject(target)
    assert caught.value.exit_code == 2
    assert target.hardware_file.read_text() == before


def test_driver_version_skew_is_a_version_that_no_apply_installs(target: FaultTarget) -> None:
    from clusterlab.sources.build import DRIVER_VERSIONS

    driver_version_skew.FAULT.inject(target)
    version = hardware.load(target.hardware_file).driver_override
    assert version is not None
    assert version not in DRIVER_VERSIONS


@pytest.mark.parametrize("fault", [gpu_missing.FAULT, driver_version_skew.FAULT], ids=lambda f: f.kind)
def test_clearing_gives_the_file_back(target: FaultTarget, fault: Fault) -> None:
    before = target.hardware_file.read_text()
    fault.inject(target)
    assert target.hardware_file.read_text() != before
    fault.clear(target)
    fault.clear(target)
    assert target.hardware_file.read_text() == before
