"""Hardware profiles: what a kind of GPU server can do, with the source of every number."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from clustercheck.errors import ExplainedError
from clustercheck.expect.physics import all_reduce_ceiling_gbps, nvlink_gbps, pcie_gbps
from clustercheck.parse.python39 import StrEnum
from clustercheck.tables import read_table

DIRECTORY = Path(__file__).parent / "profiles"
T = TypeVar("T")


class Metric(StrEnum):
    """What a floor is a floor of. Units: GB/s, but GEMM in TFLOPS."""

    ALL_REDUCE = "all_reduce_busbw"
    HOST_TO_DEVICE = "host_to_device"
    DEVICE_TO_HOST = "device_to_host"
    PEER_TO_PEER = "peer_to_peer"
    DEVICE_COPY = "device_copy"
    DEVICE_TRIAD = "device_triad"
    GEMM_FP16 = "gemm_fp16"
    GEMM_BF16 = "gemm_bf16"
    GEMM_TF32 = "gemm_tf32"
    GEMM_FP32 = "gemm_fp32"
    GEMM_FP64 = "gemm_fp64"


@dataclass(frozen=True)
class SourcedFigure:
    """A number with where it comes from."""

    value: float
    source: str

    def __post_init__(self) -> None:
        _require_positive(value=self.value)
        _require_text(source=self.source)


@dataclass(frozen=True)
class NvLinkSpec:
    """NVLinks of one GPU; ``required`` is False where bridges may or may not be fitted."""

    links: int
    link_gbps: float
    source: str
    required: bool = True
    reduced_in_switch: bool = False

    def __post_init__(self) -> None:
        _require_positive(links=self.links, link_gbps=self.link_gbps)
        _require_text(source=self.source)


@dataclass(frozen=True)
class PcieSpec:
    """The GPU's PCIe link."""

    generation: int
    width: int = 16

    def __post_init__(self) -> None:
        _require_positive(generation=self.generation, width=self.width)


@dataclass(frozen=True)
class Floor:
    """What healthy hardware reaches at least: ``value`` less ``tolerance`` (a part of it, 0 to 1)."""

    metric: Metric
    value: float
    unit: str
    tolerance: float
    method: str
    source: str
    gpus: int | None = None
    bytes: int | None = None

    def __post_init__(self) -> None:
        _require_positive(value=self.value, gpus=self.gpus, bytes=self.bytes)
        _require_text(unit=self.unit, method=self.method, source=self.source)
        if not 0 <= self.tolerance < 1:
            raise ValueError(f"tolerance is {self.tolerance!r}, not from 0 to below 1")
        if self.metric is Metric.ALL_REDUCE and (self.gpus is None or self.bytes is None):
            raise ValueError("a floor of all_reduce_busbw names its gpus and bytes")

    @property
    def threshold(self) -> float:
        """Below this a measurement fails."""
        return self.value * (1 - self.tolerance)


@dataclass(frozen=True)
class Profile:
    """A kind of GPU server. ``gpus``: of a node, None where servers of this kind differ."""

    name: str
    summary: str
    gpu_models: tuple[str, ...]
    memory_gib: int
    memory_bandwidth: SourcedFigure
    peak_tflops: Mapping[str, SourcedFigure]
    ecc: bool
    pcie: PcieSpec
    gpus: int | None = None
    nvlink: NvLinkSpec | None = None
    nvswitches: int = 0
    floors: tuple[Floor, ...] = ()

    def __post_init__(self) -> None:
        _require_positive(memory_gib=self.memory_gib, gpus=self.gpus)
        _require_text(name=self.name, summary=self.summary, gpu_models="".join(self.gpu_models))
        for floor in self.floors:
            ceiling = self.ceiling(floor.metric, floor.gpus)
            if ceiling is not None and floor.threshold > ceiling:
                raise ValueError(
                    f"the floor of {floor.metric} is {floor.threshold:g} {floor.unit}, above the "
                    f"{ceiling:g} that physics allows: no healthy machine could pass"
                )

    @property
    def gpu_link_gbps(self) -> float:
        """One way between GPUs of a node: NVLink where it is required or fitted, else PCIe."""
        if self.nvlink is not None:
            return nvlink_gbps(self.nvlink.links, self.nvlink.link_gbps)
        return pcie_gbps(self.pcie.generation, self.pcie.width)

    @property
    def switched(self) -> bool:
        """Whether NVSwitches join the GPUs of a node: as PCI devices of the host, or behind its adapters."""
        return self.nvswitches > 0 or self.reduced_in_switch

    @property
    def reduced_in_switch(self) -> bool:
        """Whether the switch between the GPUs of a node can reduce by itself."""
        return self.nvlink is not None and self.nvlink.reduced_in_switch

    def ceiling(self, metric: Metric, gpus: int | None = None) -> float | None:
        """What physics allows for a metric, in its unit; None if nothing is known to bound it."""
        if metric is Metric.ALL_REDUCE:
            return all_reduce_ceiling_gbps(
                self.gpu_link_gbps, gpus or 8, reduced_in_switch=self.reduced_in_switch
            )
        if metric in (Metric.HOST_TO_DEVICE, Metric.DEVICE_TO_HOST):
            return pcie_gbps(self.pcie.generation, self.pcie.width)
        if metric is Metric.PEER_TO_PEER:
            return self.gpu_link_gbps
        if metric in (Metric.DEVICE_COPY, Metric.DEVICE_TRIAD):
            return self.memory_bandwidth.value
        peak = self.peak_tflops.get(metric.value.removeprefix("gemm_"))
        return peak.value if peak else None

    def floor(self, metric: Metric, *, gpus: int, size_bytes: int) -> Floor | None:
        """The floor for this metric at exactly this number of GPUs and bytes."""
        for floor in self.floors:
            if floor.metric is metric and floor.gpus == gpus and floor.bytes == size_bytes:
                return floor
        return None

    def floor_of_gpu(self, metric: str) -> Floor | None:
        """The floor for what one GPU does by itself; None if no sourced number is known."""
        return next((floor for floor in self.floors if floor.metric == metric and floor.gpus is None), None)


