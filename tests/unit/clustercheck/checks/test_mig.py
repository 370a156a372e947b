"""MIG: what was declared, what nvidia-smi lists, and the verdict of each GPU."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clustercheck.checks import gpu_mig
from clustercheck.checks.all import BY_ID
from clustercheck.checks.base import evaluate
from clustercheck.checks.support import seeding
from clustercheck.evidence.cluster import Evidence
from clustercheck.model import Result, Verdict
from clustercheck.parse.gpu_list import parse_gpu_list
from clustercheck.parse.reading import CannotReadError
from clustercheck.samples import sample
from clustercheck.spec import mig_layout

# As a driver 550 prints it on an A100 of the MIG User Guide's examples; UUIDs are made up.
SPLIT = """GPU 0: NVIDIA A100-SXM4-80GB (UUID: GPU-5c89852c-d268-c3f3-1b07-005d5ae1dc3f)
  MIG 3g.40gb     Device  0: (UUID: MIG-c7384736-a75d-5afc-978f-d2f1294409fd)
  MIG 1g.10gb+me  Device  1: (UUID: MIG-a2ff5f9f-c2a5-5ac7-8a9e-3a6e1a8f9a10)
  MIG 1c.3g.40gb  Device  2: (UUID: MIG-93ad8fdf-c3a4-51ca-8b2b-3e1ec0d5fb62)
GPU 1: NVIDIA A100-SXM4-80GB (UUID: GPU-e5a5d7b4-0d1c-41c5-9b52-0d2bd4a0c8a1)
"""


def result_of(evidence: Evidence, node: str, gpu: int) -> Result:
    found = evaluate(BY_ID["gpu-mig"], evidence)
    return next(each for each in found if (each.subject.node, each.subject.gpu) == (node, gpu))


def test_the_list_has_the_instances_of_each_gpu() -> None:
    first, second = parse_gpu_list(SPLIT).values()
    assert first == ("3g.40gb", "1g.10gb+me", "1c.3g.40gb")
    assert second == ()


@pytest.mark.parametrize(
    "text",
    [
        "", "\n", "No devices found.\n", SPLIT.replace("GPU 0:", "GPU zero:"),
        SPLIT.replace("Device  1", "Gerät  1"), "\n".join(SPLIT.splitlines()[1:]), SPLIT + SPLIT, SPLIT[:-20],
    ],
)  # fmt: skip
def test_what_is_no_such_list_is_not_read(text: str) -> None:
    with pytest.raises(CannotReadError):
        parse_gpu_list(text)


@given(st.text(max_size=400))
def test_no_text_is_a_traceback(text: str) -> None:
    try:
        parse_gpu_list(text)
    except CannotReadError:
        return


@pytest.mark.parametrize(
    ("text", "layout"),
    [
        ("disabled", None),
        ("3g.40gb, 3g.40gb", ("3g.40gb", "3g.40gb")),
        ("7x1g.10gb", ("1g.10gb",) * 7),
        ("1c.3g.40gb,1g.10gb+me", ("1c.3g.40gb", "1g.10gb+me")),
    ],
)
def test_a_layout_is_read_as_people_write_it(text: str, layout: tuple[str, ...] | None) -> None:
    assert mig_layout(text) == layout


@pytest.mark.parametrize("text", ["", "off", "3g40gb", "7x", "1g.10gb,", "all-1g.10gb", "False"])
def test_what_is_no_layout_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no MIG instance"):
        mig_layout(text)


def test_the_declared_instances_pass_whatever_their_order_and_others_name_both() -> None:
    split = gpu_mig._split("gpu02", 3, "2g.20gb", "3g.40gb")
    declared = gpu_mig._declared("3g.40gb, 2g.20gb")
    evidence = seeding.chain(declared, split)(sample.healthy())
    assert result_of(evidence, "gpu02", 3).verdict is Verdict.PASS
    whole = result_of(evidence, "gpu02", 4)
    assert whole.verdict is Verdict.FAIL
    assert whole.because == "disabled, and 2g.20gb, 3g.40gb was declared"


@pytest.mark.parametrize(
    ("declared", "count", "verdict"),
    [
        ("all-1g.10gb", 7, Verdict.PASS),
        ("all-1g.10gb", 6, Verdict.FAIL),
        ("all-1g.5gb", 7, Verdict.NOT_RUN),  # no profile of this model: how many fit is not known
        ("enabled", 0, Verdict.PASS),
        ("enabled", 1, Verdict.FAIL),
    ],
)
def test_a_gpu_that_is_to_be_filled_has_as_many_as_fit(declared: str, count: int, verdict: Verdict) -> None:
    split = gpu_mig._split("gpu02", 3, *["1g.10gb"] * count)
    evidence = seeding.chain(gpu_mig._declared(declared), split)(sample.healthy())
    assert result_of(evidence, "gpu02", 3).verdict is verdict


def test_a_gpu_may_be_declared_by_its_index() -> None:
    evidence = gpu_mig._split("gpu02", 3, "3g.40gb")(sample.healthy())
    nodes = tuple(replace(one, mig="disabled", mig_by_gpu={3: "3g.40gb"}) for one in evidence.spec.nodes)
    evidence = replace(evidence, spec=replace(evidence.spec, nodes=nodes))
    assert result_of(evidence, "gpu02", 3).verdict is Verdict.PASS
    assert result_of(evidence, "gpu02", 4).verdict is Verdict.PASS
    assert result_of(evidence, "gpu01", 3).verdict is Verdict.FAIL


def test_a_gpu_without_mig_is_excluded_unless_it_was_to_have_some() -> None:
    modes = [seeding.smi("gpu01", 0, f"mig_mode/{mode}", "N/A") for mode in ("current_mig", "pending_mig")]
    without = seeding.chain(*modes)
    assert result_of(without(sample.healthy()), "gpu01", 0).verdict is Verdict.EXCLUDED
    declared = seeding.chain(without, gpu_mig._declared("7x1g.5gb"))
    assert result_of(declared(sample.healthy()), "gpu01", 0).verdict is Verdict.FAIL
