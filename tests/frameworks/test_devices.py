"""The programs for one device with PyTorch and with Paddle, small, on this machine's processor."""

from __future__ import annotations

import importlib
import math

import pytest
from tests.support.phases import Phases

from clustercheck.jobs import bench as benches
from clustercheck.jobs import gpu_burn, gpu_gemm, gpu_launch, gpu_memory, gpu_transfer
from clustercheck.jobs.device import load

PROGRAMS = {
    "gpu_gemm": gpu_gemm,
    "gpu_memory": gpu_memory,
    "gpu_transfer": gpu_transfer,
    "gpu_launch": gpu_launch,
    "gpu_burn": gpu_burn,
}
SMALL = {"samples": 2, "launches": 20, "seconds": 0.3, "gemm_size": 64, "copy_bytes": 1 << 20,
         "transfer_bytes": 1 << 20, "pattern_bytes": 1 << 18}  # fmt: skip
FRAMEWORKS = [pytest.param(name, marks=getattr(pytest.mark, name)) for name in ("torch", "paddle")]

pytestmark = pytest.mark.parametrize("framework", FRAMEWORKS)


def run(program: str, device: object, **arguments) -> dict:
    bench = benches.Bench(device, Phases(), place="cpu")
    return PROGRAMS[program].run(bench, {**SMALL, **arguments})


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_is_right_and_measured(framework, program):
    device = load("cpu", {"framework": framework}, {})
    found = run(program, device)
    assert (found["ok"], found["because"]) == (True, "")
    assert all(figure["value"] > 0 for figure in found["figures"])
    described = benches.Bench(device, Phases(), place="cpu").describe()
    assert described["simulated"] is False
    assert described["framework"].startswith(framework)
    assert described["properties"]["kind"] == "cpu"


def test_every_precision_that_is_offered_is_within_its_tolerance(framework):
    device = load("cpu", {"framework": framework}, {})
    found = run("gpu_gemm", device, gemm_size=96)
    assert [figure["metric"] for figure in found["figures"]] == [f"gemm_{p}" for p in device.precisions]
    assert all(figure["max_part_of_tolerance"] <= 1 for figure in found["figures"])


def test_one_wrong_element_is_found_wherever_it_is(framework):
    device = load("cpu", {"framework": framework}, {})
    honest = device.matmul

    def wrong(left, right, out, precision):
        product = honest(left, right, out, precision)
        product[37, 21] = product[37, 21] + 1
        return product

    device.matmul = wrong
    found = run("gpu_gemm", device, precisions=["fp32"])
    assert found["ok"] is False
    assert "(37, 21)" in found["because"]


def test_a_nan_is_found(framework):
    device = load("cpu", {"framework": framework}, {})
    honest = device.matmul

    def wrong(left, right, out, precision):
        product = honest(left, right, out, precision)
        product[0, 0] = math.nan
        return product

    device.matmul = wrong
    for program in ("gpu_gemm", "gpu_burn"):
        assert run(program, device, precisions=["fp32"], precision="fp32")["ok"] is False


def test_an_output_that_is_not_written_is_poison(framework):
    device = load("cpu", {"framework": framework}, {})
    device.matmul = lambda left, right, out, precision: out
    assert "nan where" in run("gpu_gemm", device, precisions=["fp32"])["because"]


def test_a_flipped_bit_of_memory_has_its_address(framework):
    device = load("cpu", {"framework": framework}, {})
    honest, blocks, bit = device.write_words, [], device.words(1)
    honest(bit, 16, 0)

    def flips(buffer, start, step):
        honest(buffer, start, step)
        blocks.append(buffer)
        buffer[1234:1235] = buffer[1234:1235] | bit

    device.write_words = flips
    test = run("gpu_memory", device, parts=["patterns"])["pattern_test"]
    assert test["errors"] > 30
    assert test["bits_in_error"] == "0x00000010"
    assert test["first_errors"][0] == {
        "pattern": "0x00000000",
        "address": f"0x{device.address(blocks[0]) + 4 * 1234:x}",
        "expected": "0x00000000",
        "found": "0x00000010",
    }


def test_bytes_that_do_not_arrive_are_found(framework):
    device = load("cpu", {"framework": framework}, {})
    honest = device.copy

    def loses(source, target):
        honest(source, target)
        target[100] = 0

    device.copy = loses
    found = run("gpu_transfer", device, transfer_bytes=4096)
    assert found["ok"] is False
    assert "1 of 4096 bytes" in found["because"]
    device.copy = lambda source, target: None
    assert run("gpu_transfer", device, transfer_bytes=4096)["ok"] is False


def test_rows_move_round_and_values_are_those_of_the_matrix(framework):
    device = load("cpu", {"framework": framework}, {})
    matrix = device.random(6, 4, "bf16" if framework == "torch" else "fp32", 3)
    whole = device.values(matrix, range(6), ())
    assert device.values(device.rolled(matrix, 2), range(6), ()) == [*whole[4:], *whole[:4]]
    assert device.values(device.rolled(matrix, 0), range(6), ()) == whole
    assert device.values(matrix, (), [1, 3]) == [[row[1], row[3]] for row in whole]
    assert device.values(matrix, [5, 0], [2]) == [[whole[5][2]], [whole[0][2]]]
    assert all(-1 <= value <= 1 for row in whole for value in row)
    assert device.values(device.random(6, 4, "fp64", 3), range(6), ()) != whole
    again = device.random(6, 4, "bf16" if framework == "torch" else "fp32", 3)
    assert device.differences(matrix, again, 0.0, 5).count == 0


def test_differences_count_what_is_no_number_and_name_the_first_places(framework):
    device = load("cpu", {"framework": framework}, {})
    left, right = (device.random(50, 40, "fp32", 3) for _ in range(2))
    right[7, 9] = right[7, 9] + 0.5
    right[8, 0] = math.nan
    found = device.differences(left, right, 0.1, 1)
    assert (found.count, found.largest, found.first) == (2, None, (7 * 40 + 9,))
    assert device.differences(left, right, 1.0, 9).first == (320,)
    device.poison(left)
    assert device.differences(left, left, 1.0, 0).count == 2000


def test_pieces_do_not_hide_what_lies_in_a_later_one(framework, monkeypatch):
    device = load("cpu", {"framework": framework}, {})
    monkeypatch.setattr(importlib.import_module(type(device).__module__), "PIECE", 7)
    words = device.words(30)
    device.write_words(words, 5, 1)
    assert device.wrong_words(words, 5, 1, 9) == (0, [])
    words[20], words[29] = -1, -2
    assert device.wrong_words(words, 5, 1, 9) == (2, [(20, -1), (29, -2)])
    assert device.wrong_words(words, 5, 1, 1) == (2, [(20, -1)])
    for word in (0x55555555, -0x55555556, 2**31 - 1, -(2**31), 2**30 + 1):
        device.write_words(words, word, 0)
        assert words.tolist() == [word] * 30
        assert device.wrong_words(words, word, 0, 9) == (0, [])
    left, right = (device.random(5, 5, "fp32", 3) for _ in range(2))
    right[4, 4] = 9.0
    assert device.differences(left, right, 0.1, 3).first == (24,)
