"""What one node's programs print takes time in proportion to its size, or is refused: others wait for it."""

from __future__ import annotations

import copy
import gc
import json
import time
from collections.abc import Callable
from dataclasses import replace

import pytest

from clustercheck.checks.all import BY_ID
from clustercheck.checks.base import evaluate
from clustercheck.evidence.node import NodeEvidence
from clustercheck.parse.infiniband import MOST_PORTS, parse_infiniband
from clustercheck.parse.nvidia_smi import MAX_ELEMENTS, MAX_PATH, parse_smi
from clustercheck.parse.nvlink import parse_nvlink
from clustercheck.parse.reading import CannotReadError
from clustercheck.samples import sample

NODE = "gpu02"
LONG = "a" * (MAX_PATH // 3 + 1)
Change = Callable[[dict, int], object]


def address(number: int, function: int = 0) -> str:
    return f"{number >> 13:08x}:{(number >> 5) & 255:02x}:{number & 31:02x}.{function}"


def smi(gpus: int, before: str = "", inside: str = "") -> str:
    listed = "".join(
        f'<gpu id="{address(number)}"><product_name>x</product_name><uuid>GPU-{number:x}</uuid>{inside}</gpu>'
        for number in range(gpus)
    )
    return (
        f"{before}<nvidia_smi_log><driver_version>1</driver_version><attached_gpus>{gpus}</attached_gpus>"
        f"{listed}</nvidia_smi_log>"
    )


def printed(part: str, text: Callable[[int], str]) -> Change:
    """The program of a part prints this, and the driver lists as many GPUs."""
    return lambda raw, size: raw.update(
        {"nvidia_smi": sample.program(smi(size)), part: sample.program(text(size))}
    )


def bmc_events(raw: dict, size: int) -> None:
    text = "".join(f"1|||s{number}|ierr|Asserted\n" for number in range(size))
    raw["bmc"].update(device="/dev/ipmi0", installed=True, events=sample.program(text))


def diagnostic(raw: dict, size: int) -> None:
    entry = {"entity_group": "GPU", "entity_id": 0, "status": "Pass"}
    tests = [
        {"name": f"t{number}", "results": [entry], "test_summary": {"status": "Pass"}}
        for number in range(size)
    ]
    document = {"DCGM Diagnostic": {"test_categories": [{"category": "c", "tests": tests}]}}
    text = json.dumps({**document, "metadata": {"version": "4"}})
    raw["dcgm"] = {"version": sample.program("x"), "level": 1, "diag": sample.program(text)}
    raw["dcgm"]["version"]["missing"] = False


def inforoms(raw: dict, size: int) -> None:
    text = "".join(f"WARNING: infoROM is corrupted at gpu {address(number, 1)}\n" for number in range(size))
    raw["nvidia_smi"] = {**sample.program(smi(size, text)), "rc": 14}


def drives(raw: dict, size: int) -> None:
    smart = raw["nvme"][0]["smart"]
    raw["nvme"] = [{"name": f"nvme{number}", "state": "live", "smart": smart} for number in range(size)]
    raw["nvme"] += [{"name": f"gone{number}", "state": "dead", "smart": smart} for number in range(size)]


def switch_messages(raw: dict, size: int) -> None:
    raw["kernel_log"]["kept"] = [
        f"2026 k: nvidia-nvswitch0: SXid (PCI:{address(number)}): {number}, Severity 1 Engine instance"
        for number in range(size)
    ]


def matrix(size: int) -> str:
    head = "\t" + "\t".join(f"GPU{number}" for number in range(size)) + "\n"
    return head + "".join(f"GPU{number}\t" + "X\t" * size + "\n" for number in range(size))


# The check that reads it, how the record is changed, and a size that a quarter of must take a quarter of.
CASES: dict[str, tuple[str, Change, int]] = {
    "events of the BMC": ("bmc-events", bmc_events, 16_000),
    "NVLinks": (
        "nvlink",
        printed("nvlink", lambda size: "".join(f"GPU {n}: x (UUID: GPU-z{n})\n" for n in range(size))),
        8_000,
    ),
    "errors of NVLinks": (
        "nvlink-errors",
        printed("nvlink_errors", lambda size: "".join(f"GPU {n}: x (UUID: GPU-z{n})\n" for n in range(size))),
        8_000,
    ),
    "GPUs in a container": (
        "container-gpus",
        printed("container_gpus", lambda size: "".join(f"GPU 1: x (UUID: GPU-y{n})\n" for n in range(size))),
        16_000,
    ),
    "GPUs of the driver": ("gpu-present", inforoms, 8_000),
    "diagnostics": ("dcgm-diag", diagnostic, 4_000),
    "topology": ("nccl-transport", printed("topology", matrix), 1_000),
    "messages of NVSwitches": ("kernel-log", switch_messages, 8_000),
    "drives": ("nvme", drives, 4_000),
}


def seconds(check: str, change: Change, size: int) -> float:
    """CPU time to judge a cluster of which one node says this."""
    healthy = sample.healthy()
    raw = copy.deepcopy(dict(healthy.nodes[NODE].raw))
    change(raw, size)
    evidence = replace(healthy, nodes={**healthy.nodes, NODE: NodeEvidence(NODE, raw)})
    gc.collect()
    gc.disable()  # it looks through all that this process holds of other tests
    try:
        started = time.process_time()
        evidence.nodes[NODE].read_parts()
        evaluate(BY_ID[check], evidence)
        return time.process_time() - started
    finally:
        gc.enable()


@pytest.mark.parametrize("what", CASES)
def test_four_times_as_much_takes_no_more_than_in_proportion(what: str) -> None:
    check, change, size = CASES[what]
    # The least of a few, for a busy machine; the square of it takes 16 times as long.
    some, four_times = (min(seconds(check, change, many) for _ in range(3)) for many in (size // 4, size))
    assert four_times < 7 * some + 0.3


def test_lines_of_blanks_are_read_at_once() -> None:
    text = "".join(f"GPU {number}: {' ' * 8000}x\n" for number in range(60))
    started = time.process_time()
    assert len(parse_nvlink(text)) == 60
    assert time.process_time() - started < 1


@pytest.mark.parametrize(
    "inside",
    [
        f"<{'a' * 100_000}>{'<b/>' * 300}</{'a' * 100_000}>",
        f"<{LONG}><{LONG}><{LONG}/></{LONG}></{LONG}>",
        "<a>" * 5000 + "</a>" * 5000,
        "".join(f"<b{number}/>" for number in range(MAX_ELEMENTS + 1)),
        "".join(f"<a><b{number}/></a>" for number in range(MAX_ELEMENTS)),
    ],
    ids=["a long name", "a long path", "deep", "wide", "many of two"],
)
def test_a_section_of_the_driver_that_is_none_is_refused(inside: str) -> None:
    with pytest.raises(CannotReadError, match="in ecc_errors"):
        parse_smi(smi(1, inside=f"<ecc_errors>{inside}</ecc_errors>"))


def test_more_ports_than_any_node_has_are_refused() -> None:
    record = copy.deepcopy(sample.probe_record(2)["infiniband"])
    port = record["devices"][0]["ports"][0]
    record["devices"][0]["ports"] = [{**port, "port": str(number)} for number in range(MOST_PORTS + 1)]
    with pytest.raises(CannotReadError, match=f"at most {MOST_PORTS}"):
        parse_infiniband(record)


@pytest.mark.parametrize(
    "name", ["", "m" * 65, "mlx5 0", "mlx5_0\n", "mlx5_0,mlx5_1", "mlx5\N{REPLACEMENT CHARACTER}"]
)
def test_what_is_no_name_of_an_adapter_is_told_to_no_rank(name: str) -> None:
    record = copy.deepcopy(sample.probe_record(2)["infiniband"])
    assert parse_infiniband(record)
    record["devices"][0]["name"] = name
    with pytest.raises(CannotReadError, match="names an adapter"):
        parse_infiniband(record)
