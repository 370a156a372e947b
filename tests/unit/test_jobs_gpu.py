"""The programs for one device, on a played one: what is healthy passes, and every fault turns the verdict."""

from __future__ import annotations

import json
import math
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from tests.unit import played_device
from tests.unit.played_device import PlayedDevice

import clustercheck.jobs
from clustercheck.jobs import bench as benches
from clustercheck.jobs import gpu_burn, gpu_gemm, gpu_launch, gpu_memory, gpu_transfer, watch
from clustercheck.jobs.backends import driver
from clustercheck.jobs.device import MEMBERS, BackendError, load

JOBS = Path(clustercheck.jobs.__file__).parent
PLAYED = Path(played_device.__file__)
PROGRAMS = {
    "gpu_gemm": gpu_gemm,
    "gpu_memory": gpu_memory,
    "gpu_transfer": gpu_transfer,
    "gpu_launch": gpu_launch,
    "gpu_burn": gpu_burn,
}
SMALL = {"samples": 3, "launches": 20, "seconds": 1}


class Phases:
    """A Progress that is kept in memory."""

    def __init__(self) -> None:
        self.phases: list[str] = []

    @property
    def phase(self) -> str:
        return self.phases[-1]

    def at(self, phase: str, *, collective: bool = False) -> None:
        assert not collective or "waiting" in phase
        self.phases.append(phase)


