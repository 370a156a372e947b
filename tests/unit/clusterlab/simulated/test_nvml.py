"""The simulated nvidia-smi: elements, fields, tables, and the ways in which the real one fails."""

from __future__ import annotations

import json
import os
import re
import xml.etree.ElementTree as ET
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

import pytest

from clustercheck.parse.p2p import parse_peer_access
from clusterlab import hardware
from clusterlab.hardware.model import ClockReason
from clusterlab.simulated.nvml import health, smi
from clusterlab.simulated.nvml import node as nvml

ELEMENTS = Path(__file__).with_name("smi_elements.txt")
VERSION = "580.95.05"


@dataclass
class Machine:
    """A node's files under a directory of the test's own."""

    root: Path

    @property
    def paths(self) -> nvml.Paths:
        return nvml.Paths(self.root)

    def edit(self, change: Callable[[hardware.Hardware], None]) -> None:
        built = hardware.load(self.paths.hardware)
        change(built)
        hardware.save(built, self.paths.hardware)

    def load_driver(self, version: str = VERSION) -> None:
        module = self.paths.kernel / "modules/nvidia"
        module.parent.mkdir(parents=True, exist_ok=True)
        module.write_text(json.dumps({"version": version, "flavor": "open"}))

    def run(self, *arguments: str, library: str = VERSION) -> str:
        return smi.answer(list(arguments), library, self.paths)

    def fails(self, *arguments: str, library: str = VERSION) -> tuple[str, int]:
        with pytest.raises(nvml.NvmlError) as caught:
            self.run(*arguments, library=library)
        return str(caught.value), caught.value.code


def make(root: Path, profile: str = "hgx-a100-80gb", version: str = VERSION) -> Machine:
    machine = Machine(root)
    hardware.save(hardware.build(profile, "gpu01"), machine.paths.hardware)
    machine.load_driver(version)
    return machine


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return make(tmp_path)


def parse(text: str) -> ET.Element:
    return ET.fromstring(text)  # noqa: S314 - our own output, and captures that are fixtures


def element_paths(element: ET.Element, prefix: str = "") -> set[str]:
    found: set[str] = set()
    for child in element:
        path = f"{prefix}/{child.tag}"
        found |= {path} | element_paths(child, path)
    return found


def written_down(mark: str) -> set[str]:
    found = set()
    for line in ELEMENTS.read_text().splitlines():
        if line.startswith("#"):
            continue
        parent, children = line.split(": ")
        path, _, only = parent.partition(" @")
        if only in ("", mark):
            prefix = "" if path == "." else f"/{path}"
            found |= {f"{prefix}/{child}" for child in children.split()}
    return found


CAPTURES = {"a100-570": "a100-sxm4-40gb-1x.xml", "h100-580": "h100-8x.xml"}
LIKE = [("hgx-a100-40gb", "570.148.08", "a100-570"), ("h100-sxm5-80gb", "580.105.08", "h100-580")]


@pytest.mark.parametrize(("profile", "version", "mark"), LIKE)
def test_xml_has_the_elements_of_real_hardware(tmp_path: Path, profile: str, version: str, mark: str) -> None:
    printed = make(tmp_path, profile, version).run("-q", "-x", library=version)
    assert element_paths(parse(printed)) == written_down(mark) | {"/simulated"}


@pytest.mark.parametrize(("profile", "version", "mark"), LIKE)
def test_xml_has_the_elements_of_the_captures_in_their_order(
    tmp_path: Path, fixtures_dir: Path, profile: str, version: str, mark: str
) -> None:
    real = parse((fixtures_dir / "nvidia-smi" / CAPTURES[mark]).read_text())
    ours = parse(make(tmp_path, profile, version).run("-q", "-x", library=version))
    assert element_paths(ours) - element_paths(real) == {"/simulated"}
    assert element_paths(real) - element_paths(ours) == set()
    assert [e.tag for e in ours.find("gpu") or []] == [e.tag for e in real.find("gpu") or []]


