"""GPUs that bus and driver tell of differently: who fails, and who beside it does not."""

from __future__ import annotations

import copy
from xml.etree import ElementTree

from clustercheck.checks.base import evaluate
from clustercheck.checks.gpu_present import CHECK, _off_bus_listed
from clustercheck.checks.support import seeding
from clustercheck.evidence.cluster import Evidence
from clustercheck.model import Verdict
from clustercheck.samples import sample


def failed(evidence: Evidence, node: str) -> dict[int | None, str]:
    """Why each GPU of the node fails; all others pass."""
    results = [one for one in evaluate(CHECK, evidence) if one.subject.node == node]
    assert {one.verdict for one in results} <= {Verdict.PASS, Verdict.FAIL}
    return {one.subject.gpu: one.because for one in results if one.verdict is Verdict.FAIL}


def test_a_gpu_that_only_the_driver_lists_is_that_gpus_fault() -> None:
    because = failed(_off_bus_listed("gpu02", 3)(sample.healthy()), "gpu02")
    assert list(because) == [3] and "gone from the PCI bus: 7 on the PCI bus" in because[3]
    alone = failed(_off_bus_listed("gpu01", 3)(sample.healthy(1)), "gpu01")
    assert list(alone) == [7] and "no complete node of its kind" in alone[7]


def test_a_gpu_too_many_in_the_driver_or_on_the_bus_fails_all() -> None:
    def one_more(root: ElementTree.Element) -> None:
        extra = copy.deepcopy(root.findall("gpu")[7])
        extra.set("id", "00000000:F1:00.0")
        root.append(extra)
        attached = root.find("attached_gpus")
        assert attached is not None
        attached.text = "9"

    def on_bus(raw: seeding.Raw) -> None:
        gpu = next(each for each in raw["pci"] if each["address"] == "0000:bd:00.0")
        raw["pci"].append({**gpu, "address": "0000:f1:00.0"})

    for change in (seeding.smi_root("gpu02", one_more), seeding.edit("gpu02", on_bus)):
        because = failed(change(sample.healthy()), "gpu02")
        assert set(because) == set(range(8))
        assert all("there are more GPUs than declared" in one for one in because.values())
