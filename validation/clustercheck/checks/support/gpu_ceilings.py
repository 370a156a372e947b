"""What physics allows of one GPU's figures: from what was detected, else from its profile."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from clustercheck.checks.support.gpu import gpu_of
from clustercheck.evidence.cluster import Evidence
from clustercheck.evidence.gpu_jobs import is_positive, properties
from clustercheck.expect.physics import gemm_tflops, memory_gbps, pcie_gbps
from clustercheck.expect.profiles import Metric, Profile
from clustercheck.launch.model import RankOutcome
from clustercheck.model import Subject
from clustercheck.parse.reading import CannotReadError, whole_number

MAX_ATTRIBUTE = 2**31 - 1  # cuDeviceGetAttribute's: a C int
TRANSFERS = ("host_to_device", "device_to_host")
METRICS = frozenset(metric.value for metric in Metric)
EXCHANGES = {"peer_both_ways": 2, "peer_all_at_once": 1}  # times what a GPU's links carry one way


@dataclass(frozen=True)
class GpuCeilings:
    """What bounds the figures of one GPU, on which ``rank`` ran: read once for all of them."""

    evidence: Evidence
    subject: Subject
    rank: RankOutcome

    @cached_property
    def profile(self) -> Profile | None:
        """What the node's declared hardware can do; None if no profile is declared."""
        return self.evidence.profile(str(self.subject.node))

    def of(self, metric: str) -> float | None:
        """The most that this GPU can show, in the metric's unit; None if nothing is known to bound it."""
        what, _, precision = metric.partition("_")
        if what in ("gemm", "burn"):
            capability, count, clock = self._units
            detected = gemm_tflops(precision, capability, count, clock) if count and clock else None
            metric = f"gemm_{precision}"
        elif metric in (Metric.DEVICE_COPY, Metric.DEVICE_TRIAD):
            detected = _memory(self.rank)
        elif metric in TRANSFERS:
            if _has_c2c(self.evidence, self.subject):
                return None  # the PCIe link does not carry them: a GB200 reads 201 GB/s of its host [Azure]
            detected = _link(self.rank)
        elif metric == Metric.PEER_TO_PEER:
            detected = None  # by the profile's NVLinks: bridges are not distinguished from switches here
        elif metric in EXCHANGES:
            return EXCHANGES[metric] * self.profile.gpu_link_gbps if self.profile is not None else None
        else:
            return None
        if detected is not None or self.profile is None or metric not in METRICS:
            return detected
        return self.profile.ceiling(Metric(metric))

    @cached_property
    def _units(self) -> tuple[int, int | None, int | None]:
        """The compute capability (0 is of no architecture), the number of units and their highest clock."""
        clock = _highest_clock_khz(self.evidence, self.subject) or _rate(self.rank, "sm_clock_khz")
        count = _counted(properties(self.rank).get("sm_count"))
        return _rate(self.rank, "compute_capability") or 0, count, clock


def _rate(rank: RankOutcome, name: str) -> int | None:
    rates = properties(rank).get("rates")
    return _counted(rates.get(name)) if isinstance(rates, dict) else None


def _counted(value: Any) -> int | None:
    return value if isinstance(value, int) and is_positive(value) and value <= MAX_ATTRIBUTE else None


def _has_c2c(evidence: Evidence, subject: Subject) -> bool:
    """Whether NVLink-C2C joins the GPU with the CPU, as on Grace."""
    try:
        return gpu_of(evidence, subject).c2c == "Enabled"
    except CannotReadError:
        return False


def _highest_clock_khz(evidence: Evidence, subject: Subject) -> int | None:
    """As nvidia-smi says: a GeForce boosts beyond the rate that the driver's attribute tells."""
    try:
        clocks = gpu_of(evidence, subject).max_clocks or {}
    except CannotReadError:
        return None
    megahertz = whole_number(clocks.get("sm_clock", ""))
    return megahertz * 1000 if megahertz and megahertz > 0 else None


def _memory(rank: RankOutcome) -> float | None:
    clock, bus = _rate(rank, "memory_clock_khz"), _rate(rank, "memory_bus_bits")
    return memory_gbps(clock, bus) if clock and bus else None


def _link(rank: RankOutcome) -> float | None:
    seen = watch_of(rank)
    generation, width = seen.get("pcie_generation_possible"), seen.get("pcie_width_possible")
    if not isinstance(generation, (int, float)) or not isinstance(width, (int, float)):
        return None
    try:
        return pcie_gbps(int(generation), int(width))
    except (ValueError, OverflowError):
        return None


def watch_of(rank: RankOutcome) -> dict[str, Any]:
    """What nvidia-smi said while the program ran; empty where it was not asked."""
    seen = (rank.verdict or {}).get("watch")
    return dict(seen) if isinstance(seen, dict) else {}
