"""Healthy systems of other kinds than the sample, on their first day: no check raises a false alarm.

The probe's evidence goes through the real judging of the suites `standard` and `seeds`. What a check says of
a system that it does not fit is "n/a", with a reason; only jobs that have not run are "not run".
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest
from tests.support.day_one import SYSTEMS, evidence_of

from clustercheck.checks.all import BY_ID
from clustercheck.checks.base import evaluate
from clustercheck.checks.support import seeding
from clustercheck.evidence.cluster import Evidence
from clustercheck.model import Result, Subject, Verdict
from clustercheck.running.suites import load
from clustercheck.samples import sample

CHECKS = tuple(
    {check.id: check for name in ("standard", "seeds") for check in load(name).selected()}.values()
)
NO_RDMA = {
    "infiniband-errors", "infiniband-firmware", "infiniband-port", "rails-alike", "roce", "roce-flow-control",
    "fabric-manager", "dcgm-diag", "nvlink", "nvlink-errors", "gpu-topology", "gpu-mig", "pcie-acs",
    "mounts", "nvme",
}  # fmt: skip
# Checks of the probe's evidence that do not apply there.
DO_NOT_APPLY = {
    "HGX A100": {"mounts", "nvme"},
    "DGX H100": {"mounts", "nvme"},
    "HGX B200": {"mounts", "nvme"},
    "L40S server": NO_RDMA,
    "single-GPU workstation": NO_RDMA
    | {
        "firmware-alike", "huge-pages", "memory", "os-alike", "gpu-vbios", "gpu-ecc", "gpu-p2p",
        "gpu-row-remap", "mtu-alike", "pci-manifest",
    },
    "GB200 tray": {"iommu", "mounts", "nvme", "pcie-acs", "gpu-topology"},
    "virtual machine": {
        "cpu-governor", "firmware-alike", "iommu", "memory-errors", "mounts", "nvme", "pcie-acs",
        "gpu-recovery",
    },
    "GPU in a guest": (NO_RDMA - {"gpu-mig"})
    | {
        "firmware-alike", "huge-pages", "memory", "os-alike", "gpu-vbios", "gpu-p2p", "mtu-alike",
        "cpu-governor", "iommu", "memory-errors", "gpu-fabric",
    },
}  # fmt: skip


# A virtual machine's image leaves persistence mode off: a warning with its remedy, which turns no verdict.
WARNINGS = {"virtual machine": {"gpu-persistence"}}


def judged(evidence: Evidence) -> list[Result]:
    return [result for check in CHECKS for result in evaluate(check, evidence)]


@cache
def judged_on_day_one(name: str) -> list[Result]:
    return judged(evidence_of(SYSTEMS[name]))


def told(results: list[Result]) -> list[str]:
    return sorted({f"{one.check}: {one.verdict.value}: {one.because}" for one in results})


@pytest.mark.parametrize("name", SYSTEMS)
def test_a_healthy_system_raises_no_alarm(name: str) -> None:
    results = judged_on_day_one(name)
    assert told([one for one in results if one.verdict is Verdict.FAIL]) == []
    warned = {one.check for one in results if one.verdict is Verdict.WARNING}
    assert warned == WARNINGS.get(name, set())
    waiting = [one for one in results if one.verdict is Verdict.NOT_RUN and not BY_ID[one.check].job]
    assert told(waiting) == []


@pytest.mark.parametrize("name", SYSTEMS)
def test_what_does_not_fit_the_system_is_not_applicable_with_a_reason(name: str) -> None:
    results = [one for one in judged_on_day_one(name) if not BY_ID[one.check].job]
    excluded = [one for one in results if one.verdict is Verdict.EXCLUDED]
    assert {one.check for one in excluded} == DO_NOT_APPLY[name]
    assert all(one.because for one in excluded)
    assert {one.check for one in results if one.verdict is Verdict.PASS} >= {
        "gpu-present",
        "gpu-driver",
        "pcie-link",
    }


def test_all_gpus_of_a_board_have_its_nvswitches_also_in_a_guest() -> None:
    guest = evidence_of(SYSTEMS["GPU in a guest"])
    whole = replace(guest.spec, nodes=tuple(replace(node, gpu_count=8) for node in guest.spec.nodes))
    (result,) = evaluate(BY_ID["fabric-manager"], replace(guest, spec=whole))
    assert (result.verdict, result.because) == (Verdict.FAIL, "0 NVSwitches on the PCI bus, 4 expected")


@pytest.mark.parametrize("check", ["nvlink", "nvlink-errors"])
def test_of_several_gpus_links_that_are_not_shown_are_not_known(check: str) -> None:
    part = check.replace("-", "_")
    mute = seeding.edit("gpu01", lambda raw: raw[part].update(stdout=""))(sample.healthy(2))
    results = [one for one in evaluate(BY_ID[check], mute) if one.subject.node == "gpu01"]
    assert {one.verdict for one in results} == {Verdict.NOT_RUN}


def test_jobs_that_a_healthy_hgx_a100_passed_raise_no_alarm() -> None:
    whole = sample.healthy(2)
    day_one = evidence_of(SYSTEMS["HGX A100"])
    results = judged(replace(day_one, jobs=whole.jobs))
    assert (
        told(
            [
                one
                for one in results
                if one.verdict is not Verdict.PASS and one.check not in ("mounts", "nvme")
            ]
        )
        == []
    )


@pytest.mark.parametrize("name", SYSTEMS)
def test_a_fault_of_the_system_is_found_there_too(name: str) -> None:
    """Quiet because it is healthy, not because nothing is judged."""
    lost = seeding.lose_gpu("gpu01", len(SYSTEMS[name].buses) - 1, from_bus=True)(evidence_of(SYSTEMS[name]))
    (result,) = [
        one
        for one in evaluate(BY_ID["gpu-present"], lost)
        if one.subject == Subject("gpu01", len(SYSTEMS[name].buses) - 1)
    ]
    assert result.verdict is Verdict.FAIL
