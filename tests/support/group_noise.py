"""Healthy clusters with noise of several kinds, and clusters of which half is slower."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

from clustercheck.expect.groups import TwoGroups, two_groups
from clustercheck.model import Direction

EFFECT = 0.05
NOISE: dict[str, Callable[[random.Random], float]] = {
    "normal": lambda chance: chance.gauss(0, 1),
    "uniform": lambda chance: chance.uniform(-(3**0.5), 3**0.5),
    "Laplace": lambda chance: chance.expovariate(2**0.5) * chance.choice((-1, 1)),
    "lognormal": lambda chance: math.exp(chance.gauss(0, 0.5)),
    "exponential": lambda chance: chance.expovariate(1),
}


def groups_in(
    values: list[float], better: Direction = Direction.HIGHER, least: float = EFFECT
) -> TwoGroups | None:
    """The two groups in a value of each node."""
    return two_groups({f"gpu{number:03d}": value for number, value in enumerate(values)}, better, least)


def alarms(count: int, noise: str, sigma: float, effect: float, tries: int) -> float:
    """The part of healthy clusters of so many nodes, with this noise, in which there are two groups."""
    chance = random.Random(11)  # noqa: S311 - a simulation
    clusters = ([1 + sigma * NOISE[noise](chance) for _ in range(count)] for _ in range(tries))
    return sum(groups_in(values, least=effect) is not None for values in clusters) / tries


def detections(count: int, sigma: float, factor: float, tries: int, noise: str = "normal") -> float:
    """The part of clusters, half of whose nodes are slower by a factor, in which that half is named."""
    chance = random.Random(3)  # noqa: S311 - a simulation
    half, right = count // 2, 0
    for _ in range(tries):
        values = [(1 + sigma * NOISE[noise](chance)) * (factor if n < half else 1) for n in range(count)]
        pair = groups_in(values)
        right += pair is not None and sorted(pair.slower) == [f"gpu{n:03d}" for n in range(half)]
    return right / tries
