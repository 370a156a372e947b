"""Floors of ib_write_bw: nine tenths of the wire, of each port with itself and with others, near its CPUs."""

from __future__ import annotations

from typing import Any

import pytest

from clustercheck.checks.all import BY_ID
from clustercheck.checks.base import evaluate
from clustercheck.checks.support import seeding
from clustercheck.model import Result, Subject, Verdict
from clustercheck.samples import sample
from clustercheck.samples.rdma import write_text

PARTS = {"rdma-loopback": "loopback", "rdma-write": "writes"}


def judged(check: str, gbps: float, **entry: Any) -> Result:
    """What becomes of gpu02 whose mlx5_0 (HDR) reaches so many Gb/s."""

    def change(rank: Any, verdict: seeding.Raw) -> None:
        for each in verdict[PARTS[check]]:
            if each["device"] == "mlx5_0" and 1 in (rank.rank, each.get("peer")):
                each.update(text=write_text("mlx5_0", gbps), **entry)

    evidence = seeding.verdicts("rdma_write", change)(sample.healthy())
    return next(r for r in evaluate(BY_ID[check], evidence) if r.subject == Subject("gpu02"))


@pytest.mark.parametrize("check", PARTS)
@pytest.mark.parametrize(("gbps", "verdict"), [(171.0, Verdict.FAIL), (189.0, Verdict.PASS)])
def test_five_per_cent_below_the_floor_fails_and_five_above_passes(
    check: str, gbps: float, verdict: Verdict
) -> None:
    result = judged(check, gbps)
    assert result.verdict is verdict
    assert result.figures[0].figure.floor is not None
    assert result.figures[0].figure.floor.reference == pytest.approx(22.5)


def test_the_source_of_the_loopback_floor_is_a_loopback() -> None:
    floor = judged("rdma-loopback", 189.0).figures[0].figure.floor
    assert floor is not None and "with itself" in floor.source


@pytest.mark.parametrize(("gbps", "verdict"), [(171.0, Verdict.NOT_RUN), (189.0, Verdict.PASS)])
def test_a_slow_port_is_not_blamed_where_its_process_may_have_been_far_away(
    gbps: float, verdict: Verdict
) -> None:
    result = judged("rdma-loopback", gbps, unpinned="sysfs does not tell its CPUs (FileNotFoundError)")
    assert result.verdict is verdict
    assert verdict is Verdict.PASS or "from a CPU that may be far: sysfs" in result.because