@pytest.mark.parametrize("version", ["570.148.08", "580.95.05", "580.105.08"])
@pytest.mark.parametrize("profile", ["hgx-a100-80gb", "a100-pcie-40gb", "h100-sxm5-80gb"])
def test_xml_says_what_the_hardware_is(tmp_path: Path, profile: str, version: str) -> None:
    built = hardware.build(profile, "gpu01")
    root = parse(make(tmp_path, profile, version).run("-q", "-x", library=version))
    assert root.findtext("simulated") == "true"
    assert root.findtext("driver_version") == version
    assert root.findtext("attached_gpus") == str(len(built.gpus))
    assert [gpu.findtext("serial") for gpu in root.iter("gpu")] == [gpu.serial for gpu in built.gpus]
    assert [gpu.get("id") for gpu in root.iter("gpu")] == [
        f"0000{gpu.pci_address}".upper() for gpu in built.gpus
    ]


def test_injected_errors_are_seen(machine: Machine) -> None:
    def harm(built: hardware.Hardware) -> None:
        built.gpu(2).ecc.volatile.dram_uncorrectable = 3
        built.gpu(2).remapped_rows.failure = True
        built.gpu(2).clock_reasons = ["hw_slowdown", "hw_thermal_slowdown"]
        built.gpu(2).pcie.width = 8
        built.gpu(2).recovery_action = "Reset"

    machine.edit(harm)
    gpu = parse(machine.run("-q", "-x")).findall("gpu")[2]
    assert gpu.findtext("ecc_errors/volatile/dram_uncorrectable") == "3"
    assert gpu.findtext("remapped_rows/remapped_row_failure") == "Yes"
    assert gpu.findtext("clocks_event_reasons/clocks_event_reason_hw_thermal_slowdown") == "Active"
    assert gpu.findtext("clocks_event_reasons/clocks_event_reason_gpu_idle") == "Not Active"
    counted = "clocks_event_reasons_counters/clocks_event_reasons_counters_"
    assert gpu.findtext(f"{counted}hw_therm_slowdown") != "0 us"
    assert gpu.findtext(f"{counted}sw_therm_slowdown") == "0 us"
    assert gpu.findtext("pci/pci_gpu_link_info/link_widths/current_link_width") == "8x"
    assert gpu.findtext("gpu_recovery_action") == "Reset"
    fields = "ecc.errors.uncorrected.volatile.total,clocks_throttle_reasons.active,pcie.link.width.current"
    row = machine.run(f"--query-gpu={fields}", "--format=csv,noheader", "-i", "2")
    assert row == "3, 0x0000000000000048, 8\n"


def test_csv_has_header_and_units_unless_told(machine: Machine) -> None:
    query = "--query-gpu=index,name,memory.total,power.limit,simulated"
    lines = machine.run(query, "--format=csv").splitlines()
    assert lines[0] == "index, name, memory.total [MiB], power.limit [W], simulated"
    assert lines[1] == "0, NVIDIA A100-SXM4-80GB, 81920 MiB, 400.00 W, true"
    assert len(lines) == 9
    bare = machine.run(query, "--format=csv,noheader,nounits").splitlines()
    assert bare[7] == "7, NVIDIA A100-SXM4-80GB, 81920, 400.00, true"


def test_every_field_and_old_name_answers(machine: Machine) -> None:
    from clusterlab.simulated.nvml import query

    names = [*query.gpu_fields(), *query.ALIASES, "clocks_throttle_reasons.sw_power_cap"]
    row = machine.run(f"--query-gpu={','.join(names)}", "--format=csv,noheader", "-i", "0")
    assert len(row.split(", ")) == len(names)
    assert len(names) > 90


def test_an_unknown_field_is_refused_as_nvidia_does(machine: Machine) -> None:
    text, code = machine.fails("--query-gpu=name,serial_number", "--format=csv")
    assert (text.strip(), code) == ('Field "serial_number" is not a valid field to query.', 2)


