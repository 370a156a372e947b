"""A probe's record on arrival: whole and plain, or its node could not be read."""

from __future__ import annotations

import json
from typing import Any

import pytest

from clustercheck.evidence.collect import read_output
from clustercheck.evidence.node import MAX_BUSY, NodeEvidence
from clustercheck.evidence.record import LARGEST, MAX_OUTPUT, MAX_REASON
from clustercheck.launch.transport import Completed
from clustercheck.parse.reading import MAX_GPUS, CannotReadError
from clustercheck.samples import sample


def read(record: dict[str, Any], stderr: str = "") -> NodeEvidence:
    return read_output("gpu02", Completed(0, json.dumps(record), stderr))


def test_a_healthy_record_arrives_as_it_was_sent() -> None:
    record = sample.probe_record(2)
    assert read(record).raw == record


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"host": {"kernel": "x" * 5_000_000}}, "host.kernel has 5000000 characters"),
        ({"nvidia_smi": {"rc": 0, "stdout": "x" * (MAX_OUTPUT + 1)}}, "nvidia_smi.stdout has"),
        ({"pci": [{}] * 20_000}, "pci has 20000 entries"),
        ({"x": "y" * LARGEST}, "characters long"),
        ({"clock": {"time": 10**400}}, "number"),
        ({"errors": ["docker"]}, "could not be collected"),
        ({"errors": {"docker": {"a": "b"}}}, "could not be collected"),
    ],
)
def test_a_record_beyond_its_bounds_is_not_read_and_says_why(change: dict[str, Any], told: str) -> None:
    node = read({**sample.probe_record(2), **change}, stderr="a banner\n")
    assert told in node.unreachable
    assert len(node.unreachable) <= MAX_REASON
    assert node.raw == {}


def test_errors_are_short_since_every_check_repeats_them() -> None:
    said = "\x1b[2J" + "no such device " * 30_000
    record = {
        "probe": 1,
        "errors": {"pci": said},
        "nvidia_smi": {"rc": 1, "stderr": said, "skipped": said},
        "busy": {"reasons": [said] * 9, "unknown": [said]},
    }
    node = read(record)
    with pytest.raises(CannotReadError) as raised:
        node.part("pci")
    assert len(str(raised.value)) <= MAX_REASON + 60
    assert "\x1b" not in str(raised.value)
    assert len(node.raw["nvidia_smi"]["skipped"]) <= MAX_REASON
    assert len(node.busy()) <= MAX_BUSY
    assert "no such device" in node.busy()


def test_a_node_that_shows_thousands_of_gpus_gets_no_results_for_them() -> None:
    gpu = next(device for device in sample.pci_devices() if device["class"] == "0x030200")
    record = {**sample.probe_record(2), "pci": [{**gpu, "address": f"{n:04x}:00:00.0"} for n in range(5000)]}
    with pytest.raises(CannotReadError, match=f"5000 GPUs, at most {MAX_GPUS}"):
        read(record).gpu_addresses()


def test_text_that_acts_on_a_terminal_is_removed_on_arrival() -> None:
    record = sample.probe_record(2)
    record["host"]["kernel"] = "6.1\x1b]0;title\x07.0\u202e\x9b31m"
    assert read(record).raw["host"]["kernel"] == "6.1.0"
