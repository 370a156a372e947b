"""GPU memory by the adapter next to it: floors by rate, where there is none, and GPUs that are lost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from clustercheck.checks import gpudirect_write as checked
from clustercheck.checks.base import evaluate
from clustercheck.checks.support import seeding
from clustercheck.evidence.cluster import Evidence
from clustercheck.expect import profiles
from clustercheck.model import Result, Subject, Verdict
from clustercheck.samples import sample

GPU = Subject("gpu02", 2)


def judged(evidence: Evidence, subject: Subject = GPU) -> Result:
    return next(r for r in evaluate(checked.CHECK, evidence) if r.subject == subject)


def at(gbps: float, *changes: seeding.Inject, profile: str = "") -> Result:
    evidence = seeding.chain(checked._at(2, gbps), *changes)(sample.healthy())
    if profile:
        evidence = replace(evidence, profiles={sample.PROFILE: profiles.load(profile)})
    return judged(evidence)


def rate(text: str) -> seeding.Inject:
    def change(raw: seeding.Raw) -> None:
        for device in raw["infiniband"]["devices"]:
            device["ports"][0]["rate"] = text

    return seeding.edit("gpu02", change)


def h200(raw: seeding.Raw) -> None:
    smi = raw["nvidia_smi"]
    smi["stdout"] = smi["stdout"].replace("NVIDIA A100-SXM4-80GB", "NVIDIA H200")


H200 = seeding.edit("gpu02", h200)
NDR, HDR100 = rate("400 Gb/sec (4X NDR)"), rate("100 Gb/sec (2X HDR)")


@pytest.mark.parametrize(
    ("gbps", "changes", "profile", "verdict"),
    [
        (0.95 * 180, (), "", Verdict.FAIL),
        (1.05 * 180, (), "", Verdict.PASS),
        (0.95 * 380, (NDR,), "h100-sxm5-80gb", Verdict.FAIL),
        (1.02 * 380, (NDR,), "h100-sxm5-80gb", Verdict.PASS),
        (0.95 * 360, (NDR, H200), "h200-sxm5-141gb", Verdict.FAIL),
        (1.05 * 360, (NDR, H200), "h200-sxm5-141gb", Verdict.PASS),
        (1.05 * 1.02 * 200, (), "", Verdict.NOT_RUN),
        (0.95 * 1.02 * 200, (), "", Verdict.PASS),
    ],
)
def test_each_limit_turns_the_verdict(
    gbps: float, changes: tuple[seeding.Inject, ...], profile: str, verdict: Verdict
) -> None:
    assert at(gbps, *changes, profile=profile).verdict is verdict


def far(raw: seeding.Raw) -> None:
    raw["topology"]["stdout"] = raw["topology"]["stdout"].replace("PXB", "PHB")


def roce(raw: seeding.Raw) -> None:
    for device in raw["infiniband"]["devices"]:
        device["ports"][0]["link_layer"] = "Ethernet"


@pytest.mark.parametrize(
    ("change", "profile"),
    [
        (HDR100, ""),
        (seeding.edit("gpu02", far), ""),
        (seeding.edit("gpu02", roce), ""),
        (NDR, "hgx-a100-80gb"),  # more than the GPU's own link carries
    ],
)
def test_what_has_no_source_has_no_floor(change: seeding.Inject, profile: str) -> None:
    result = at(60.0, change, profile=profile)
    assert result.figures[0].figure.floor is None


def geforce(raw: seeding.Raw) -> None:
    smi = raw["nvidia_smi"]
    smi["stdout"] = smi["stdout"].replace("NVIDIA A100-SXM4-80GB", "NVIDIA GeForce RTX 4090")


def all_sys(raw: seeding.Raw) -> None:
    raw["topology"]["stdout"] = raw["topology"]["stdout"].replace("PXB", "SYS")


@pytest.mark.parametrize("change", [geforce, all_sys])
def test_gpus_without_gpudirect_or_adapter_are_not_judged(change: Callable[[seeding.Raw], Any]) -> None:
    assert at(10.0, seeding.edit("gpu02", change)).verdict is Verdict.EXCLUDED


def test_every_gpu_is_asked_by_its_rail_and_a_lost_one_moves_cudas_numbers() -> None:
    evidence = sample.healthy()
    pairs = checked.joined_gpus(evidence, ["gpu02"])["gpu02"]
    assert [(pair["gpu"], pair["device"]) for pair in pairs] == [(n, f"mlx5_{n // 4}") for n in range(8)]
    lost = seeding.lose_gpu("gpu02", 0, from_bus=False)(evidence)
    assert checked.joined_gpus(lost, ["gpu02"]) == {}  # its topology still shows eight
    assert judged(lost).verdict is Verdict.NOT_RUN


def test_a_slow_gpu_is_not_blamed_where_the_process_may_have_been_far_away() -> None:
    far_away = checked._of(2, unpinned="sysfs does not tell its CPUs (FileNotFoundError)")
    assert at(100.0, far_away).verdict is Verdict.NOT_RUN
    assert at(190.0, far_away).verdict is Verdict.PASS


def test_a_gpu_of_no_known_place_is_not_asked() -> None:
    """Nobody would judge it, and it would take the time of the others."""

    def off_bus(raw: seeding.Raw) -> None:
        raw["pci"].remove([each for each in raw["pci"] if each["class"].startswith("0x0302")][3])

    evidence = seeding.edit("gpu01", off_bus)(sample.healthy(1))
    pairs = checked.joined_gpus(evidence, ["gpu01"])["gpu01"]
    assert [pair["gpu"] for pair in pairs] == [0, 1, 2, 4, 5, 6, 7]
