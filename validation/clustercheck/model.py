"""The words of validation: what is judged, what was found, what it means."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from clustercheck.parse.python39 import SLOTS, StrEnum, record
from clustercheck.parse.reading import CannotReadError


class Verdict(StrEnum):
    """What did not run is never a pass. A warning is shown and counted, and fails no validation.

    EXCLUDED is shown as "n/a" if the check does not apply, and as "excluded" if the operator waived it.
    """

    PASS = "pass"  # noqa: S105 - a verdict
    FAIL = "fail"
    WARNING = "warning"
    NOT_RUN = "not_run"
    EXCLUDED = "excluded"


class Scope(StrEnum):
    """What a check judges."""

    HOST = "host"
    GPU = "gpu"
    LINK = "link"
    PAIR = "pair"
    GROUP = "group"


class Section(StrEnum):
    """A part of the report, in its order: what is below is judged before what stands on it."""

    CLUSTER = "cluster"
    SYSTEM = "system"
    NETWORK = "network"
    DRIVER = "driver"
    CONTAINERS = "containers"
    GPU_STATE = "gpu_state"
    GPU_TESTS = "gpu_tests"
    COLLECTIVES = "collectives"
    TRAINING = "training"


class Severity(StrEnum):
    """What a check's failure means to who uses the cluster: for order and display.

    It changes no verdict: any failure fails the validation.
    """

    CRITICAL = "critical"
    MAJOR = "major"
    MINOR = "minor"

    @property
    def means(self) -> str:
        """In a phrase."""
        return _MEANS[self]


_MEANS = {
    Severity.CRITICAL: "jobs cannot run there, or their results may be wrong",
    Severity.MAJOR: "jobs run slower than they should, or may fail later",
    Severity.MINOR: "jobs run; it is not as intended",
}


@dataclass(frozen=True, order=True, **SLOTS)
class Subject:
    """What a result is about: a node, a GPU of it, a node with its peer, or the group (all None)."""

    node: str | None = None
    gpu: int | None = None
    peer: str | None = None


# Shared by the many that have nothing to add: nobody writes to a Mapping.
NOTHING: Mapping[str, Any] = {}


class Direction(StrEnum):
    """Which way is good: bandwidths are to be high, latencies low."""

    HIGHER = "higher"
    LOWER = "lower"


TIME_UNITS = ("s", "ms", "us", "ns")


class Part(StrEnum):
    """The four questions of an expectation, each judged by itself."""

    CEILING = "ceiling"
    FLOOR = "floor"
    BASELINE = "baseline"
    PEERS = "peers"


@dataclass(frozen=True, **SLOTS)
class Limit:
    """A reference in the figure's unit, and how far from it is still right: ``tolerance`` is a part of it."""

    reference: float
    source: str
    method: str = ""
    tolerance: float = 0.0


@dataclass(frozen=True, **SLOTS)
class Effect:
    """The smallest change that counts, as a part of what is compared with: less may be noise."""

    least: float
    source: str


@record(frozen=True, **SLOTS)
class Figure:
    """One measurement and what is known of its limits. Raises CannotReadError where it is not a number.

    ``metric`` names it wherever it is compared, ``label`` is what a sentence says after the value ("at 8
    bytes"). ``ceiling`` is physics, ``nominal`` what efficiency is a part of (the ceiling's reference where
    it is not given), ``floor`` the profile's or the network's. Without an ``effect`` it is compared with no
    baseline and no peers. ``among`` is a limit that the check itself drew from equals. Only figures of equal
    ``conditions`` are compared.
    """

    metric: str
    measured: float
    unit: str
    method: str = ""
    label: str = ""
    better: Direction = Direction.HIGHER
    ceiling: Limit | None = None
    floor: Limit | None = None
    among: Limit | None = None
    nominal: float | None = None
    effect: Effect | None = None
    conditions: Mapping[str, Any] = field(default_factory=lambda: NOTHING)

    def __post_init__(self) -> None:
        if isinstance(self.measured, bool) or not math.isfinite(self.measured):
            raise CannotReadError(f"{self.metric} is not a number: {self.measured}")

    @property
    def is_speed(self) -> bool:
        """Whether it is a rate or a duration of work; not a ratio, nor a count of errors."""
        return self.unit.endswith(("/s", "FLOPS")) or self.unit in TIME_UNITS

    @property
    def efficiency(self) -> float | None:
        """Measured over what physics allows, 0..1; None if nothing bounds it, or it is beyond that."""
        nominal = self.nominal
        if nominal is None:
            nominal = self.ceiling.reference if self.ceiling else None
        if nominal is None or self.better is Direction.LOWER or not 0 <= self.measured <= nominal:
            return None
        return round(self.measured / nominal, 4) if nominal else None


