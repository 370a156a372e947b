"""Readers of what programs print: right on captures, and "cannot read" on everything else."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.examples import examples

from clustercheck.parse.kernel_log import parse_kernel_log, parse_line
from clustercheck.parse.nvidia_smi import parse_smi
from clustercheck.parse.nvlink import parse_nvlink, parse_nvlink_errors
from clustercheck.parse.reading import CannotReadError, bus_address, program_output, whole_number
from clustercheck.parse.topology import parse_topology
from clustercheck.samples import smi

FUZZ = examples(40)


# --- captures of real hardware, where the machine has them


def test_the_capture_of_an_a100_under_driver_570(fixtures_dir: Path) -> None:
    log = parse_smi((fixtures_dir / "nvidia-smi" / "a100-sxm4-40gb-1x.xml").read_text())
    assert (log.driver_version, log.cuda_version, log.simulated) == ("570.148.08", "12.8", False)
    (gpu,) = log.gpus
    assert gpu.address == "0000:06:00.0"
    assert (gpu.model, gpu.mig, gpu.recovery_action) == ("NVIDIA A100-SXM4-40GB", "Disabled", "None")
    assert gpu.remap is not None and gpu.remap["remapped_row_pending"] == "No"
    assert gpu.ecc is not None and gpu.ecc["volatile/dram_uncorrectable"] == "0"
    assert gpu.reasons is not None and gpu.reasons["clocks_event_reason_hw_slowdown"] == "Not Active"


def test_the_capture_of_eight_h100_under_driver_580(fixtures_dir: Path) -> None:
    log = parse_smi((fixtures_dir / "nvidia-smi" / "h100-8x.xml").read_text())
    assert log.driver_version == "580.105.08"
    assert [gpu.index for gpu in log.gpus] == list(range(8))
    assert len({gpu.address for gpu in log.gpus}) == 8
    assert {gpu.recovery_action for gpu in log.gpus} == {"None"}


def test_the_capture_of_nvlink_status(fixtures_dir: Path) -> None:
    gpus = parse_nvlink((fixtures_dir / "nvidia-smi" / "nvlink-status-a100.txt").read_text())
    assert len(gpus) == 8
    assert all(links.up == tuple(range(12)) and set(links.rates.values()) == {25.0} for links in gpus)


def test_the_captured_topology_of_an_azure_node(fixtures_dir: Path) -> None:
    document = json.loads((fixtures_dir / "superbench" / "a100-40gb-sysinfo.json").read_text())
    topology = parse_topology(document["Accelerator"]["topo"])
    assert topology.gpus == tuple(f"GPU{n}" for n in range(8))
    assert topology.nvlinks("GPU0", "GPU7") == 12


def test_the_captured_kernel_log_of_a_silent_gsp(fixtures_dir: Path) -> None:
    lines = (fixtures_dir / "kernel" / "dmesg-xid-119.log").read_text().splitlines()
    found = [xid for line in lines if (xid := parse_line(line)) is not None]
    assert {xid.code for xid in found} == {119}
    assert found[0].address == "0000:9b:00.0"
    assert found[0].when == "Sun Feb 23 16:24:18 2025"


# --- what is written by hand, always there


def test_the_sample_is_read() -> None:
    assert len(parse_smi(smi.smi_xml(1)).gpus) == 8
    assert len(parse_nvlink(smi.nvlink_text(1))) == 8
    assert parse_topology(smi.topology_text()).nvlinks("GPU1", "GPU2") == 12


def test_a_driver_that_says_it_is_simulated() -> None:
    text = smi.smi_xml(1)
    said = text.replace("<attached_gpus>", "<simulated>clusterlab</simulated><attached_gpus>")
    assert parse_smi(said).simulated
    assert not parse_smi(text).simulated


def test_throttle_reasons_under_their_older_name() -> None:
    text = smi.smi_xml(1).replace("clocks_event_reason", "clocks_throttle_reason")
    reasons = parse_smi(text).gpus[0].reasons
    assert reasons is not None and reasons["clocks_throttle_reason_hw_slowdown"] == "Not Active"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n",
        "No devices were found",
        "<nvidia_smi_log></nvidia_smi_log>",
        "<log><driver_version>580.95.05</driver_version></log>",
        smi.smi_xml(1)[:-20],
        smi.smi_xml(1).replace("<attached_gpus>8", "<attached_gpus>7"),
        smi.smi_xml(1).replace("<attached_gpus>8</attached_gpus>", ""),
        smi.smi_xml(1).replace("00000000:0F:00.0", "00000000:07:00.0"),
        smi.smi_xml(1).replace("product_name", "Produktname"),
        smi.smi_xml(1).replace("00000000:0F:00.0", "somewhere"),
        '<!DOCTYPE a [<!ENTITY b "c">]><nvidia_smi_log>&b;</nvidia_smi_log>',
        "<nvidia_smi_log>" * 5000,
    ],
)
def test_smi_output_that_is_not_whole_is_not_read(text: str) -> None:
    with pytest.raises(CannotReadError):
        parse_smi(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Link 0: 25 GB/s",
        "\t Link 0: 25 GB/s\n",
        "GPU 0: A (UUID: x)\n\t Link 0: 25 GB/s\n\t Link 0: 25 GB/s\n",
        "GPU 0: A (UUID: x)\nGPU 0: A (UUID: y)\n",
        "Verbindung 0: 25 GB/s\nGPU 0: A (UUID: x)\n",
    ],
)
def test_nvlink_output_that_is_not_known_is_not_read(text: str) -> None:
    with pytest.raises(CannotReadError):
        parse_nvlink(text)


@pytest.mark.parametrize("line", ["Verbindung 0: 25 GB/s", "Link 0: fast", "Link 0: Replay Errors: many"])
@pytest.mark.parametrize("parse", [parse_nvlink, parse_nvlink_errors])
def test_a_line_of_unknown_form_takes_from_its_gpu_alone(parse: Callable[[str], Any], line: str) -> None:
    broken, whole = parse(f"GPU 0: A (UUID: x)\n\t {line}\nGPU 1: A (UUID: y)\n\t Link 0: <inactive>\n")
    assert line in broken.unread and not broken.lost
    assert not whole.unread


def test_links_that_are_down_are_told_from_links_that_are_up() -> None:
    (gpu,) = parse_nvlink("GPU 0: A (UUID: x)\n\t Link 0: 25 GB/s\n\t Link 1: <inactive>\n")
    assert (gpu.up, gpu.down) == ((0,), (1,))


def test_errors_of_links_are_read_as_drivers_print_them() -> None:
    # As ml-engineering shows it of an H100, with a link that is down and a counter of later drivers.
    text = (
        "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-a)\n"
        "         Link 0: Replay Errors: 0\n         Link 0: Recovery Errors: 2\n"
        "         Link 0: CRC Errors: 7\n\n"
        "\t Link 1: <inactive>\n"
        "\t Link 2: Malformed packet Errors: N/A\n"
    )
    (gpu,) = parse_nvlink_errors(text)
    assert gpu.counts == {
        0: {"replay errors": 0, "recovery errors": 2, "crc errors": 7},
        1: {},
        2: {"malformed packet errors": None},
    }


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\t Link 0: Replay Errors: 0\n",
        "GPU 0: A (UUID: x)\n\t Link 0: Replay Errors: 0\n\t Link 0: Replay Errors: 0\n",
        "GPU 0: A (UUID: x)\nGPU 0: A (UUID: y)\n",
        "Verbindung 0: Replay Errors: 0\nGPU 0: A (UUID: x)\n",
    ],
)
def test_errors_of_links_that_are_not_known_are_not_read(text: str) -> None:
    with pytest.raises(CannotReadError):
        parse_nvlink_errors(text)


@pytest.mark.parametrize("text", ["", "nothing", "\tGPU0\tGPU1\nGPU0\t X \tNV12\n", "\tGPU0\nGPU0\tfar\n"])
def test_a_topology_whose_rows_do_not_fit_is_not_read(text: str) -> None:
    with pytest.raises(CannotReadError):
        parse_topology(text)


def test_kernel_log_lines() -> None:
    journal = (
        "2026-11-20T10:00:00.1+0000 gpu01 kernel: NVRM: Xid (PCI:0000:07:00): 79, pid='<unknown>', GPU has"
    )
    xid = parse_line(journal)
    assert xid is not None and (xid.address, xid.code, xid.when) == (
        "0000:07:00.0", 79, "2026-11-20T10:00:00.1+0000",
    )  # fmt: skip
    instance = parse_line("NVRM: Xid (PCI:0000:41:00 GPU-I:05): 94, pid=7194, Contained: CE User Channel")
    assert instance is not None and (instance.address, instance.code) == ("0000:41:00.0", 94)
    switch = parse_line(
        "[ 12.3] nvidia-nvswitch3: SXid (PCI:0000:c8:00.0): 24007, Non-fatal, Link 44 timeout"
    )
    assert switch is not None and switch.switch and switch.code == 24007
    assert parse_line("NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  580.95.05") is None
    for garbled in (
        "NVRM: Xid (PCI:",
        "NVRM: Xid (PCI:0000:07:00): ?, pid",
        "nvidia-nvswitch0: SXid (PCI:zz): 1",
    ):
        with pytest.raises(CannotReadError):
            parse_line(garbled)


@pytest.mark.parametrize(
    "record", [None, [], {}, {"source": ""}, {"source": "journal"}, {"source": "x", "kept": 3}]
)
def test_a_kernel_log_that_was_not_read_is_not_clean(record: Any) -> None:
    with pytest.raises(CannotReadError):
        parse_kernel_log(record)


@pytest.mark.parametrize(
    ("record", "says"),
    [
        (None, "not collected"),
        ({"skipped": "no image"}, "no image"),
        ({"missing": True}, "not installed"),
        ({"timed_out": True}, "time limit"),
        ({"rc": 9, "stderr": "Unable to determine"}, "Unable to determine"),
        ({"rc": None}, "said nothing"),
        ({"rc": 0, "stdout": "  "}, "printed nothing"),
    ],
)
def test_a_program_without_output_says_why(record: Any, says: str) -> None:
    with pytest.raises(CannotReadError, match=says):
        program_output(record, "nvidia-smi")


def test_addresses_in_every_spelling() -> None:
    for text in ("00000000:06:00.0", "0000:06:00.0", "0000:06:00", "06:00.0", "06:00", "0000:06:00:"):
        assert bus_address(text) == "0000:06:00.0"
    assert bus_address("00010000:06:00.0") == "10000:06:00.0"
    for text in ("", "gpu", "0000:06", "0000:06:00.9", "0000:0g:00.0"):
        with pytest.raises(CannotReadError):
            bus_address(text)
    assert [whole_number(text) for text in ("16x", "40960 MiB", "N/A", "", "4")] == [16, 40960, None, None, 4]


# --- anything at all


def reads(reader: Callable[[str], object], text: str) -> object | None:
    """What the reader makes of it; CannotReadError is the only way not to."""
    try:
        return reader(text)
    except CannotReadError:
        return None


READERS = pytest.mark.parametrize(
    "reader", [parse_smi, parse_nvlink, parse_nvlink_errors, parse_topology, parse_line]
)
GOOD = {
    parse_smi: smi.smi_xml(1, gpus=2),
    parse_nvlink: smi.nvlink_text(1, gpus=2),
    parse_nvlink_errors: smi.nvlink_errors_text(1, gpus=2),
    parse_topology: smi.topology_text(gpus=3),
}
TEXTS = pytest.mark.parametrize("reader", list(GOOD))


@READERS
@FUZZ
@given(text=st.text(max_size=400))
def test_any_text_is_read_or_refused(reader: Callable[[str], object], text: str) -> None:
    reads(reader, text)


@TEXTS
@FUZZ
@given(data=st.data())
def test_output_cut_off_anywhere_never_reads_as_whole(
    reader: Callable[[str], object], data: st.DataObject
) -> None:
    text = GOOD[reader]
    cut = data.draw(st.integers(0, len(text) - 1))
    short = reads(reader, text[:cut])
    if reader is parse_smi and cut < len(text.rstrip()):
        assert short is None
    if reader is parse_topology and short is not None:
        assert short.gpus == parse_topology(text).gpus  # type: ignore[attr-defined]


@TEXTS
@FUZZ
@given(data=st.data())
def test_output_with_something_else_in_it_is_read_or_refused(
    reader: Callable[[str], object], data: st.DataObject
) -> None:
    text = GOOD[reader]
    begin = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(begin, min(len(text), begin + 60)))
    reads(reader, text[:begin] + data.draw(st.text(max_size=30)) + text[end:])


@TEXTS
@FUZZ
@given(data=st.data())
def test_lines_out_of_order_are_read_or_refused(reader: Callable[[str], object], data: st.DataObject) -> None:
    lines = GOOD[reader].splitlines(keepends=True)
    order = data.draw(st.permutations(range(len(lines))))
    reads(reader, "".join(lines[n] for n in order))


def test_huge_output_is_refused_or_read_quickly() -> None:
    assert reads(parse_smi, "<nvidia_smi_log>" + "x" * (65 << 20)) is None
    assert reads(parse_nvlink, "GPU 0: A (UUID: x)\n" + "\t Link 1: 25 GB/s\n" * 100_000) is None
    assert len(parse_smi(smi.smi_xml(1)).gpus) == 8
