"""Faults of the simulated hardware: what they write, where, and that clearing undoes it."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from clusterctl.errors import ClusterctlError
from clusterlab import faults, hardware
from clusterlab.faults import known
from clusterlab.faults.base import FaultTarget, LabFault
from clusterlab.faults.kernel_messages import XID

KINDS = faults.known()
# All but what only the kernel log says.
OF_KERNEL_LOG = ("xid", "pcie-error")
OF_GPU = sorted(
    kind
    for kind, fault in KINDS.items()
    if fault.scope == "gpu" and kind not in OF_KERNEL_LOG and not fault.hardware
)
OF_NODE = ["driver-version-skew", "toolkit-broken"]
OF_FABRIC_MANAGER = ["fabricmanager-stopped", "fabricmanager-version-skew"]


class StoppedNode(FaultTarget):
    """A node that does not run: only its file changes."""

    def is_running(self) -> bool:
        return False


class RunningNode(FaultTarget):
    """A node that does what it is told, and remembers it; its Fabric Manager is in ``undo["unit"]``."""

    def is_running(self) -> bool:
        return True

    def exec(
        self, argv: Sequence[str], stdin: str = "", timeout_s: float = 60, *, check: bool = True
    ) -> subprocess.CompletedProcess[bytes]:
        if "show" in argv:
            return subprocess.CompletedProcess(argv, 0, f"{self.undo['unit']}\n".encode(), b"")
        self.undo["told"] = self.undo.get("told", "") + " ".join(argv) + "\n"
        self.undo["stdin"] = stdin
        return subprocess.CompletedProcess(argv, 0, b"", b"")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "hardware.json"
    hardware.save(hardware.build("hgx-a100-80gb", "gpu01"), path)
    return path


@pytest.fixture
def target(file: Path) -> FaultTarget:
    return StoppedNode(node="gpu01", container="none", hardware_file=file, gpu=2)


@pytest.mark.parametrize("kind", OF_GPU)
def test_a_fault_of_a_gpu_changes_that_gpu_alone(target: FaultTarget, kind: str) -> None:
    before = hardware.load(target.hardware_file)
    KINDS[kind].inject(target)
    after = hardware.load(target.hardware_file)
    assert [gpu.index for gpu in after.gpus if gpu != before.gpu(gpu.index)] == [2]
    assert after.model_copy(update={"gpus": before.gpus}) == before


@pytest.mark.parametrize("gpu", [None, 8, -1])
@pytest.mark.parametrize("kind", [*OF_GPU, *OF_KERNEL_LOG])
def test_a_fault_of_a_gpu_wants_one_that_is_there(target: FaultTarget, kind: str, gpu: int | None) -> None:
    target.gpu = gpu
    before = target.hardware_file.read_text()
    with pytest.raises(ClusterctlError, match="no GPU") as caught:
        KINDS[kind].inject(target)
    assert caught.value.exit_code == 2
    assert target.hardware_file.read_text() == before


@pytest.mark.parametrize("kind", [*OF_GPU, *OF_NODE])
def test_clearing_gives_the_file_back(target: FaultTarget, kind: str) -> None:
    before = target.hardware_file.read_text()
    KINDS[kind].inject(target)
    assert target.hardware_file.read_text() != before
    KINDS[kind].clear(target)
    KINDS[kind].clear(target)
    assert target.hardware_file.read_text() == before


def test_all_faults_of_one_gpu_at_once_are_cleared_in_any_order(target: FaultTarget) -> None:
    before = target.hardware_file.read_text()
    for kind in OF_GPU:
        KINDS[kind].inject(target)
    for kind in OF_GPU:
        KINDS[kind].clear(target)
    assert target.hardware_file.read_text() == before


def test_gpu_missing_takes_that_gpu_alone(target: FaultTarget) -> None:
    known()["gpu-missing"].inject(target)
    states = [gpu.state for gpu in hardware.load(target.hardware_file).gpus]
    assert states == [*["present"] * 2, "missing", *["present"] * 5]


@pytest.mark.parametrize(
    ("fault", "field"),
    [
        (known()["driver-version-skew"], "driver_override"),
        (known()["fabricmanager-version-skew"], "fabricmanager_override"),
    ],
    ids=lambda value: getattr(value, "kind", value),
)
def test_a_skewed_version_is_one_that_no_apply_installs(file: Path, fault: LabFault, field: str) -> None:
    from clusterlab.sources.build import DRIVER_VERSIONS

    fault.inject(RunningNode("gpu01", "none", file, undo={"unit": "active"}))
    version = getattr(hardware.load(file), field)
    assert version is not None
    assert version not in DRIVER_VERSIONS


@pytest.mark.parametrize("kind", OF_FABRIC_MANAGER)
def test_a_fabric_manager_that_does_not_run_cannot_be_broken(file: Path, kind: str) -> None:
    before, node = file.read_text(), RunningNode("gpu01", "none", file, undo={"unit": "inactive"})
    with pytest.raises(ClusterctlError) as caught:
        KINDS[kind].inject(node)
    assert caught.value.code == "lab.nothing-to-break"
    assert "told" not in node.undo
    assert file.read_text() == before


@pytest.mark.parametrize("kind", OF_FABRIC_MANAGER)
def test_a_broken_fabric_manager_runs_again_when_cleared(file: Path, kind: str) -> None:
    before, node = file.read_text(), RunningNode("gpu01", "none", file, undo={"unit": "active"})
    KINDS[kind].inject(node)
    KINDS[kind].clear(node)
    assert node.undo["told"].endswith("systemctl restart nvidia-fabricmanager.service\n")
    assert file.read_text() == before


@pytest.mark.parametrize("kind", ["driver-version-skew", "nvswitch-missing"])
@pytest.mark.parametrize("unit", ["failed", "inactive"])
def test_a_fabric_manager_that_failed_beside_a_cleared_fault_is_started_again(
    file: Path, kind: str, unit: str
) -> None:
    node = RunningNode("gpu01", "none", file, undo={"unit": unit})
    KINDS[kind].inject(node)
    KINDS[kind].clear(node)
    assert ("restart nvidia-fabricmanager" in node.undo.get("told", "")) is (unit == "failed")


@pytest.mark.parametrize("kind", ["nvlink-down", "nvlink-errors", "mig-enabled", "toolkit-broken"])
def test_what_the_hardware_lacks_cannot_be_broken(file: Path, kind: str) -> None:
    profile = "a100-pcie-40gb" if KINDS[kind].scope == "gpu" else "none"
    built = hardware.build(profile, "gpu01")
    if kind == "mig-enabled" and built.gpu_model is not None:
        built.gpu_model = built.gpu_model.model_copy(update={"mig_capable": False})
    hardware.save(built, file)
    gpu = 2 if KINDS[kind].scope == "gpu" else None
    before = file.read_text()
    target = StoppedNode("gpu01", "none", file, gpu)
    with pytest.raises(ClusterctlError) as caught:
        KINDS[kind].inject(target)
    assert caught.value.code == "lab.nothing-to-break"
    KINDS[kind].clear(target)
    assert file.read_text() == before


@pytest.mark.parametrize(
    ("kind", "other"), [("nvlink-down", "nvlink-errors"), ("nvlink-errors", "nvlink-down")]
)
def test_clearing_one_fault_of_the_links_leaves_the_other(target: FaultTarget, kind: str, other: str) -> None:
    KINDS[other].inject(target)
    before = target.hardware_file.read_text()
    KINDS[kind].inject(target)
    KINDS[kind].clear(target)
    assert target.hardware_file.read_text() == before


def test_a_hidden_gpu_is_the_last_and_the_cdi_specification_is_made_anew(file: Path) -> None:
    node = RunningNode("gpu01", "none", file)
    KINDS["toolkit-broken"].inject(node)
    assert hardware.load(file).toolkit_hides == [7]
    assert "nvidia-cdi-refresh" in node.undo["told"]


def test_an_xid_reads_as_the_drivers_own_and_every_entry_is_whole(file: Path) -> None:
    from clustercheck.parse.kernel_log import parse_line

    node = RunningNode("gpu01", "none", file, gpu=6)
    KINDS["xid"].inject(node)
    entries = node.undo["stdin"].split("\n\n")
    assert entries.pop() == ""  # journald drops an entry that no empty line ends
    messages = [entry.partition("MESSAGE=")[2] for entry in entries]
    found = [one for one in map(parse_line, messages) if one is not None]
    assert [(one.address, one.code, one.switch) for one in found] == [("0000:b7:00.0", XID, False)]
    assert all("_TRANSPORT=kernel" in entry and "_BOOT_ID=@BOOT@" in entry for entry in entries)
    assert "lab-xid-gpu6" in node.undo["told"]


def test_a_pcie_error_reads_as_the_kernels_own_and_is_its_gpus(file: Path) -> None:
    from clustercheck.parse.kernel_log import unnumbered_fault

    node = RunningNode("gpu01", "none", file, gpu=6)
    KINDS["pcie-error"].inject(node)
    (entry, end) = node.undo["stdin"].split("\n\n")
    found = unnumbered_fault(entry.partition("MESSAGE=")[2])
    assert end == "" and found is not None
    assert (found.address, found.fault) == ("0000:b7:00.0", "uncorrected PCI Express error")
    KINDS["pcie-error"].clear(node)
    assert node.undo["told"].rstrip().endswith("lab-aer-gpu6")


def test_a_gpu_without_a_fabric_cannot_be_kept_out_of_it_and_the_hardware_that_can_is_named(
    target: FaultTarget,
) -> None:
    fault = KINDS["fabric-not-joined"]
    before = target.hardware_file.read_text()
    with pytest.raises(ClusterctlError) as caught:
        fault.inject(target)
    assert caught.value.code == "lab.nothing-to-break" and f"--hardware {fault.hardware}" in caught.value.hint
    assert target.hardware_file.read_text() == before


@pytest.mark.parametrize("kind", ["sxid", "adapter-power-low"])
def test_a_message_of_a_device_wants_one_that_is_there(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "hardware.json"
    hardware.save(hardware.build("none", "gpu01"), path)
    with pytest.raises(ClusterctlError) as caught:
        KINDS[kind].inject(RunningNode("gpu01", "none", path))
    assert caught.value.code == "lab.nothing-to-break"


def test_an_xid_is_cleared_of_its_own_gpu_alone_and_not_where_the_host_is_off(file: Path) -> None:
    node = RunningNode("gpu01", "none", file, gpu=6)
    KINDS["xid"].clear(node)
    assert node.undo["told"].rstrip().endswith("lab-xid-gpu6")
    KINDS["xid"].clear(StoppedNode("gpu01", "none", file, gpu=6))
