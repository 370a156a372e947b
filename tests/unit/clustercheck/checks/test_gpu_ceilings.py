"""What bounds a GPU's products: the highest clock that nvidia-smi tells, before the driver's attribute."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from clustercheck.checks.support import seeding
from clustercheck.checks.support.gpu_ceilings import ceiling_of
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
    found = ceiling_of(evidence, SUBJECT, evidence.jobs["gpu_gemm"].ranks[0], "gemm_fp16")
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("clock", "mhz"),
    [("1740 MHz", 1740), ("1200 MHz", 1200), ("0 MHz", ATTRIBUTE_MHZ), ("N/A", ATTRIBUTE_MHZ)],
)
def test_the_clock_that_nvidia_smi_tells_counts_first(clock: str, mhz: int) -> None:
    assert ceiling(clock) == pytest.approx(ceiling(None) * mhz / ATTRIBUTE_MHZ)
