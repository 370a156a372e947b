"""Hardware profiles: what a kind of GPU server can do, with the source of every number."""

from __future__ import annotations

from enum import StrEnum
from functools import cache
from pathlib import Path

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from clustercheck.errors import ExplainedError
from clustercheck.expect.physics import all_reduce_ceiling_gbps, nvlink_gbps, pcie_gbps

DIRECTORY = Path(__file__).parent / "profiles"


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


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Figure(_Strict):
    """A number with where it comes from."""

    value: float = Field(gt=0)
    source: str = Field(min_length=3)


class NvLink(_Strict):
    """NVLinks of one GPU; ``required`` is False where bridges may or may not be fitted."""

    links: int = Field(gt=0)
    link_gbps: float = Field(gt=0)
    required: bool = True
    reduced_in_switch: bool = False
    source: str = Field(min_length=3)


class Pcie(_Strict):
    """The GPU's PCIe link."""

    generation: int
    width: int = 16


class Floor(_Strict):
    """What healthy hardware reaches at least: ``value`` less ``tolerance`` (a part of it, 0 to 1)."""

    metric: Metric
    value: float = Field(gt=0)
    unit: str
    tolerance: float = Field(ge=0, lt=1)
    method: str = Field(min_length=3)
    source: str = Field(min_length=3)
    gpus: int | None = Field(default=None, gt=1)
    bytes: int | None = Field(default=None, gt=0)

    @property
    def threshold(self) -> float:
        """Below this a measurement fails."""
        return self.value * (1 - self.tolerance)


class Profile(_Strict):
    """A kind of GPU server."""

    name: str
    summary: str
    gpu_models: tuple[str, ...] = Field(min_length=1)
    memory_gib: int = Field(gt=0)
    memory_bandwidth: Figure
    peak_tflops: dict[str, Figure]
    ecc: bool
    pcie: Pcie
    gpus: int | None = Field(default=None, gt=0)  # a node; None where servers of this kind differ
    nvlink: NvLink | None = None
    nvswitches: int = Field(default=0, ge=0)
    floors: tuple[Floor, ...] = ()

    @property
    def gpu_link_gbps(self) -> float:
        """One way between GPUs of a node: NVLink where it is required or fitted, else PCIe."""
        if self.nvlink is not None:
            return nvlink_gbps(self.nvlink.links, self.nvlink.link_gbps)
        return pcie_gbps(self.pcie.generation, self.pcie.width)

    @property
    def reduced_in_switch(self) -> bool:
        """Whether the switch between the GPUs of a node can reduce by itself."""
        return self.nvlink is not None and self.nvlink.reduced_in_switch

    def ceiling(self, metric: Metric, gpus: int | None = None) -> float | None:
        """What physics allows for a metric, in its unit; None where nothing is known to bound it."""
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

    @model_validator(mode="after")
    def _below_the_ceiling(self) -> Profile:
        for floor in self.floors:
            ceiling = self.ceiling(floor.metric, floor.gpus)
            if ceiling is not None and floor.threshold > ceiling:
                raise ValueError(
                    f"the floor of {floor.metric} is {floor.threshold:g} {floor.unit}, above the "
                    f"{ceiling:g} that physics allows: no healthy machine could pass"
                )
            if floor.metric is Metric.ALL_REDUCE and (floor.gpus is None or floor.bytes is None):
                raise ValueError("a floor of all_reduce_busbw names its gpus and bytes")
        return self

    def floor(self, metric: Metric, *, gpus: int, size_bytes: int) -> Floor | None:
        """The floor for this metric at exactly this number of GPUs and bytes."""
        for floor in self.floors:
            if floor.metric is metric and floor.gpus == gpus and floor.bytes == size_bytes:
                return floor
        return None

    def floor_of_gpu(self, metric: str) -> Floor | None:
        """The floor for what one GPU does by itself; None where no sourced number is known."""
        return next((floor for floor in self.floors if floor.metric == metric and floor.gpus is None), None)


def names() -> tuple[str, ...]:
    """Every profile there is."""
    return tuple(sorted(path.stem for path in DIRECTORY.glob("*.yml")))


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
    path = DIRECTORY / f"{name}.yml"
    return parse(path.read_text(encoding="utf-8"), where=str(path))


def parse(text: str, *, where: str) -> Profile:
    """A profile from its YAML. Raises ExplainedError (``profile.invalid``)."""
    try:
        return Profile.model_validate(yaml.safe_load(text))
    except yaml.YAMLError as error:
        raise _invalid(f"it is not YAML: {' '.join(str(error).split())}", where) from error
    except ValidationError as error:
        problems = "; ".join(
            f"{'.'.join(map(str, e['loc'])) or 'profile'}: {e['msg'].removeprefix('Value error, ')}"
            for e in error.errors()
        )
        raise _invalid(problems, where) from error


def _invalid(problems: str, where: str) -> ExplainedError:
    return ExplainedError(
        f"the hardware profile is wrong: {problems}",
        code="profile.invalid",
        where=where,
        hint="Mend the profile: each number needs its source, and must be physically possible.",
    )
