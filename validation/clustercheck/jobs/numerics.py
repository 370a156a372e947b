"""The allowed error of a matrix product: sampled elements are compared with exact sums on the CPU.

Errors of rounding add up as a random walk: with probability 1 - 2 exp(-L^2 / 2) the sum of k products is
within L sqrt(k) u sum|a b| of the truth (N. J. Higham and T. Mary, A new approach to probabilistic rounding
error analysis, SIAM J. Sci. Comput. 41(5), 2019, theorem 3.1). Tensor cores truncate where they add:
u = 2^-23 (M. Fasi, N. J. Higham, M. Mikaitis, S. Pranesh, Numerical behavior of NVIDIA tensor cores, PeerJ
Comput. Sci. 7:e330, 2021). An input that is cut to TF32's 10 bits loses up to 2^-10 of itself, on average
half of that, and the deviations from the average are bounded by Hoeffding's inequality.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

LIKELY = 8.0  # L: one false alarm in 4e13 elements
ROWS, COLUMNS = 16, 16


@dataclass(frozen=True)
class Precision:
    """A precision's size in memory, and its units of rounding: of inputs, of sums, of the result."""

    bytes: int
    input_unit: float
    sum_unit: float
    output_unit: float


PRECISIONS = {
    "fp64": Precision(8, 0.0, 2**-53, 2**-53),
    "fp32": Precision(4, 0.0, 2**-24, 2**-24),
    "tf32": Precision(4, 2**-10, 2**-23, 2**-24),
    "fp16": Precision(2, 0.0, 2**-23, 2**-11),
    "bf16": Precision(2, 0.0, 2**-23, 2**-8),
}


def bound_error(precision: Precision, terms: int, *, absolute: float, squares: float, result: float) -> float:
    """The allowed error of a sum of ``terms`` products.

    ``absolute`` is sum|a b|, ``squares`` the sum of (a b)^2, ``result`` the sum's own size.
    """
    inputs = precision.input_unit * (result + LIKELY * math.sqrt(squares))
    sums = LIKELY * math.sqrt(terms) * precision.sum_unit * absolute
    return inputs + sums + precision.output_unit * result


def bound_any_error(precision: Precision, terms: int) -> float:
    """The allowed difference of two computations of any element of a product of numbers in [-1, 1]."""
    root = math.sqrt(terms)
    return 2 * bound_error(precision, terms, absolute=terms, squares=terms, result=LIKELY * root)


def pick_samples(rows: int, columns: int, seed: int) -> tuple[list[int], list[int]]:
    """Rows and columns to compare: the corners, and others at random."""
    generator = random.Random(seed)  # noqa: S311 - not a secret
    return _pick(rows, ROWS, generator), _pick(columns, COLUMNS, generator)


def _pick(of: int, count: int, generator: random.Random) -> list[int]:
    return sorted({0, of - 1, *generator.sample(range(of), min(of, count))})


@dataclass(frozen=True)
class Comparison:
    """Sampled elements compared with the reference: how many are wrong, and the largest error."""

    checked: int
    wrong: int
    largest_error: float | None  # None if a result is not a number
    largest_part: float | None  # of its tolerance
    first: str


def compare(
    precision: Precision,
    left: Sequence[Sequence[float]],
    right: Sequence[Sequence[float]],
    product: Sequence[Sequence[float]],
) -> Comparison:
    """Compare rows of the left factor and columns of the right (each a list) with the product's elements."""
    wrong, first = 0, ""
    error = part = 0.0
    for i, row in enumerate(left):
        for j, column in enumerate(right):
            terms = [a * b for a, b in zip(row, column, strict=True)]
            truth = math.fsum(terms)
            allowed = bound_error(
                precision,
                len(terms),
                absolute=math.fsum(map(abs, terms)),
                squares=math.fsum(term * term for term in terms),
                result=abs(truth),
            )
            off = abs(product[i][j] - truth)
            if not off <= allowed:
                wrong += 1
                first = first or f"{product[i][j]:.6g} where {truth:.6g} is expected, within {allowed:.2g}"
            error = max(error, off) if not math.isnan(error + off) else math.nan
            of_allowed = off / (allowed or math.ulp(0.0))
            part = max(part, of_allowed) if not math.isnan(part + of_allowed) else math.nan
    finite = math.isfinite(error)
    return Comparison(
        checked=len(left) * len(right),
        wrong=wrong,
        largest_error=error if finite else None,
        largest_part=part if finite and math.isfinite(part) else None,
        first=first,
    )
