"""SXids of NVSwitches: read with their severity and link, judged by NVIDIA's table, never lost."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.mutations import FUZZ, meddled, misprinted, read_or_refused

from clustercheck.checks.kernel_log import catalogue, of_switches
from clustercheck.model import Verdict
from clustercheck.parse.kernel_log import parse_line
from clustercheck.parse.sxid import Sxid, SxidSeverity, switch_errors

# In the words of the driver, as public issues quote them.
KERNEL = """\
[6781753.400584] nvidia-nvswitch1: SXid (PCI:0000:06:00.0): 22013, Non-fatal, Link 57 Minion Link DLREQ interrupt
[6781753.400590] nvidia-nvswitch1: SXid (PCI:0000:06:00.0): 22013, Severity 5 Engine instance 57 Sub-engine instance 00
[6781753.404587] nvidia-nvswitch0: SXid (PCI:0000:05:00.0): 20034, Fatal, Link 63 LTSSM Fault Up
[6781753.406566] nvidia-nvswitch0: SXid (PCI:0000:05:00.0): 20034, Data {0x10000000, 0x10000000, 0x00000000}
[6781753.409792] nvidia-nvswitch0: SXid (PCI:0000:05:00.0): 20034, Severity 1 Engine instance 62 Sub-engine instance 00
[6781754.000001] nvidia-nvswitch0: SXid (PCI:0000:05:00.0): 10003, Fatal, unhandled interrupt
"""  # noqa: E501


def read(text: str) -> tuple[Sxid, ...]:
    return switch_errors(xid for line in text.splitlines() if (xid := parse_line(line)) is not None).errors


def verdict(*lines: str) -> Verdict | None:
    finding = of_switches(
        read("\n".join(f"nvidia-nvswitch0: SXid (PCI:0000:05:00.0): {line}" for line in lines))
    )
    return finding.verdict if finding else None


def test_the_lines_of_one_error_count_as_one() -> None:
    assert [(error.address, error.code, error.severity, error.link) for error in read(KERNEL)] == [
        ("0000:06:00.0", 22013, SxidSeverity.NON_FATAL, 57),
        ("0000:05:00.0", 20034, SxidSeverity.FATAL, 63),
        ("0000:05:00.0", 10003, SxidSeverity.FATAL, None),
    ]
    assert read(KERNEL)[1].message == "LTSSM Fault Up"


def test_what_is_left_of_an_error_whose_first_line_is_gone_is_kept() -> None:
    (error,) = read(KERNEL.splitlines()[3])
    assert (error.code, error.severity) == (20034, SxidSeverity.UNSAID)


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([], None),
        (["22013, Non-fatal, Link 57 Minion Link DLREQ interrupt"], None),
        (["11012, Non-fatal, Link 4 ingress ECC", "11012, Severity 5 Engine instance 04"], None),
        (["20034, Fatal, Link 30 LTSSM Fault Up"], Verdict.FAIL),
        (["20034, Severity 1 Engine instance 30 Sub-engine instance 00"], Verdict.FAIL),
        (["12028, Non-fatal, Link 32 egress non-posted PRIV error"], Verdict.FAIL),
        (["11012, Fatal, Link 4 ingress ECC"], Verdict.FAIL),
        (["29999, Fatal, Link 4 something new"], Verdict.FAIL),
        (["29999, Non-fatal, Link 4 something new"], Verdict.NOT_RUN),
        (["29999, Data {0x1}"], Verdict.NOT_RUN),
    ],
)
def test_errors_are_judged_by_the_table_and_by_the_drivers_word(
    lines: list[str], expected: Verdict | None
) -> None:
    assert verdict(*lines) is expected


def test_every_code_of_the_table_has_an_action_that_there_is() -> None:
    codes, actions = catalogue()["codes"], catalogue()["actions"]
    assert len(codes) > 90
    assert {entry["action"] for entry in codes.values()} == set(actions)
    harmless = {"none", "watch"}
    assert all(entry["fault"] is (entry["action"] not in harmless) for entry in codes.values())


def test_a_fatal_error_names_its_remedy_and_its_link() -> None:
    finding = of_switches(read(KERNEL))
    assert finding is not None
    assert finding.because.startswith(
        "SXid 10003, 20034 of the NVSwitch at 0000:05:00.0, last at 6781754.000001"
    )
    assert "reset all GPUs and switches" in finding.remedy


def test_of_several_errors_the_gravest_names_the_remedy() -> None:
    lines = ["22003, Fatal, Link 3 Minion Halt", "10004, Non-fatal, thermal event start"]
    finding = of_switches(
        read("\n".join(f"nvidia-nvswitch0: SXid (PCI:0000:05:00.0): {line}" for line in lines))
    )
    assert finding is not None
    assert "reboot the node" in finding.remedy


@pytest.mark.parametrize(
    "line",
    ["20034, Tödlich, Link 30", "20034, ", "20034", "20034, fatal", "20034, Link 30 LTSSM Fault Up"],
)
def test_an_error_of_unknown_form_is_not_harmless_and_takes_nothing_from_the_others(line: str) -> None:
    said = parse_line(f"nvidia-nvswitch0: SXid (PCI:0000:05:00.0): {line}")
    assert said is not None
    fatal = parse_line(KERNEL.splitlines()[2])
    assert fatal is not None
    found = switch_errors([said, fatal])
    assert [error.code for error in found.errors] == [20034]
    assert len(found.garbled) == 1 and "SXid of unknown form" in found.garbled[0]


@FUZZ
@given(text=st.one_of(meddled(KERNEL), misprinted(KERNEL), st.text(max_size=200)))
def test_a_kernel_log_after_a_mishap_is_read_or_refused(text: str) -> None:
    found = read_or_refused(read, text)
    if found is not None and all(
        f"nvidia-nvswitch0: SXid (PCI:0000:05:00.0): {code}, Fatal" in text for code in (20034, 10003)
    ):
        finding = of_switches(found)
        assert finding is not None and finding.verdict is not Verdict.PASS
