"""Whatever a management controller or a drive prints is read within bounds, or said to be unreadable."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.examples import examples

from clustercheck.parse.ipmi import (
    parse_bmc_clock,
    parse_bmc_events,
    parse_bmc_firmware,
    parse_bmc_sensors,
)
from clustercheck.parse.nvme import parse_smart
from clustercheck.parse.reading import CannotReadError
from clustercheck.samples.machine import CONTROLLER, SENSORS, bmc_event, smart_log

READERS: list[Callable[[str], Any]] = [
    parse_bmc_clock, parse_bmc_events, parse_bmc_firmware, parse_bmc_sensors,
    lambda text: parse_smart({"rc": 0, "stdout": text}),
]  # fmt: skip
WHOLE = [
    bmc_event("FAN1", "Lower Critical going low", 1),
    SENSORS,
    CONTROLLER,
    smart_log(),
    "11/18/2026 15:13:20",
]


def test_the_firmware_is_the_controllers_and_no_other_revision() -> None:
    assert parse_bmc_firmware(CONTROLLER) == "1.73"
    assert parse_bmc_firmware(CONTROLLER.replace("1.73", "12.04\r")) == "12.04"
    for text in (
        "",
        "Device Revision           : 1\nAux Firmware Rev Info     : \n",
        "Get Device ID command failed",
    ):
        with pytest.raises(CannotReadError, match="ipmitool mc info says"):
            parse_bmc_firmware(text)


def cut(whole: str, length: int) -> str:
    return whole[:length]


@pytest.mark.parametrize("read", READERS)
@examples(60)
@given(
    text=st.text(max_size=80)
    | st.builds("|".join, st.lists(st.text("0123456789abch/: \n", max_size=12), max_size=8))
    | st.builds(
        lambda whole, cut, more: whole[:cut] + more,
        st.sampled_from(WHOLE),
        st.integers(0, 400),
        st.text(max_size=9),
    )
)
def test_any_text_is_read_or_refused(read: Callable[[str], Any], text: str) -> None:
    try:
        read(text)
    except CannotReadError as error:
        assert len(str(error)) < 400


@examples(60)
@given(
    log=st.dictionaries(
        st.sampled_from(list(json.loads(smart_log()))),
        st.none() | st.integers() | st.floats() | st.text(max_size=50) | st.lists(st.integers(), max_size=2),
    )
)
def test_a_smart_log_has_whole_numbers_that_are_not_negative_or_is_refused(log: dict[str, Any]) -> None:
    try:
        health = parse_smart({"rc": 0, "stdout": json.dumps({**json.loads(smart_log()), **log})})
    except CannotReadError:
        return
    assert min(health.critical, health.used, health.media_errors, health.spare, health.spare_threshold) >= 0
    assert all(isinstance(name, str) for name in health.warnings)
