"""What bounds a GPU's products: the highest clock that nvidia-smi tells, before the driver's attribute."""

from __future__ import annotations

from dataclasses import replace
from xml.etree import ElementTree

import pytest

from clustercheck.checks.support import seeding
from clustercheck.checks.support.gpu_ceilings import GpuCeilings
from clustercheck.expect.profiles import Metric
from clustercheck.model import Subject
from clustercheck.samples import sample

SUBJECT = Subject("gpu01", 0)
ATTRIBUTE_MHZ = 1410


def ceiling(clock: str | None) -> float:
    def change(root: ElementTree.Element) -> None:
        if clock is not None:
            clocks = ElementTree.SubElement(root.findall("gpu")[0], "max_clocks")
            ElementTree.SubElement(clocks, "sm_clock").text = clock

    evidence = seeding.smi_root("gpu01", change)(sample.healthy(1))
    found = GpuCeilings(evidence, SUBJECT, evidence.jobs["gpu_gemm"].ranks[0]).of("gemm_fp16")
    assert found is not None
    return found


@pytest.mark.parametrize("lacking", ["compute_capability", "sm_clock_khz", "sm_count"])
@pytest.mark.parametrize("said", [None, 0, -108, True, "108"])
def test_a_gpu_that_does_not_say_what_it_has_is_bound_by_its_profile(lacking: str, said: object) -> None:
    """No impossible bound is computed from it, which would reject what was measured."""
    evidence = sample.healthy(1)
    whole = evidence.jobs["gpu_gemm"].ranks[0]
    properties = dict((whole.verdict or {})["properties"])
    if lacking == "sm_count":
        properties["sm_count"] = said
    else:
        properties["rates"] = {**properties["rates"], lacking: said}
    rank = replace(whole, verdict={**(whole.verdict or {}), "properties": properties})
    of_profile = evidence.profiles[sample.PROFILE].ceiling(Metric.GEMM_FP16)
    assert GpuCeilings(evidence, SUBJECT, rank).of("gemm_fp16") == of_profile


@pytest.mark.parametrize(
    ("clock", "mhz"),
    [("1740 MHz", 1740), ("1200 MHz", 1200), ("0 MHz", ATTRIBUTE_MHZ), ("N/A", ATTRIBUTE_MHZ)],
)
def test_the_clock_that_nvidia_smi_tells_counts_first(clock: str, mhz: int) -> None:
    assert ceiling(clock) == pytest.approx(ceiling(None) * mhz / ATTRIBUTE_MHZ)


@pytest.mark.parametrize(
    ("metric", "is_known"), [("gemm_fp16", True), ("gemm_int4", False), ("launch", False)]
)
@pytest.mark.parametrize("with_profile", [True, False])
def test_nothing_bounds_what_neither_the_gpu_nor_its_profile_knows(
    metric: str, is_known: bool, with_profile: bool
) -> None:
    evidence = sample.healthy(1)
    if not with_profile:
        evidence = replace(evidence, profiles={})
    rank = replace(evidence.jobs["gpu_gemm"].ranks[0], verdict={})
    assert (GpuCeilings(evidence, SUBJECT, rank).of(metric) is not None) == (is_known and with_profile)