@dataclass(frozen=True, **SLOTS)
class JudgedPart:
    """One question's answer. ``limit`` has the tolerance taken off already.

    ``margin`` is how far the measurement is on the good side of the limit, as a part of it; below zero it
    is on the bad one. ``because`` says what is wrong, or is empty.
    """

    part: Part
    limit: float
    source: str
    method: str
    tolerance: float
    verdict: Verdict
    margin: float
    because: str = ""

    def reference(self, better: Direction) -> float:
        """What the figure was compared with, the tolerance not taken off; 0 if that took off all."""
        kept = 1 + self.tolerance if better is Direction.LOWER else 1 - self.tolerance
        return self.limit / kept if kept > 0 else 0.0


@record(frozen=True, **SLOTS)
class Judged:
    """A figure with the answers to those of the four questions that could be asked."""

    figure: Figure
    parts: tuple[JudgedPart, ...]

    @property
    def verdict(self) -> Verdict:
        """Beyond physics the measurement is wrong, and nothing is judged; else any part may fail it."""
        worst = Verdict.PASS
        for part in self.parts:
            if part.verdict is Verdict.NOT_RUN:
                return Verdict.NOT_RUN
            if part.verdict is Verdict.FAIL:
                worst = Verdict.FAIL
        return worst

    @property
    def because(self) -> str:
        """What is wrong with it, part by part; empty if nothing is."""
        verdict = self.verdict
        return "; ".join(p.because for p in self.parts if p.because and p.verdict is verdict)

    @property
    def shown(self) -> JudgedPart | None:
        """The part to show if there is room for one: what failed, else what asks the most of it."""
        below = [part for part in self.parts if part.part is not Part.CEILING]
        failed = [part for part in below if part.verdict is Verdict.FAIL]
        return min(failed or below, key=lambda part: part.margin, default=None)


@record(frozen=True, **SLOTS)
class Result:
    """One check's verdict on one subject.

    ``efficiency`` is measured over what physics allows of the detected links, lanes and adapters, in 0..1;
    not over ``expected``, which is the threshold. None if nothing bounds it, or the measurement is above.
    ``margin`` is how far measured is on the good side of expected, as a part of it. ``figures`` holds every
    measurement with the parts of its expectation, each judged by itself. ``waived``: excluded since the
    operator does not want it judged, and not because it does not apply. For fault isolation alone:
    ``between`` is the other node, where what failed lies between the subject's and that one; ``server`` may
    be the cause instead of the node; ``place_unknown``: which part of the node is missing is not known;
    ``joint``: it is of what all nodes did together, and any of them may be the cause.
    ``evidence`` tells nothing of that, as nodes choose names in it.
    """

    check: str
    scope: Scope
    subject: Subject
    verdict: Verdict
    measured: float | str | None = None
    unit: str = ""
    expected: float | str | None = None
    efficiency: float | None = None
    source: str = ""
    method: str = ""
    because: str = ""
    remedy: str = ""
    evidence: Mapping[str, Any] = field(default_factory=lambda: NOTHING)
    simulated: bool = False
    severity: Severity = Severity.MAJOR
    margin: float | None = None
    figures: tuple[Judged, ...] = ()
    waived: bool = False
    between: str = ""
    server: str = ""
    place_unknown: bool = False
    joint: bool = False


@dataclass(frozen=True)
class Culprit:
    """A faulty component. ``scope`` is node, gpu, link, rail or switch.

    ``because`` is one line; ``reasons`` are all of them in full, where that line does not say everything.
    """

    scope: str
    node: str
    because: str
    remedy: str
    gpu: int | None = None
    peer: str | None = None
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True)
class Coverage:
    """Every expected subject x check, counted by what became of it."""

    expected: int
    passed: int
    failed: int
    not_run: int
    excluded: int
    warnings: int = 0
