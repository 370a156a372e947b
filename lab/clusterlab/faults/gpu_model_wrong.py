"""A GPU of another model sits among the others, as after a repair with the wrong part."""

from __future__ import annotations

from clusterlab.faults import gpu
from clusterlab.hardware import Gpu

OTHER = "NVIDIA A100-SXM4-40GB"


def _break(one: Gpu) -> None:
    one.product_name = OTHER


FAULT = gpu.edited(
    "gpu-model-wrong",
    "a GPU is of another model than was ordered",
    _break,
    "product_name",
    caught_by=("gpu-model",),
)
