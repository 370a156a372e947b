"""Readers of parts of the probe's record, and of what programs print: anything is read or refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.examples import examples

from clustercheck.checks.container_gpus import listed
from clustercheck.jobs import watch
from clustercheck.parse.infiniband import parse_infiniband
from clustercheck.parse.kernel_log import parse_kernel_log
from clustercheck.parse.machine import in_container, virtual
from clustercheck.parse.nvidia_smi import lost_gpus
from clustercheck.parse.pcie import parse_pcie
from clustercheck.parse.reading import CannotReadError, cpu_list
from clustercheck.parse.room import parse_room
from clustercheck.probe.limits import default_ulimits, of_process
from clustercheck.samples import sample, smi

FUZZ = examples(30)
ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=12,
)
RECORD = sample.probe_record(1)


def mapping(part: Any) -> dict[str, Any]:
    """As the node's record hands parts out."""
    if not isinstance(part, dict):
        raise CannotReadError("it has an unexpected form")
    return part


OF_RECORDS: dict[str, tuple[Callable[[Any], object], Any]] = {
    "pcie": (lambda part: parse_pcie(mapping(part)), RECORD["pcie"]),
    "room": (lambda part: parse_room(mapping(part)), RECORD["shared_memory"]),
    "infiniband": (parse_infiniband, RECORD["infiniband"]),
    "kernel_log": (parse_kernel_log, RECORD["kernel_log"]),
    "virtual": (virtual, RECORD["virtual"]),
}
OF_TEXTS: dict[str, tuple[Callable[[str], object], str]] = {
    "cpu_list": (lambda text: cpu_list(text, "the list"), "0-63,128-191"),
    "container_gpus": (listed, str(RECORD["container_gpus"]["stdout"])),
    "watch": (watch.parse_gpu, smi.smi_xml(1, gpus=1)),
    "limits": (of_process, "Max open files            1048576              1048576              files\n"),
    "ulimits": (
        default_ulimits,
        '{"default-ulimits": {"memlock": {"Name": "memlock", "Soft": -1, "Hard": -1}}}',
    ),
    "lost_gpus": (lost_gpus, "Unable to determine the device handle for GPU3: 0000:47:00.0: lost.\n"),
}


def reads(reader: Callable[[Any], object], given_: Any) -> None:
    """CannotReadError is the only way to refuse; what runs on nodes has not our errors: ValueError."""
    try:
        reader(given_)
    except CannotReadError:
        pass
    except ValueError:
        assert reader is watch.parse_gpu


@pytest.mark.parametrize("name", OF_RECORDS)
@FUZZ
@given(value=ANY)
def test_any_value_is_read_or_refused(name: str, value: Any) -> None:
    reads(OF_RECORDS[name][0], value)
    assert in_container(value) is False


@pytest.mark.parametrize("name", OF_RECORDS)
@FUZZ
@given(data=st.data())
def test_a_record_with_one_thing_otherwise_is_read_or_refused(name: str, data: st.DataObject) -> None:
    reader, good = OF_RECORDS[name]
    reader(good)
    reads(reader, changed(good, data))


def changed(value: Any, data: st.DataObject) -> Any:
    """A copy in which something, somewhere, is missing or anything at all."""
    if isinstance(value, dict) and value and data.draw(st.booleans()):
        key = data.draw(st.sampled_from(sorted(value)))
        return {**value, key: changed(value[key], data)}
    if isinstance(value, list) and value and data.draw(st.booleans()):
        at = data.draw(st.integers(0, len(value) - 1))
        return [*value[:at], changed(value[at], data), *value[at + 1 :]]
    return data.draw(ANY)


@pytest.mark.parametrize("name", OF_TEXTS)
@FUZZ
@given(data=st.data())
def test_any_text_and_any_change_of_a_good_one_is_read_or_refused(name: str, data: st.DataObject) -> None:
    reader, good = OF_TEXTS[name]
    reader(good)
    reads(reader, data.draw(st.text(max_size=200)))
    begin = data.draw(st.integers(0, len(good)))
    end = data.draw(st.integers(begin, min(len(good), begin + 40)))
    reads(reader, good[:begin] + data.draw(st.text(max_size=20)) + good[end:])
    lines = good.splitlines(keepends=True)
    reads(reader, "".join(lines[n] for n in data.draw(st.permutations(range(len(lines))))))


@pytest.mark.parametrize("name", OF_TEXTS)
def test_gigantic_texts_are_read_or_refused(name: str) -> None:
    reader, good = OF_TEXTS[name]
    reads(reader, good * 2000)
    reads(reader, "9" * 1_000_000)
