"""nccl-tests' table and JSON: right on what it prints, and refused wherever figures contradict each other."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.mutations import FUZZ, meddled, misprinted, read_or_refused

from clustercheck.checks.nccl_tests import read_run
from clustercheck.parse.nccl_tests import NcclTest
from clustercheck.parse.nccl_tests_json import parse_nccl_tests_json
from clustercheck.parse.nccl_tests_text import parse_nccl_tests
from clustercheck.parse.reading import CannotReadError

# Made by hand in the form that version 2.18 prints (its src/util.cu), for two nodes of eight A100.
RANKS = "".join(
    f"#  Rank {n:2} Group  0 Pid {1584 + n:6} on inst-{n // 8} device {n % 8:2} "
    f"[0000:{7 + 8 * (n % 8):02x}:00] NVIDIA A100-SXM4-40GB\n"
    for n in range(16)
)
ALL_REDUCE = f"""\
Warning: Permanently added 'inst-1' to the list of known hosts.
# nccl-tests version 2.18.3 nccl-headers=23003 nccl-library=23003
# Collective test starting: all_reduce_perf
# nThread 1 nGpus 1 minBytes 8388608 maxBytes 536870912 step: 4(factor) warmup iters: 1 iters: 20 agg iters: 1 \
validation: 1 graph: 0 unalign: 0
#
# Using devices
{RANKS}NCCL version 2.30.3+cuda13.1
#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             (us)  (GB/s)  (GB/s)
     8388608       2097152     float     sum      -1   271.30   30.92   57.98       0   268.90   31.20   58.49       0
inst-0:1584:1584 [0] NCCL INFO Launch mode Parallel
    33554432       8388608     float     sum      -1   551.42   60.85  114.10       0   548.07   61.22  114.79       0
   134217728      33554432     float     sum      -1  1402.60   95.69  179.42       0  1399.10   95.93  179.87       0
   536870912     134217728     float     sum      -1  4898.50  109.60  205.50       0  4907.20  109.40  205.13       0
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 139.41
#
# Collective test concluded: all_reduce_perf