def _require_positive(**numbers: float | None) -> None:
    for name, number in numbers.items():
        if number is not None and (isinstance(number, bool) or not number > 0):
            raise ValueError(f"{name} is {number!r}, not a number above 0")


def _require_text(**texts: str) -> None:
    for name, text in texts.items():
        if not isinstance(text, str) or not text.strip():
            raise ValueError(f"{name} is {text!r}, not a text")


def names() -> tuple[str, ...]:
    """Every profile there is."""
    return tuple(sorted({path.stem for path in DIRECTORY.iterdir() if path.suffix in {".yml", ".json"}}))


@cache
def load(name: str) -> Profile:
    """The profile of that name.

    Raises ExplainedError: ``profile.unknown``, or ``profile.invalid`` where a number is impossible.
    """
    if name not in names():
        raise ExplainedError(
            f"there is no hardware profile {name!r}",
            code="profile.unknown",
            hint=f"hardware_profile is one of: {', '.join(names())}",
        )
    return build(read_table(DIRECTORY / name), where=str(DIRECTORY / name))


def build(table: Any, *, where: str) -> Profile:
    """A profile from its table. Raises ExplainedError (``profile.invalid``)."""
    try:
        entry = dict(table)
        floors = [{**floor, "metric": _metric(floor["metric"])} for floor in entry.get("floors", ())]
        entry |= {
            "gpu_models": tuple(entry["gpu_models"]),
            "memory_bandwidth": _build(SourcedFigure, entry["memory_bandwidth"]),
            "peak_tflops": {kind: _build(SourcedFigure, peak) for kind, peak in entry["peak_tflops"].items()},
            "pcie": _build(PcieSpec, entry["pcie"]),
            "nvlink": _build(NvLinkSpec, entry["nvlink"]) if entry.get("nvlink") else None,
            "floors": tuple(_build(Floor, floor) for floor in floors),
        }
        return _build(Profile, entry)
    except KeyError as error:
        raise _invalid(f"it has no {error.args[0]}", where) from error
    except (AttributeError, TypeError, ValueError) as error:
        raise _invalid(str(error), where) from error


def _metric(name: str) -> Metric:
    try:
        return Metric(name)
    except ValueError:
        raise ValueError(f"metric is {name!r}, not one of {', '.join(Metric)}") from None


def _build(kind: type[T], entry: Mapping[str, Any]) -> T:
    """An instance of a dataclass from its entry. Raises TypeError for a key that is unknown or missing."""
    known = {field.name for field in fields(kind)}  # type: ignore[arg-type]
    if unknown := sorted(set(entry) - known):
        raise TypeError(f"{kind.__name__.lower()} has no {', '.join(unknown)}")
    return kind(**entry)


def _invalid(problem: str, where: str) -> ExplainedError:
    return ExplainedError(
        f"the hardware profile is wrong: {problem}",
        code="profile.invalid",
        where=where,
        hint="Correct the profile: each number needs its source, and must be physically possible.",
    )
