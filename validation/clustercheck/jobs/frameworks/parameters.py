"""Parameters drawn on the host by a seed: the same numbers for every framework, rank and device."""

from __future__ import annotations

import importlib
import math
from collections.abc import Iterable, Sequence
from typing import Any


def draw(shapes: Iterable[tuple[str, Sequence[int]]], seed: int) -> Iterable[Any]:
    """An array of float32 for each named shape, in their order: weights normal, biases 0, scales 1.

    Convolutions (4 dimensions) as He et al. (ICCV 2015) by their inputs, matrices as BERT with 0.02. A
    matrix is drawn as (inputs, outputs).
    """
    numpy: Any = importlib.import_module("numpy")  # comes with the framework, only on nodes

    generator = numpy.random.default_rng(seed)
    for name, shape in shapes:
        if len(shape) < 2:
            yield numpy.full(shape, 0.0 if name.endswith("bias") else 1.0, "float32")
            continue
        deviation = math.sqrt(2 / math.prod(shape[1:])) if len(shape) == 4 else 0.02
        array = generator.standard_normal(tuple(shape), dtype="float32")
        array *= deviation
        yield array
