"""The PCI Express link of an adapter: each generation's rate, as its specification says."""

from __future__ import annotations

import pytest

from clustercheck.checks.support.rdma_slot import PcieSlot


@pytest.mark.parametrize(
    ("speed", "gbps"), [(2.5, 32.0), (5.0, 64.0), (8.0, 126.0), (16.0, 252.1), (32.0, 504.1), (64.0, 968.0)]
)
def test_sixteen_lanes_carry_what_their_generation_does(speed: float, gbps: float) -> None:
    found = PcieSlot(16, speed).gbps
    assert found is not None and found == pytest.approx(gbps, rel=0.02)


def test_what_is_no_generation_has_no_rate() -> None:
    assert PcieSlot(16, 7.5).gbps is None
