"""Scaling of training has a floor where the links are as those of the machines that it was measured on."""

from __future__ import annotations

import pytest

from clustercheck.expect.training import scaling_floor

NVLINK3, PCIE4, NDR8, HDR2, ROCE = 300.0, 31.5, 400.0, 50.0, 12.5  # GB/s one way


@pytest.mark.parametrize(
    ("model", "step_s", "wire_gbps", "limited"),
    [
        ("bert_base", 0.0256, NVLINK3, True),  # an H100 by AMP
        ("bert_base", 0.0256, NDR8, True),
        ("bert_base", 0.0256, HDR2, False),  # 17.6 ms of its gradients beside a step of 25.6
        ("bert_base", 0.082, HDR2, True),  # an A100
        ("bert_base", 0.052, PCIE4, False),  # an L40S by AMP
        ("resnet50", 0.102, PCIE4, True),
        ("resnet50", 0.102, ROCE, True),
        ("resnet50", 0.044, ROCE, False),
        ("another", 1.0, NVLINK3, False),
    ],
)
def test_gradients_that_take_long_on_the_wire_have_no_floor(
    model: str, step_s: float, wire_gbps: float, limited: bool
) -> None:
    for level, floor in (("node", 0.8), ("cluster", 0.7)):
        found = scaling_floor(level, model, step_s, wire_gbps)
        assert (found.reference if found else None) == (floor if limited else None)


def test_a_quarter_of_the_step_is_the_most() -> None:
    just = 2 * 0.44 / NVLINK3 / 0.25
    assert scaling_floor("node", "bert_base", just * 1.001, NVLINK3) is not None
    assert scaling_floor("node", "bert_base", just * 0.999, NVLINK3) is None