@pytest.fixture(autouse=True)
def directory_of_the_job(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # where the GPUs of a node take turns


def bench_of(device: PlayedDevice) -> benches.Bench:
    return benches.Bench(device, Phases(), place="gpu:0")


def verdict(program: str, fault: str = "", device: PlayedDevice | None = None, **arguments) -> dict:
    played = device or PlayedDevice(fault)
    return PROGRAMS[program].run(bench_of(played), {**SMALL, **arguments})


def figures(found: dict) -> dict[str, dict]:
    return {figure["metric"]: figure for figure in found["figures"]}


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_healthy_device_passes_and_every_figure_says_how_it_was_measured(program):
    found = verdict(program)
    assert (found["ok"], found["because"]) == (True, "")
    assert found["figures"]
    for figure in found["figures"]:
        assert figure["minimum"] <= figure["value"] <= figure["maximum"]
        assert figure["value"] > 0
        assert figure["unit"] in {"TFLOPS", "GB/s", "us"}
        assert "median" in figure["method"]
    assert json.loads(json.dumps(found, allow_nan=False)) == found


@pytest.mark.parametrize(
    ("program", "fault", "words"),
    [
        ("gpu_gemm", "wrong-element", "elements differ when computed elsewhere: (3, 5)"),
        ("gpu_gemm", "wrong-once", "differ when the same product is computed again"),
        ("gpu_gemm", "nan-element", "fp64: "),
        ("gpu_gemm", "unwritten", "nan where"),
        ("gpu_gemm", "tf32-for-fp32", "fp32: "),
        ("gpu_memory", "wrong-copy", "1 numbers of a copy are not those of its source"),
        ("gpu_memory", "wrong-triad", "of a triad are not what the CPU computes"),
        (
            "gpu_memory",
            "stuck-bit",
            "words of memory did not hold what was written: 0x00000080 for 0x00000000",
        ),
        ("gpu_memory", "address-line", "words of memory did not hold what was written"),
        ("gpu_memory", "no-memory", "bytes could be allocated for the pattern test: out of memory"),
        (
            "gpu_transfer",
            "stuck-byte",
            "came back from the device otherwise than they went, the first at 11",
        ),
        ("gpu_transfer", "no-copy", "bytes came back from the device otherwise"),
        ("gpu_burn", "wrong-element", "elements differ when computed elsewhere: (3, 5)"),
        ("gpu_burn", "wrong-once", "elements differ from the first product's"),
        ("gpu_burn", "nan-element", "elements differ from the first product's"),
        ("gpu_burn", "stumbles", "the fastest 0.001"),
    ],
)
def test_what_is_wrong_turns_the_verdict(program, fault, words):
    found = verdict(program, fault)
    assert found["ok"] is False
    assert words in found["because"]
    json.dumps(found, allow_nan=False)


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("fault", ["nan-time", "no-time"])
def test_a_time_that_cannot_be_is_no_figure(program, fault):
    with pytest.raises(benches.MeasurementError, match="the timer says"):
        verdict(program, fault)


SLOW = {
    "gpu_gemm": {"floors": {"gemm_fp16": 0.0009}},
    "gpu_memory": {"floors": {"device_copy": 900, "device_triad": 900}},
    "gpu_transfer": {"floors": {"host_to_device": 21, "device_to_host": 21}},
    "gpu_launch": {"ceilings": {"kernel_launch_event": 10}},
    "gpu_burn": {"floors": {"burn_bf16": 0.0009}},
}


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_slow_device_falls_below_what_is_asked(program):
    assert verdict(program, **SLOW[program])["ok"] is True
    found = verdict(program, "slow", **SLOW[program])
    assert found["ok"] is False
    assert "is asked" in found["because"]


def test_what_is_asked_and_was_not_measured_is_not_met():
    found = verdict("gpu_transfer", floors={"device_copy": 1})
    assert found["because"] == "device_copy was not measured, at least 1 is asked"


def test_tflops_are_two_n_cubed_by_the_devices_clock():
    found = figures(verdict("gpu_gemm", precisions=["fp32"]))["gemm_fp32"]
    assert found["flops"] == 2 * 24**3
    assert found["value"] == pytest.approx(played_device.TFLOPS)
    assert found["poisoned"] is True
    assert found["elements_compared"] >= 256


def test_a_copy_counts_twice_a_triad_three_times_and_a_transfer_once():
    found = figures(verdict("gpu_memory")) | figures(verdict("gpu_transfer"))
    assert found["device_copy"]["value"] == pytest.approx(played_device.COPY_GBPS)
    assert found["device_triad"]["value"] == pytest.approx(played_device.COPY_GBPS)
    assert found["host_to_device"]["value"] == pytest.approx(played_device.LINK_GBPS)
    assert "copy engine, pinned memory" in found["device_to_host"]["method"]
    assert gpu_memory.copy_bytes(10) == 20
    assert gpu_memory.triad_bytes(10) == 30


def test_launches_are_timed_by_events_by_the_wall_clock_and_in_a_row():
    found = figures(verdict("gpu_launch"))
    assert found["kernel_launch_event"]["value"] == pytest.approx(5.0)
    assert found["kernel_launch_event"]["samples"] == 20
    assert found["kernel_launch_stream"]["value"] == pytest.approx(5.0)
    without = figures(verdict("gpu_launch", device=PlayedDevice(event_timing=False)))
    assert set(without) == {"kernel_launch_wall", "kernel_launch_stream"}


def test_a_precision_that_the_device_has_not_is_left_out_or_refused():
    half = PlayedDevice(precisions=("fp32",))
    assert set(figures(verdict("gpu_gemm", device=half))) == {"gemm_fp32"}
    found = verdict("gpu_gemm", device=half, precisions=["fp32", "bf16"])
    assert found["because"] == "bf16: Played GPU with played 1 has no such product"
    with pytest.raises(ValueError, match="no products in bf16"):
        verdict("gpu_burn", device=half, precision="bf16")


def test_buffers_that_fit_the_cache_are_refused():
    with pytest.raises(ValueError, match="L2 cache"):
        verdict("gpu_memory", device=PlayedDevice(l2_bytes=1 << 20))


def test_memory_errors_have_addresses_and_bits_and_are_all_counted():
    test = verdict("gpu_memory", "stuck-bit", parts=["patterns"])["pattern_test"]
    # Bit 7 is wanted clear by zeros, by 0x55555555 (0b0101), by every walking one but its own, and by one
    # walking zero; and 100 has it clear.
    assert test["errors"] == 1 + 1 + 31 + 1 + 1
    assert test["bits_in_error"] == "0x00000080"
    assert {error["address"] for error in test["first_errors"]} == {f"0x{0x7F0000000000 + 400:x}"}
    assert test["tested_bytes"] == test["asked_bytes"] == 4096
    assert test["patterns"] == 69


def test_words_that_land_elsewhere_show_only_where_each_has_its_own_number():
    test = verdict("gpu_memory", "address-line", parts=["patterns"])["pattern_test"]
    assert {error["pattern"] for error in test["first_errors"]} == {"own number"}
    assert test["errors"] == 512


def test_as_much_memory_is_tested_as_asked_for_in_blocks(monkeypatch):
    monkeypatch.setattr(gpu_memory, "BLOCK_BYTES", 1000)
    device = PlayedDevice()
    test = verdict("gpu_memory", device=device, parts=["patterns"], pattern_part=0.5)["pattern_test"]
    assert test["tested_bytes"] == device.free_bytes() // 2
    assert [len(block) for block in device.seen] == [250, 250, 250, 250, 24]
    found = verdict("gpu_memory", parts=["patterns"], pattern_bytes=1 << 20)
    assert found["ok"] is False
    assert "only 8000 of 1048576 bytes" in found["because"]
    with pytest.raises(ValueError, match="pattern_part"):
        verdict("gpu_memory", parts=["patterns"], pattern_part=1.5)
    with pytest.raises(ValueError, match="no part speed"):
        verdict("gpu_memory", parts=["speed"])


def test_a_burn_tells_throughput_over_time_and_counts_errors():
    found = verdict("gpu_burn", seconds=2)["burn"]
    assert found["seconds"] >= 2
    assert found["errors"] == 0
    assert [window["wrong"] for window in found["windows"]] == [0] * len(found["windows"])
    assert len(found["windows"]) >= 10
    assert found["windows"][0]["tflops"] == pytest.approx(played_device.TFLOPS)
    assert len(verdict("gpu_burn", seconds=600)["burn"]["windows"]) <= gpu_burn.MOST_WINDOWS + 1
    assert verdict("gpu_burn", "stumbles", steady=0.2)["ok"] is True
    assert verdict("gpu_burn", "wrong-once")["burn"]["errors"] == 1


def test_memory_is_taken_near_the_device(tmp_path, monkeypatch):
    chosen = []
    monkeypatch.setattr(gpu_transfer.os, "sched_getaffinity", lambda _: {0, 1, 2, 3})
    monkeypatch.setattr(gpu_transfer.os, "sched_setaffinity", lambda _, cpus: chosen.append(cpus))
    place = tmp_path / "0000:17:00.0"
    place.mkdir()
    (place / "numa_node").write_text("1\n")
    (place / "local_cpulist").write_text("2-3,8-11\n")
    with gpu_transfer.near("0000:17:00.0", tmp_path) as where:
        assert where == "on NUMA node 1"
        assert chosen == [{2, 3}]
    assert chosen == [{2, 3}, {0, 1, 2, 3}]
    (place / "local_cpulist").write_text("8-11\n")
    with gpu_transfer.near("0000:17:00.0", tmp_path) as where:
        assert where == "not on NUMA node 1: none of its CPUs is allowed here"
    (place / "numa_node").write_text("-1\n")
    with gpu_transfer.near("0000:17:00.0", tmp_path) as where:
        assert where == "no NUMA nodes"
    with gpu_transfer.near(None, tmp_path) as where:
        assert where == "NUMA node not known"
    assert len(chosen) == 2


# As processes: the programs by rank.py, with a backend from outside.


def ranked(tmp_path: Path, program: str, *, environment: dict, **arguments) -> tuple[int, dict]:
    directory = tmp_path / program
    shutil.copytree(JOBS, directory, ignore=shutil.ignore_patterns("__pycache__", "__init__.py"))
    (directory / "backends" / "__init__.py").touch()
    (directory / "arguments.json").write_text(json.dumps({**SMALL, **arguments}))
    set_ = {"PADDLE_TRAINER_ID": "3", "PADDLE_TRAINERS_NUM": "8", "CLUSTERCTL_GPU": "3", "PATH": "/nowhere"}
    argv = [sys.executable, str(directory / "rank.py"), str(directory), program]
    done = subprocess.run(argv, env={**set_, **environment}, capture_output=True, timeout=60, check=False)
    return done.returncode, json.loads((directory / "rank-3.verdict.json").read_text())


def test_a_backend_plugs_in_by_the_environment_and_says_that_it_is_simulated(tmp_path):
    environment = {"CLUSTERCTL_DEVICE_BACKEND": str(PLAYED), "NVIDIA_TF32_OVERRIDE": "0"}
    code, found = ranked(tmp_path, "gpu_transfer", environment=environment)
    assert (code, found["ok"]) == (0, True)
    assert found["simulated"] is True
    assert (found["rank"], found["world"], found["device"]) == (3, 1, "gpu:3")
    assert found["properties"] == {
        "name": "Played GPU",
        "kind": "gpu",
        "memory_bytes": 1 << 20,
        "sm_count": 8,
        "l2_bytes": 1 << 10,
        "pci_address": None,
        "rates": {},
    }
    assert found["framework"] == "played 1"


def test_a_device_that_raises_is_a_verdict_that_says_where(tmp_path):
    environment = {"PLAYED_FAULT": "raises"}
    code, found = ranked(tmp_path, "gpu_burn", environment=environment, backend=str(PLAYED))
    assert (code, found["ok"]) == (1, False)
    assert found["because"].startswith(
        "RuntimeError while first product in bf16: CUDA error: an illegal memory"
    )
    assert found["collective"] is False


def test_a_missing_framework_is_a_verdict_too(tmp_path):
    code, found = ranked(tmp_path, "gpu_gemm", environment={}, framework="jax")
    assert (code, found["ok"]) == (1, False)
    assert "there is no backend for the framework jax: paddle, torch" in found["because"]


def write(path: Path, text: str) -> str:
    path.write_text(text)
    return str(path)


def test_backends_that_do_not_keep_the_contract_are_refused(tmp_path):
    for text, words in (
        ("x = 1\n", "has no open_device"),
        ("def open_device(place):\n    return object()\n", "lacks name, kind"),
    ):
        with pytest.raises(BackendError, match=words):
            load("gpu:0", {"backend": write(tmp_path / "backend.py", text)}, {})
    silent = (
        f"import sys\nsys.path.insert(0, {str(PLAYED.parent)!r})\nfrom played_device import PlayedDevice\n"
    )
    silent += "def open_device(place):\n    return PlayedDevice(simulated=None)\n"
    with pytest.raises(BackendError, match="does not say whether it is simulated"):
        load("gpu:0", {"backend": write(tmp_path / "silent.py", silent)}, {})
    with pytest.raises(BackendError, match=r"there is no backend at /nowhere/b\.py"):
        load("gpu:0", {}, {"CLUSTERCTL_DEVICE_BACKEND": "/nowhere/b.py"})
    with pytest.raises(BackendError, match="cannot be imported"):
        load("gpu:0", {"backend": "no_such_module"}, {})


def test_the_arguments_backend_goes_before_the_environments():
    named = {"backend": "tests.unit.played_device"}
    assert load("gpu:0", named, {"CLUSTERCTL_DEVICE_BACKEND": "/nowhere/b.py"}).name == "Played GPU"
    assert all(hasattr(PlayedDevice(), name) for name in MEMBERS)
    assert len(MEMBERS) > 30


def test_a_processor_does_not_pass_for_the_gpu_that_was_asked_for(monkeypatch):
    monkeypatch.setenv("CLUSTERCTL_GPU", "0")
    monkeypatch.setenv("PADDLE_TRAINER_ID", "0")
    monkeypatch.setattr(played_device, "open_device", lambda _: PlayedDevice(kind="cpu", name="a CPU"))
    with pytest.raises(BackendError, match="asked for gpu:0, the backend gave a CPU: a cpu"):
        benches.open_bench(Phases(), {"backend": "tests.unit.played_device"}, simulated=False)


def test_a_driver_that_says_it_is_simulated_is_believed(monkeypatch):
    device = PlayedDevice(simulated=False)
    assert benches.Bench(device, Phases(), place="gpu:0", simulated=True).describe()["simulated"] is True
    assert benches.Bench(device, Phases(), place="gpu:0").describe()["simulated"] is False


def test_figures_that_are_no_numbers_are_refused():
    for values in ([], [math.nan], [1.0, math.inf]):
        with pytest.raises(benches.MeasurementError):
            benches.figure("x", values, "us", "median")


class Cuda:
    """The driver's functions, one of which may refuse."""

    def __init__(self, refuses: str = "") -> None:
        self._refuses = refuses

    def _answer(self, name: str) -> int:
        return 999 if name == self._refuses else 0

    def cuInit(self, flags):
        return self._answer("cuInit")

    def cuDeviceGet(self, device, number):
        device._obj.value = number + 10
        return self._answer("cuDeviceGet")

    def cuDeviceGetPCIBusId(self, text, length, device):
        assert device.value == 12
        assert length == len(text)
        text.value = b"0000:3B:00.0"
        return self._answer("cuDeviceGetPCIBusId")

    def cuDeviceGetAttribute(self, value, attribute, device):
        assert (attribute, device.value) == (38, 12)
        value._obj.value = 41943040
        return self._answer("cuDeviceGetAttribute")

    def cuMemGetInfo_v2(self, free, total):
        free._obj.value, total._obj.value = 3 << 32, 5 << 32
        return self._answer("cuMemGetInfo_v2")


def test_the_driver_tells_what_paddle_does_not():
    device = driver.Driver(2, Cuda())
    told = (device.pci_address(), device.l2_bytes(), device.free_bytes())
    assert told == ("0000:3b:00.0", 41943040, 3 << 32)
    for name, place in (("cuDeviceGetPCIBusId", 0), ("cuDeviceGetAttribute", 1), ("cuMemGetInfo_v2", 2)):
        device = driver.Driver(2, Cuda(name))
        each = (device.pci_address(), device.l2_bytes(), device.free_bytes())
        assert [i for i, one in enumerate(each) if one is None] == [place]
    for name in ("cuInit", "cuDeviceGet"):
        device = driver.Driver(2, Cuda(name))
        assert (device.pci_address(), device.l2_bytes(), device.free_bytes()) == (None, None, None)


def test_a_machine_without_the_driver_tells_nothing(monkeypatch):
    monkeypatch.setattr(driver, "LIBRARY", "libnone.so.0")
    device = driver.Driver(0)
    assert (device.pci_address(), device.l2_bytes(), device.free_bytes()) == (None, None, None)


@pytest.mark.parametrize("fault", ["", "raises"])
def test_several_programs_share_a_process_and_each_has_a_verdict(tmp_path, fault):
    programs = [
        {"job": name, "program": name.partition("2")[0], "arguments": {**SMALL, "copy_bytes": 1 << 16}}
        for name in ("gpu_gemm", "gpu_transfer", "gpu_gemm2")
    ]
    code, found = ranked(
        tmp_path, "gpu_programs", environment={"PLAYED_FAULT": fault}, backend=str(PLAYED), programs=programs
    )
    assert code == 0 and list(found["programs"]) == ["gpu_gemm", "gpu_transfer", "gpu_gemm2"]
    assert found["ok"] is (fault == "")
    assert found["programs"]["gpu_transfer"]["ok"] is True
    if fault:
        broken = found["programs"]["gpu_gemm"]
        assert broken["raised"] == "RuntimeError"
        assert broken["because"].startswith("RuntimeError while gpu_gemm: ")
    assert "phase" not in found


def test_gpus_that_share_a_way_take_turns_and_say_so_while_they_wait(tmp_path):
    seen = []
    first, second = bench_of(PlayedDevice()), bench_of(PlayedDevice())
    with first.turn("transfers on NUMA node 0", tmp_path):
        other = threading.Thread(
            target=lambda: [seen.append("ran") for _ in [0] if _turn_of(second, tmp_path)], daemon=True
        )
        other.start()
        other.join(0.3)
        assert other.is_alive() and seen == []
    other.join(10)
    assert seen == ["ran"]


def _turn_of(bench, directory) -> bool:
    with bench.turn("transfers on NUMA node 0", directory):
        return True


SMI = """<?xml version="1.0" ?><nvidia_smi_log><gpu id="00000000:07:00.0">
<pci><pci_gpu_link_info><pcie_gen><max_link_gen>4</max_link_gen><current_link_gen>{generation}</current_link_gen>
</pcie_gen><link_widths><max_link_width>16x</max_link_width><current_link_width>16x</current_link_width>
</link_widths></pci_gpu_link_info></pci>
<clocks_event_reasons><clocks_event_reason_gpu_idle>Not Active</clocks_event_reason_gpu_idle>
<clocks_event_reason_hw_slowdown>Active</clocks_event_reason_hw_slowdown></clocks_event_reasons>
<ecc_errors><volatile><sram_correctable>5</sram_correctable><dram_uncorrectable>{errors}</dram_uncorrectable>
</volatile><aggregate><dram_uncorrectable>90</dram_uncorrectable></aggregate></ecc_errors>
<temperature><gpu_temp>71 C</gpu_temp></temperature>
<gpu_power_readings><power_draw>N/A</power_draw><instant_power_draw>398.5 W</instant_power_draw>
</gpu_power_readings><clocks><sm_clock>1245 MHz</sm_clock></clocks></gpu></nvidia_smi_log>"""


def test_what_nvidia_smi_says_meanwhile_is_kept_as_extremes_and_errors_before_and_after(tmp_path):
    for number, (generation, errors) in enumerate(((1, 0), (4, 2)), 1):
        (tmp_path / f"{number}.xml").write_text(SMI.format(generation=generation, errors=errors))
    script = tmp_path / "nvidia-smi"
    script.write_text(
        f'#!/bin/sh\necho "$@" >> {tmp_path}/asked\ncat {tmp_path}/$(wc -l < {tmp_path}/asked).xml\n'
    )
    script.chmod(0o755)
    with watch.Watch("0000:07:00.0", str(script)) as watching:
        pass
    told = watching.told()
    assert (told["samples"], told["because"]) == (2, "")
    assert (told["pcie_generation"], told["pcie_generation_possible"], told["pcie_width"]) == (4, 4, 16)
    assert (told["uncorrected_before"], told["uncorrected_after"]) == (0, 2)
    assert told["reasons"] == ["hw_slowdown"]
    assert (told["temperature_c"], told["power_w"]) == (71, 398.5)
    assert (tmp_path / "asked").read_text().splitlines() == ["-q -x -i 0000:07:00.0"] * 2


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("echo 'No devices were found'; exit 6", "No devices were found"),
        ("echo '<nvidia_smi_log><gpu>'", "no whole XML"),
        ("echo '<nvidia_smi_log/>'", "shows 0 GPUs"),
        ("exec sleep 60", "did not answer"),
    ],
)
def test_a_watch_that_sees_nothing_says_why_and_holds_nobody_up(tmp_path, monkeypatch, script, words):
    monkeypatch.setattr(watch, "LIMIT_S", 0.5)
    program = tmp_path / "nvidia-smi"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    with watch.Watch("0000:07:00.0", str(program)) as watching:
        pass
    assert watching.told()["samples"] == 0
    assert words in watching.told()["because"]
    with watch.Watch(None) as blind:
        pass
    assert blind.told() == {"samples": 0, "because": "the device's PCI address is not known"}


def test_the_driver_tells_the_rates_that_ceilings_are_made_of():
    class Library:
        def __getattr__(self, name):
            return lambda *arguments: 0

        def cuDeviceGetAttribute(self, value, number, device):
            known = {13: 1410000, 36: 1593000, 37: 5120, 75: 8, 76: 0}
            value._obj.value = known.get(number, 0)
            return 0 if number in known else 1

    assert driver.Driver(0, Library()).rates() == {
        "sm_clock_khz": 1410000,
        "memory_clock_khz": 1593000,
        "memory_bus_bits": 5120,
        "compute_capability": 80,
    }