def test_listing_names_the_gpus(machine: Machine) -> None:
    lines = machine.run("-L").splitlines()
    assert len(lines) == 8
    assert re.fullmatch(
        r"GPU 7: NVIDIA A100-SXM4-80GB \(UUID: GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\) \(simulated\)",
        lines[7],
    )


def test_a_missing_gpu_shifts_indices_but_not_slots(machine: Machine) -> None:
    machine.edit(lambda built: setattr(built.gpu(3), "state", "missing"))
    assert len(machine.run("-L").splitlines()) == 7
    root = parse(machine.run("-q", "-x"))
    assert [gpu.findtext("minor_number") for gpu in root.iter("gpu")] == list("0124567")
    assert [gpu.findtext("platformInfo/module_id") for gpu in root.iter("gpu")] == list("1235678")
    assert machine.run("--query-gpu=index", "--format=csv,noheader").split() == list("0123456")


def test_a_container_sees_the_gpus_whose_devices_it_has(machine: Machine) -> None:
    devices = machine.root / "dev"
    devices.mkdir()
    for name in ("nvidiactl", "nvidia2", "nvidia5"):
        (devices / name).touch()
    wanted = [hardware.load(machine.paths.hardware).gpu(index).uuid for index in (2, 5)]
    rows = machine.run("--query-gpu=index,uuid", "--format=csv,noheader").splitlines()
    assert rows == [f"0, {wanted[0]}", f"1, {wanted[1]}"]


def test_a_lost_gpu_fails_the_queries_that_want_it(machine: Machine) -> None:
    machine.edit(lambda built: setattr(built.gpu(6), "state", "lost"))
    text, code = machine.fails("-q", "-x")
    assert text.startswith("Unable to determine the device handle for GPU6: 0000:b7:00.0: GPU is lost.")
    assert code == 15
    assert machine.fails("-L")[1] == 15
    assert machine.run("--query-gpu=index", "--format=csv,noheader", "-i", "5") == "5\n"


def test_without_the_module_the_driver_cannot_be_reached(machine: Machine) -> None:
    (machine.paths.kernel / "modules/nvidia").unlink()
    text, code = machine.fails("-L")
    assert text.startswith("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.")
    assert code == 9


def test_user_space_of_another_version_is_a_mismatch(machine: Machine) -> None:
    text, code = machine.fails("-L", library="580.105.08")
    assert text.splitlines()[0] == "Failed to initialize NVML: Driver/library version mismatch"
    assert code == 18


def test_a_skewed_driver_is_another_version_and_no_mismatch(machine: Machine) -> None:
    machine.edit(lambda built: setattr(built, "driver_override", "580.82.07"))
    assert machine.run("--query-gpu=driver_version", "--format=csv,noheader", "-i", "0") == "580.82.07\n"


def test_no_gpu_at_all(machine: Machine) -> None:
    for index in range(8):
        machine.edit(lambda built, index=index: setattr(built.gpu(index), "state", "missing"))
    assert machine.fails("-q") == ("No devices were found", 6)


def test_nvlink_status_reads_as_real(machine: Machine) -> None:
    machine.edit(lambda built: setattr(built.gpu(1).nvlinks[4], "active", False))
    text = machine.run("nvlink", "-s")
    assert len(re.findall(r"^\s+Link \d+: 25 GB/s$", text, re.MULTILINE)) == 95
    assert re.findall(r"^\s+Link (\d+): <inactive>$", text, re.MULTILINE) == ["4"]
    assert machine.run("nvlink", "-e", "-i", "0").count("Replay Errors: 0") == 12


def test_nvlink_status_matches_the_capture(machine: Machine, fixtures_dir: Path) -> None:
    def shape(text: str) -> list[str]:
        return [re.sub(r"GPU-[0-9a-f-]+", "UUID", line.strip()) for line in text.strip().splitlines()]

    assert shape(machine.run("nvlink", "-s")) == shape(
        (fixtures_dir / "nvidia-smi/nvlink-status-a100.txt").read_text()
    )


