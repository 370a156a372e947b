"""A profile with a number that cannot be, or without what a number needs, is refused."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from clustercheck.errors import ExplainedError
from clustercheck.expect import profiles
from clustercheck.expect.profiles import DIRECTORY, Metric, build
from clustercheck.tables import read_table


def table() -> dict[str, Any]:
    return copy.deepcopy(dict(read_table(DIRECTORY / "hgx-a100-80gb")))


def refused(entry: dict[str, Any]) -> str:
    with pytest.raises(ExplainedError) as caught:
        build(entry, where="here")
    assert caught.value.code == "profile.invalid"
    return str(caught.value)


def all_reduce_floor(entry: dict[str, Any]) -> dict[str, Any]:
    return next(floor for floor in entry["floors"] if floor["metric"] == "all_reduce_busbw")


@pytest.mark.parametrize("missing", ["gpus", "bytes"])
def test_a_floor_of_a_collective_names_its_gpus_and_bytes(missing: str) -> None:
    entry = table()
    del all_reduce_floor(entry)[missing]
    assert "names its gpus and bytes" in refused(entry)


@pytest.mark.parametrize("tolerance", [-0.01, 1, 1.5])
def test_a_tolerance_is_a_part(tolerance: float) -> None:
    entry = table()
    all_reduce_floor(entry)["tolerance"] = tolerance
    assert "tolerance" in refused(entry)


@pytest.mark.parametrize("value", [0, -1, True])
@pytest.mark.parametrize(
    ("part", "key"),
    [("", "memory_gib"), ("", "gpus"), ("pcie", "generation"), ("pcie", "width"), ("nvlink", "links"),
     ("nvlink", "link_gbps"), ("memory_bandwidth", "value")],
)  # fmt: skip
def test_a_number_that_is_not_above_0_is_refused(part: str, key: str, value: Any) -> None:
    entry = table()
    (entry[part] if part else entry)[key] = value
    assert f"{key} is {value!r}" in refused(entry)


@pytest.mark.parametrize("value", ["", "  ", 7])
@pytest.mark.parametrize("part", ["nvlink", "memory_bandwidth"])
def test_a_figure_has_a_source(part: str, value: Any) -> None:
    entry = table()
    entry[part]["source"] = value
    assert "source is" in refused(entry)


@pytest.mark.parametrize("key", ["memory_gib", "pcie", "peak_tflops"])
def test_what_is_missing_is_named(key: str) -> None:
    entry = table()
    del entry[key]
    assert key in refused(entry)


def test_what_is_unknown_is_named() -> None:
    assert "has no colour" in refused({**table(), "colour": "green"})
    entry = table()
    entry["floors"][0]["metric"] = "speed"
    assert "metric is 'speed'" in refused(entry)


def test_a_floor_is_of_exactly_these_gpus_and_bytes() -> None:
    profile = profiles.load("hgx-a100-80gb")
    floor = next(one for one in profile.floors if one.metric is Metric.ALL_REDUCE)
    assert floor.gpus is not None and floor.bytes is not None
    assert profile.floor(floor.metric, gpus=floor.gpus, size_bytes=floor.bytes) is not None
    assert profile.floor(floor.metric, gpus=floor.gpus + 1, size_bytes=floor.bytes) is None
    assert profile.floor(floor.metric, gpus=floor.gpus, size_bytes=floor.bytes + 1) is None
    assert profile.floor(Metric.HOST_TO_DEVICE, gpus=floor.gpus, size_bytes=floor.bytes) is None
    assert profile.floor_of_gpu(Metric.ALL_REDUCE) is None
