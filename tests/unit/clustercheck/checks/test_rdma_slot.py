"""The PCI Express link of an adapter: each generation's rate, as its specification says."""

from __future__ import annotations

import pytest

from clustercheck.checks.support.rdma_slot import PcieSlot, link_now


@pytest.mark.parametrize(
    ("speed", "gbps"), [(2.5, 32.0), (5.0, 64.0), (8.0, 126.0), (16.0, 252.1), (32.0, 504.1), (64.0, 968.0)]
)
def test_sixteen_lanes_carry_what_their_generation_does(speed: float, gbps: float) -> None:
    found = PcieSlot(16, speed).gbps
    assert found == pytest.approx(gbps, rel=0.02)


def test_what_is_no_generation_has_no_rate() -> None:
    assert PcieSlot(16, 7.5).gbps == 0


@pytest.mark.parametrize(
    ("lanes", "speed", "known"),
    [
        ("16", "32.0 GT/s PCIe", True),
        ("32", "2.5 GT/s", True),
        ("0", "16.0 GT/s PCIe", False),
        ("255", "16.0 GT/s PCIe", False),
        ("16", "0 GT/s", False),
        ("16", "nan", False),
        ("16", "inf", False),
        ("16", "Unknown", False),
        (None, "16.0 GT/s PCIe", False),
    ],
)
def test_what_a_device_that_is_gone_says_is_no_link(lanes: object, speed: str, *, known: bool) -> None:
    """The best link of a place is what all its equals are held to: 255 lanes would be missed by each."""
    assert (link_now({"link_width": lanes, "link_speed": speed}) is not None) is known