def test_topology_is_a_square_of_links(machine: Machine) -> None:
    rows = [line.split("\t") for line in machine.run("topo", "-m").splitlines() if line.startswith("GPU")]
    assert len(rows) == 8
    for number, row in enumerate(rows):
        assert row[1 + number].strip() == "X"
        assert {cell for at, cell in enumerate(row[1:9]) if at != number} == {"NV12"}


def test_peer_access_reads_as_real(machine: Machine) -> None:
    for way in ("r", "w", "n"):
        assert parse_peer_access(machine.run("topo", "-p2p", way), 8).refused == ()
    machine.edit(lambda built: setattr(built.gpu(3), "peer_access", False))
    found = parse_peer_access(machine.run("topo", "-p2p", "r"), 8)
    assert len(found.refused) == 14 and all(3 in pair for pair in found.refused)
    assert {found.words[pair] for pair in found.refused} == {"CNS"}


def test_a_declared_process_makes_the_gpu_busy(machine: Machine) -> None:
    busy = hardware.Process(pid=4711, name="python train.py", used_memory_mib=30000)
    machine.edit(lambda built: setattr(built.gpu(4), "processes", [busy]))
    query = "--query-compute-apps=pid,process_name,used_memory"
    assert machine.run(query, "--format=csv,noheader") == "4711, python train.py, 30000 MiB\n"
    assert machine.run("--query-gpu=memory.used", "--format=csv,noheader", "-i", "4") == "30000 MiB\n"
    assert "python train.py" in machine.run()
    assert machine.fails("-r", "-i", "4")[1] == 19


def test_persistence_mode_is_kept_by_the_driver(machine: Machine) -> None:
    assert machine.run("-pm", "1", "-i", "0").startswith("Enabled persistence mode for GPU 00000000:07:00.0.")
    shown = machine.run("--query-gpu=persistence_mode", "--format=csv,noheader").splitlines()
    assert shown == ["Enabled"] + ["Disabled"] * 7


def test_the_command_prints_and_returns_the_code(
    machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    assert smi.main(["-L"], VERSION, machine.paths) == 0
    assert smi.main(["--query-gpu=x", "--format=csv"], VERSION, machine.paths) == 2
    assert 'Field "x" is not a valid field to query.' in capsys.readouterr().out


def test_every_clock_reason_that_hardware_can_have_is_one_that_nvidia_smi_knows() -> None:
    assert get_args(ClockReason) == health.REASONS


def test_a_gpu_of_another_model_says_so_wherever_its_name_stands(tmp_path: Path) -> None:
    machine = make(tmp_path)
    machine.edit(lambda node: setattr(node.gpu(3), "product_name", "NVIDIA A100-SXM4-40GB"))
    said = [
        machine.run("-L"),
        machine.run(),
        machine.run("-q", "-x"),
        machine.run("--query-gpu=name", "--format=csv"),
        machine.run("nvlink", "-s"),
    ]
    assert [text.count("A100-SXM4-40GB") for text in said] == [1] * len(said)
    assert [text.count("A100-SXM4-80GB") for text in said] == [7] * len(said)


def test_a_gpu_with_a_vbios_of_its_own_says_so_wherever_it_stands(machine: Machine) -> None:
    machine.edit(lambda node: setattr(node.gpu(3), "vbios_version", "92.00.36.00.01"))
    said = [machine.run(*asked) for asked in (("-q", "-x"), ("--query-gpu=vbios_version", "--format=csv"))]
    assert [(text.count("92.00.36.00.01"), text.count("92.00.A0.00.05")) for text in said] == [(1, 7)] * 2


def test_who_may_not_open_a_device_does_not_see_its_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = make(tmp_path)
    (tmp_path / "dev").mkdir()
    for name in ("nvidiactl", *(f"nvidia{number}" for number in range(8))):
        (tmp_path / "dev" / name).touch()
    monkeypatch.setattr(os, "access", lambda path, _mode: path.name != "nvidia3")
    assert machine.run("-L").count("GPU-") == 7
    monkeypatch.setattr(os, "access", lambda _path, _mode: False)
    assert machine.fails("-L") == ("No devices were found", 6)
