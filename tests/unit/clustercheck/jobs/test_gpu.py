"""The programs for one device, on a played one: what is healthy passes, and every fault turns the verdict."""

from __future__ import annotations

import json
import math
import threading

import pytest
from tests.support import played_device
from tests.support.phases import Phases
from tests.support.played_device import PlayedDevice

from clustercheck.jobs import bench as benches
from clustercheck.jobs import gpu_burn, gpu_gemm, gpu_launch, gpu_memory, gpu_transfer

PROGRAMS = {
    "gpu_gemm": gpu_gemm,
    "gpu_memory": gpu_memory,
    "gpu_transfer": gpu_transfer,
    "gpu_launch": gpu_launch,
    "gpu_burn": gpu_burn,
}
SMALL = {"samples": 3, "launches": 20, "seconds": 1}


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
def test_a_healthy_device_passes_and_every_figure_has_its_method(program):
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
        ("gpu_gemm", "wrong-element", "elements differ when recomputed elsewhere: (3, 5)"),
        ("gpu_gemm", "wrong-once", "differ when the same product is recomputed"),
        ("gpu_gemm", "nan-element", "fp64: "),
        ("gpu_gemm", "unwritten", "nan where"),
        ("gpu_gemm", "tf32-for-fp32", "fp32: "),
        ("gpu_memory", "wrong-copy", "1 values of a copy differ from its source"),
        ("gpu_memory", "wrong-triad", "of a triad differ from the CPU's"),
        (
            "gpu_memory",
            "stuck-bit",
            "words of memory did not hold the written data: 0x00000080 for 0x00000000",
        ),
        ("gpu_memory", "address-line", "words of memory did not hold the written data"),
        ("gpu_memory", "no-memory", "bytes could be allocated for the pattern test: out of memory"),
        (
            "gpu_transfer",
            "stuck-byte",
            "came back from the device corrupted, the first at 11",
        ),
        ("gpu_transfer", "no-copy", "bytes came back from the device corrupted"),
        ("gpu_burn", "wrong-element", "elements differ when recomputed elsewhere: (3, 5)"),
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
    with pytest.raises(benches.MeasurementError, match="the timer returned"):
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
    assert "; expected at " in found["because"]


def test_what_is_asked_and_was_not_measured_is_not_met():
    found = verdict("gpu_transfer", floors={"device_copy": 1})
    assert found["because"] == "device_copy not measured; expected at least 1"


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
    assert found["because"] == "bf16: Played GPU with played 1 does not support it"
    with pytest.raises(ValueError, match="does not support products in bf16"):
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
    with pytest.raises(ValueError, match="unknown part: speed"):
        verdict("gpu_memory", parts=["speed"])


@pytest.mark.parametrize(("part", "steady"), [(0.665, False), (0.735, True)])  # 5 % beyond 0.7, and within
def test_a_window_far_below_the_fastest_is_unsteady(part, steady):
    found = verdict("gpu_burn", device=PlayedDevice("stumbles", slower=1 / part), seconds=2)
    windows = [window["tflops"] for window in found["burn"]["windows"]]
    assert min(windows) / max(windows) == pytest.approx(part, abs=0.01)
    assert found["ok"] is steady


def test_a_burn_tells_throughput_over_time_and_counts_errors():
    found = verdict("gpu_burn", seconds=2)["burn"]
    assert found["seconds"] >= 2
    assert found["errors"] == 0
    assert [window["wrong"] for window in found["windows"]] == [0] * len(found["windows"])
    assert len(found["windows"]) >= 10
    assert found["windows"][0]["tflops"] == pytest.approx(played_device.TFLOPS)
    assert len(verdict("gpu_burn", seconds=600)["burn"]["windows"]) <= gpu_burn.MAX_WINDOWS + 1
    with pytest.MonkeyPatch.context() as patch:  # products so short that no window is filled
        patch.setattr(gpu_burn.benches, "count_repeats", lambda _least_s, _once_s: 1)
        short = verdict("gpu_burn", "wrong-once", seconds=0.004, gemm_size=16)["burn"]
    assert 1 < len(short["windows"]) <= gpu_burn.MAX_WINDOWS
    assert sum(each["wrong"] for each in short["windows"]) == short["errors"] == 1
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
    with gpu_transfer.run_near("0000:17:00.0", tmp_path) as where:
        assert where == "on NUMA node 1"
        assert chosen == [{2, 3}]
    assert chosen == [{2, 3}, {0, 1, 2, 3}]
    (place / "local_cpulist").write_text("8-11\n")
    with gpu_transfer.run_near("0000:17:00.0", tmp_path) as where:
        assert where == "not on NUMA node 1: none of its CPUs is allowed here"
    (place / "numa_node").write_text("-1\n")
    with gpu_transfer.run_near("0000:17:00.0", tmp_path) as where:
        assert where == "no NUMA nodes"
    with gpu_transfer.run_near(None, tmp_path) as where:
        assert where == "NUMA node unknown"
    assert len(chosen) == 2


def test_figures_that_are_no_numbers_are_refused():
    for values in ([], [math.nan], [1.0, math.inf]):
        with pytest.raises(benches.MeasurementError):
            benches.make_figure("x", values, "us", "median")


def test_gpus_that_share_a_way_take_turns_and_say_so_while_they_wait(tmp_path):
    way, says, came = "transfers on NUMA node 0", Phases(), threading.Event()

    def take_turn():
        with benches.Bench(PlayedDevice(), says, place="gpu:1").take_turn(way, tmp_path):
            came.set()

    other = threading.Thread(target=take_turn, daemon=True)
    with bench_of(PlayedDevice()).take_turn(way, tmp_path):
        other.start()
        assert not came.wait(0.3)
        assert says.phases == [f"waiting for its turn on {way}"]
    assert came.wait(10)
    assert says.phase == f"its turn on {way}"
