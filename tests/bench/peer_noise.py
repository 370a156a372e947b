"""Noise of measurements, as captured or published, and what the rule of peers makes of healthy groups."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from clustercheck.expect.effects import effect
from clustercheck.expect.peers import equals, tolerance

# Bus bandwidth in GB/s of one size out of place and in place, from 64 MiB to 8 GiB: nccl-tests on 8 x
# A100-SXM4-40GB [microsoft/superbenchmark, test data, MIT].
ALL_REDUCE = (
    (200.91, 201.82), (202.11, 202.05), (222.40, 222.45), (223.68, 224.55),
    (230.29, 229.81), (231.76, 231.93), (234.37, 234.50), (235.26, 235.03),
)  # fmt: skip
ALL_GATHER = (
    (154.65, 159.75), (168.12, 178.67), (197.01, 206.76), (203.88, 210.85),
    (212.88, 220.61), (217.01, 223.98), (220.85, 228.12), (223.39, 230.07),
)  # fmt: skip
SAMPLES = 5  # of each figure, as suite quick takes them; the figure is their median
COPY_BYTES, COPIES = 16 << 20, 2000

Draw = Callable[[random.Random], float]


@dataclass(frozen=True)
class Noise:
    """One healthy measurement around 1.0, more being better; ``kind`` is that of its least effect."""

    name: str
    kind: str
    draw: Draw
    source: str


def normal(sigma: float, chance: random.Random) -> float:
    """Normal noise."""
    return chance.gauss(1.0, sigma)


def captured(pairs: Sequence[tuple[float, float]], chance: random.Random) -> float:
    """As far from the middle as one of two runs of the same size was."""
    a, b = chance.choice(pairs)
    return 1.0 + chance.choice((-1, 1)) * (a - b) / (a + b)


def passing(sigma: float, chance: random.Random) -> float:
    """The median of some samples, of which one in a hundred is slowed by something that passes."""
    slowed = (chance.uniform(0.3, 0.8) if chance.random() < 0.01 else 1.0 for _ in range(SAMPLES))
    return statistics.median(factor * chance.gauss(1.0, sigma) for factor in slowed)


def copies_here() -> list[float]:
    """Bandwidths of copies in this machine's memory, each the median of a few, around 1.0."""
    source, target = bytearray(COPY_BYTES), bytearray(COPY_BYTES)

    def one() -> float:
        begun = time.perf_counter()
        target[:] = source
        return 1.0 / (time.perf_counter() - begun)

    values = [statistics.median(one() for _ in range(SAMPLES)) for _ in range(COPIES)]
    middle = statistics.median(values)
    return [value / middle for value in values]


def noises(copied: Sequence[float]) -> tuple[Noise, ...]:
    """Those of the table. ``copied`` are `copies_here`."""
    of_nccl = "in place next to out of place, nccl-tests on 8 x A100, 64 MiB to 8 GiB"
    of_tcp = "containers of one machine: 15 % from the middle"
    of_gpus = (
        "GPUs of one model differ by 8 % on average, at most 22 % [Sinha et al., SC22], taken for 4 sigma"
    )
    return (
        Noise("all-reduce within a node", "nvlink", partial(captured, ALL_REDUCE), of_nccl),
        Noise("all-gather, as of a network", "rdma", partial(captured, ALL_GATHER), of_nccl),
        Noise("GPUs, sigma 2 %", "gpu", partial(normal, 0.02), of_gpus),
        Noise("GPUs, sigma 5.5 %", "gpu", partial(normal, 0.055), of_gpus),
        Noise(
            f"GPUs, sigma 2 %, median of {SAMPLES}, 1 % of samples slowed", "gpu", partial(passing, 0.02),
            "slowed to 30 to 80 %: assumed, not measured",
        ),
        Noise("TCP, sigma 8 %", "tcp", partial(normal, 0.08), of_tcp),
        Noise(
            f"memory copies of this machine, median of {SAMPLES}", "gpu",
            lambda chance: chance.choice(copied), "measured by the bench, next to other work",
        ),
    )  # fmt: skip


def blamed(values: Sequence[float], least: float) -> list[int]:
    """Whom the rule calls slow, of equals."""
    group = equals(values)
    if group is None:
        return []
    limit = group.median * (1 - tolerance(group, least))
    return [number for number, value in enumerate(values) if value < limit]


def alarms(noise: Noise, count: int, groups: int, seed: int) -> int:
    """In how many healthy groups of so many equals anybody is blamed."""
    chance, least = random.Random(seed), effect(noise.kind).least  # noqa: S311 - a simulation
    return sum(bool(blamed([noise.draw(chance) for _ in range(count)], least)) for _ in range(groups))


def detections(noise: Noise, count: int, groups: int, seed: int) -> int:
    """In how many groups the one that is slower by twice the least effect is blamed."""
    chance, least = random.Random(seed), effect(noise.kind).least  # noqa: S311 - a simulation
    found = 0
    for _ in range(groups):
        values = [noise.draw(chance) for _ in range(count)]
        values[0] *= 1 - 2 * least
        found += 0 in blamed(values, least)
    return found