"""  # noqa: E501
# In the form of version 2.10 (its src/alltoall.cu): no root, an error in place of a count, no agg iters.
ALLTOALL = """\
# nThread 1 nGpus 2 minBytes 1048576 maxBytes 4194304 step: 4(factor) warmup iters: 5 iters: 20 validation: 1
#
# Using devices
#   Rank  0 Pid   9111 on node1 device  0 [0x07] A100-SXM4-40GB
#   Rank  1 Pid   9111 on node1 device  1 [0x0f] A100-SXM4-40GB
#
#                                                     out-of-place                       in-place
#       size         count    type   redop     time   algbw   busbw  error     time   algbw   busbw  error
#        (B)    (elements)                     (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
     1048576        131072   float            31.21   33.60   16.80  0e+00    30.88   33.95   16.98    N/A
     4194304        524288   float            64.55   64.98   32.49  0e+00    64.19   65.34   32.67    N/A
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 24.7337
#
""".replace("float            ", "float    none    ")


def json_of(ranks_a_process: int = 2) -> dict[str, Any]:
    """The same all-to-all as version 2.19 writes it with `-J` (its src/util.cu): the first rank a process."""

    def timing(time: float, algbw: float, wrong: float | None) -> dict[str, Any]:
        return {"time": time, "alg_bw": algbw, "bus_bw": algbw / 2, "nwrong": wrong}

    def row(size: int, first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
        return {
            "size": size, "count": size // 8, "type": "float", "redop": "none", "root": "    -1",
            "out_of_place": first, "in_place": second, "actual_iterations": 20, "experiment_name": "",
        }  # fmt: skip

    return {
        "version": 3,
        "start_time": "2026-11-20 10:00:00",
        "args": ["/opt/nccl-tests/build/alltoall_perf", "-J", "out.json"],
        "env": ["PATH=/usr/bin"],
        "nccl_version": 23003,
        "config": {
            "nthreads": 1, "ngpus": ranks_a_process, "minimum_bytes": 1048576, "maximum_bytes": 4194304,
            "step_factor": 4, "warmup_iters": 1, "iterations": 20, "aggregated_iterations": 1,
            "validation": 1, "graph": 0, "blocking_collectives": "false", "parallel_init": "false",
            "devices": [
                {"rank": n, "group": 0, "pid": 9111, "hostname": "node1", "device": n,
                 "device_hex": f"0000:0{7 + n}:00", "device_info": "NVIDIA A100-SXM4-40GB"}
                for n in range(0, 2, ranks_a_process)
            ],
        },
        "results": [
            row(1048576, timing(31.207001, 33.600665, 0.0), timing(30.884001, 33.952078, None)),
            row(4194304, timing(64.551002, 64.976590, 0.0), timing(64.192003, 65.339976, None)),
        ],
        "out_of_bounds": {"count": 0, "okay": "true"},
        "average_bus_bandwidth": {"bandwidth": 24.733664, "okay": "unchecked"},
        "errors": [],
        "end_time": "2026-11-20 10:00:09",
    }  # fmt: skip


JSON = json.dumps(json_of(), indent=1)


def read_all_reduce(text: str) -> NcclTest:
    return parse_nccl_tests(text, "all_reduce", 16)


def read_alltoall(text: str) -> NcclTest:
    return parse_nccl_tests(text, "alltoall", 2)


def read_json(text: str) -> NcclTest:
    return parse_nccl_tests_json(text, "alltoall", 2)


READERS = {read_all_reduce: ALL_REDUCE, read_alltoall: ALLTOALL, read_json: JSON}
EVERY = pytest.mark.parametrize("reader", list(READERS), ids=lambda reader: reader.__name__)


# --- what is printed is read


@pytest.mark.parametrize(
    ("name", "collective", "best"),
    [("allreduce-a100-8x.log", "all_reduce", 235.26), ("allgather-a100.log", "all_gather", 230.07)],
)
def test_the_captures_of_eight_a100(fixtures_dir: Path, name: str, collective: str, best: float) -> None:
    test = parse_nccl_tests((fixtures_dir / "nccl-tests" / name).read_text(), collective, 8)
    assert len(test.rows) == 34
    assert test.at(8 << 30).busbw == best
    assert not test.sweep.validated
    assert [device.device for device in test.devices] == list(range(8))


def test_a_run_over_two_nodes_is_read_among_other_programs_lines() -> None:
    test = read_all_reduce(ALL_REDUCE)
    assert [row.size_bytes for row in test.rows] == [8 << 20, 32 << 20, 128 << 20, 512 << 20]
    assert test.at(512 << 20).busbw == 205.50
    assert {device.host for device in test.devices} == {"inst-0", "inst-1"}
    assert test.devices[9].address == "0000:0f:00.0"
    assert (test.out_of_bounds, test.average_busbw, test.sweep.iterations) == (0, 139.41, 20)
    with pytest.raises(CannotReadError, match="0 times"):
        test.at(1 << 30)


def test_the_older_form_names_the_largest_error_and_not_the_count() -> None:
    test = read_alltoall(ALLTOALL)
    assert not test.counts_wrong
    assert test.at(1 << 20).in_place.wrong is None
    assert test.devices[1].address == ""


def test_a_column_that_is_empty_is_known_by_its_header() -> None:
    """Versions before 2.13 print nothing under redop for alltoall."""
    empty = ALLTOALL.replace("float    none    ", "float            ")
    assert empty != ALLTOALL
    test = read_alltoall(empty)
    assert [row.redop for row in test.rows] == ["", ""]
    assert [row.busbw for row in test.rows] == [row.busbw for row in read_alltoall(ALLTOALL).rows]
    with pytest.raises(CannotReadError):
        read_alltoall(ALLTOALL.replace("33.60", "     "))


@pytest.mark.parametrize("ranks_a_process", [1, 2])
def test_json_and_text_of_one_run_tell_the_same(ranks_a_process: int) -> None:
    test = read_json(json.dumps(json_of(ranks_a_process)))
    of_text = read_alltoall(ALLTOALL)
    assert [round(row.busbw, 2) for row in test.rows] == [row.busbw for row in of_text.rows]
    assert test.rows[0].out_of_place.wrong == 0
    assert test.rows[0].in_place.wrong is None


def test_times_of_each_iteration_and_of_the_clock_stand_beside_the_figures() -> None:
    names = "   i_min    i_max    i_p99    i_cv%"
    text = ALL_REDUCE.replace("#wrong     time", "#wrong" + names + "     time").replace(
        "#wrong\n", "#wrong" + names + " timestamp\n"
    )
    lines = [
        line.replace("       0  ", "       0   1.0  2.0  2.0  0.5  ")
        + "  1.0  2.0  2.0  0.5  2026-11-20 10:00:00"
        if " sum " in line
        else line
        for line in text.splitlines()
    ]
    assert read_all_reduce("\n".join(lines)).rows == read_all_reduce(ALL_REDUCE).rows


def test_wrong_elements_are_counted_in_rows_and_below_them() -> None:
    wrong = ALL_REDUCE.replace("57.98       0", "57.98      12").replace("values : 0 OK", "values : 1 FAILED")
    test = read_all_reduce(wrong)
    assert test.rows[0].out_of_place.wrong == 12
    assert test.out_of_bounds == 1


# --- what contradicts itself is refused


@pytest.mark.parametrize(
    ("instead_of", "stands", "says"),
    [
        ("205.50", "305.50", "by the formula for 16 ranks it is 205.50"),
        ("4898.50", "2449.25", "are not 109.60 GB/s"),
        ("109.60  205.50", "219.20  411.00", "are not 219.20 GB/s"),
        ("139.41", "149.41", "average bus bandwidth"),
        ("57.98       0", "57.98      12", "do not fit the rows"),
        ("values : 0 OK", "values : 3 FAILED", "do not fit the rows"),
        ("values : 0 OK", "values : 0 FAILED", "out of order or twice"),
        ("57.98       0", "57.98     N/A", "a row reports that they were not"),
        ("validation: 1", "validation: 0", "not to be checked"),
        ("134217728      33554432", "134217728      33554431", "are not 134217728 bytes"),
        ("maxBytes 536870912", "maxBytes 134217728", "bytes instead of"),
        ("maxBytes 536870912 step: 4", "maxBytes 536870912 step: 2", "bytes instead of"),
        ("Group  0 Pid   1590", "Group  1 Pid   1590", "several groups"),
        ("nGpus 1 ", "nGpus 3 ", "do not make 16 ranks"),
        ("float     sum      -1   551", "float    prod      -1   551", "bytes instead of"),
        ("   float ", "   flote ", "unknown type"),
        ("#wrong     time", "#falsch    time", "unknown columns"),
        ("60.85", "60,85", "not a number"),
        ("concluded: all_reduce_perf", "concluded: broadcast_perf", "not all_reduce's"),
        ("# Collective test concluded: all_reduce_perf", "", "a beginning without an end"),
    ],
)
def test_figures_that_contradict_each_other_are_refused(instead_of: str, stands: str, says: str) -> None:
    assert instead_of in ALL_REDUCE
    with pytest.raises(CannotReadError, match=says):
        read_all_reduce(ALL_REDUCE.replace(instead_of, stands))


@pytest.mark.parametrize(("collective", "ranks"), [("all_gather", 16), ("all_reduce", 8), ("all_reduce", 32)])
def test_a_run_that_was_not_asked_for_is_refused(collective: str, ranks: int) -> None:
    with pytest.raises(CannotReadError):
        parse_nccl_tests(ALL_REDUCE, collective, ranks)


def test_a_run_of_fewer_ranks_is_refused_where_the_formula_does_not_tell() -> None:
    text = ALLTOALL.replace("nGpus 2", "nGpus 1").replace("16.80", "33.60").replace("16.98", "33.95")
    text = text.replace("32.49", "64.98").replace("32.67", "65.34").replace("24.7337", "49.4673")
    text = text.replace("131072", "262144").replace(" 524288", "1048576")
    assert parse_nccl_tests(text, "broadcast", 2).ranks == 2
    with pytest.raises(CannotReadError, match="lists 1 ranks"):
        parse_nccl_tests(
            "\n".join(line for line in text.splitlines() if "Rank  1" not in line), "broadcast", 2
        )


@pytest.mark.parametrize(
    "change",
    [
        {"version": 4},
        {"version": "3"},
        {"args": []},
        {"args": ["all_reduce_perf"]},
        {"results": []},
        {"results": [None]},
        {"config": None},
        {"end_time": None},
        {"out_of_bounds": {"count": 0, "okay": "false"}},
        {"out_of_bounds": {"count": True, "okay": "true"}},
        {"average_bus_bandwidth": {"bandwidth": "nan"}},
        {"average_bus_bandwidth": {"bandwidth": 33.3}},
        {"results": list(reversed(json_of()["results"]))},
        {"results": json_of()["results"][:1]},
    ],
)
def test_json_that_is_not_whole_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(CannotReadError):
        read_json(json.dumps(json_of() | change))


# --- anything at all


@EVERY
@FUZZ
@given(data=st.data())
def test_after_a_mishap_the_same_figures_are_read_or_none(reader: Any, data: st.DataObject) -> None:
    whole = reader(READERS[reader])
    found = read_or_refused(reader, data.draw(meddled(READERS[reader])))
    if found is not None:
        assert (found.rows, found.out_of_bounds, found.average_busbw) == (
            whole.rows, whole.out_of_bounds, whole.average_busbw,
        )  # fmt: skip


@EVERY
@FUZZ
@given(data=st.data())
def test_a_wrong_digit_moves_no_bandwidth_that_is_judged(reader: Any, data: st.DataObject) -> None:
    whole = reader(READERS[reader])
    found = read_or_refused(reader, data.draw(misprinted(READERS[reader])))
    if found is not None:
        assert [row.size_bytes for row in found.rows] == [row.size_bytes for row in whole.rows]
        assert [row.busbw for row in found.rows] == pytest.approx([row.busbw for row in whole.rows], rel=2e-3)


@EVERY
@FUZZ
@given(text=st.text(max_size=300))
def test_any_text_is_refused(reader: Any, text: str) -> None:
    assert read_or_refused(reader, text) is None


@EVERY
@pytest.mark.parametrize(
    "text",
    ["", "[" * 100_000, "# " + "a/" * 200_000, "# Rank" + " " * 200_000, "9 " * (9 << 20), "x\n" * (1 << 20)],
)
def test_megabytes_of_something_else_are_refused(reader: Any, text: str) -> None:
    with pytest.raises(CannotReadError):
        reader(text)


def test_of_a_run_its_file_counts_before_what_it_printed() -> None:
    assert read_run({"json": JSON, "text": "nothing of it"}, "alltoall", 2) == read_json(JSON)
    assert read_run({"json": "{", "text": ALLTOALL}, "alltoall", 2) == read_alltoall(ALLTOALL)
    with pytest.raises(CannotReadError) as of_the_file:
        read_json("{")
    with pytest.raises(CannotReadError, match=re.escape(str(of_the_file.value))):
        read_run({"json": "{", "text": "nothing of it"}, "alltoall", 2)
