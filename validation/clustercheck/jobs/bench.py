"""Measuring on one device, for the programs gpu_*.py: phases, timing, figures and the verdict."""

from __future__ import annotations

import fcntl
import importlib
import math
import os
import re
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from clustercheck.jobs import device as devices
    from clustercheck.jobs.rank import Progress
else:  # on a node they are single files, not a package
    devices = importlib.import_module(f"{__package__}.device" if __package__ else "device")

# Shorter samples would measure launches and the timer's steps; CUDA's events resolve 0.5 us
# (CUDA Runtime API, cudaEventElapsedTime): 20 ms is 40,000 of them.
SAMPLE_S = 0.02
WARM_UP_S = 0.3  # a GPU raises its clocks within tens of milliseconds under load
MAX_REPEATS = 1_000_000
MAX_PROBLEMS = 5
NODE = "the node"


class MeasurementError(Exception):
    """The measured value is not valid."""


class Bench:
    """One device under measurement, as one rank sees it."""

    def __init__(
        self,
        device: devices.Device,
        progress: Progress,
        *,
        place: str,
        rank: int = 0,
        simulated: bool = False,
    ) -> None:
        self.device = device
        self.rank = rank
        self.place = place
        self.simulated = simulated or device.simulated
        self.keep: Callable[[Mapping[str, Any]], None] = lambda verdict: None  # writes the verdict so far
        self._progress = progress
        self._title = ""

    def describe(self) -> dict[str, Any]:
        """What every verdict records about where it was measured."""
        device = self.device
        return {
            "rank": self.rank,
            "world": 1,
            "backend": device.kind,
            "device": self.place,
            "framework": device.framework,
            "timer": device.timer,
            "simulated": self.simulated,
            "properties": {
                "name": device.name,
                "kind": device.kind,
                "memory_bytes": device.memory_bytes,
                "sm_count": device.sm_count,
                "l2_bytes": device.l2_bytes,
                "pci_address": device.pci_address,
                "rates": dict(device.rates),
            },
        }

    def set_phase(self, phase: str) -> None:
        """Record the phase of this rank."""
        self._progress.set_phase(self._title + phase)

    def set_program(self, program: str) -> None:
        """Prefix every phase with the program's name from now on."""
        self._title = f"{program}: "

    def describe_error(self, error: Exception) -> str:
        """The error and the phase, in one line."""
        first_line = next(iter(str(error).strip().splitlines()), "") or "no message"
        return f"{type(error).__name__} while {self._progress.phase}: {first_line[:300]}"

    @contextmanager
    def use_device(self, directory: Path = Path()) -> Iterator[None]:
        """Use the own device only; excludes every `take_node` meanwhile."""
        self._progress.set_phase(f"{self._title}waiting until another GPU releases the node", collective=True)
        with self._lock(NODE, directory, fcntl.LOCK_SH):
            yield

    @contextmanager
    def take_node(self, directory: Path = Path()) -> Iterator[None]:
        """Use the node exclusively, after all ranks finished using their own devices."""
        self._progress.set_phase(
            f"{self._title}waiting until the node's other GPUs are idle", collective=True
        )
        with self._lock(NODE, directory, fcntl.LOCK_EX):
            yield

    @contextmanager
    def take_turn(self, shared: str, directory: Path = Path()) -> Iterator[None]:
        """Exclude this node's other ranks from a shared resource; a rank that ends releases it."""
        self._progress.set_phase(f"{self._title}waiting for its turn on {shared}", collective=True)
        with self._lock(shared, directory, fcntl.LOCK_EX):
            self.set_phase(f"its turn on {shared}")
            yield

    @contextmanager
    def _lock(self, shared: str, directory: Path, kind: int) -> Iterator[None]:
        with (directory / f"{re.sub(r'[^a-z0-9]+', '-', shared.lower())}.turn").open("w") as lock:
            fcntl.flock(lock, kind)
            yield

    def barrier(self) -> None:
        """No other rank takes part."""

    def size(self, name: str, arguments: Mapping[str, Any]) -> int:
        """The requested size, else the device's default. Raises ValueError if it is not positive."""
        size = int(arguments.get(name) or self.device.defaults[name])
        if size <= 0:
            raise ValueError(f"{name} must be positive, not {size}")
        return size

    def elapsed_s(self, work: Callable[[], None], repeat: int = 1) -> float:
        """Seconds of one ``work``. Raises MeasurementError if the timer's value is not valid."""
        return self.check_time(self.device.elapsed_s(work, repeat), repeat)

    def check_time(self, total: float, repeat: int) -> float:
        """Seconds of one of ``repeat`` works that took ``total`` together. Raises MeasurementError."""
        if not (math.isfinite(total) and total > 0):
            raise MeasurementError(f"the timer returned {total} s while {self._progress.phase}")
        return total / repeat

    def times_s(
        self, work: Callable[[], None], *, samples: int, after: Callable[[], None] | None = None
    ) -> list[float]:
        """Seconds of one ``work``, one value per sample of many repeats, after a warm-up.

        ``after`` is called after each sample, untimed, to inspect the result of the last ``work``.
        """
        once = self.elapsed_s(work)  # the first run also compiles, loads and allocates
        once = self.elapsed_s(work, count_repeats(WARM_UP_S, once))
        repeat = count_repeats(SAMPLE_S, once)
        times = []
        for _ in range(max(1, samples)):
            times.append(self.elapsed_s(work, repeat))
            if after is not None:
                after()
        return times

    def conclude(
        self,
        figures: Sequence[Mapping[str, Any]],
        problems: Sequence[str],
        arguments: Mapping[str, Any],
        **more: Any,
    ) -> dict[str, Any]:
        """The verdict: no problems, and no figure outside the arguments' ``floors`` and ``ceilings``."""
        found = [*problems, *find_violations(figures, arguments)]
        left = len(found) - MAX_PROBLEMS
        because = "; ".join(found[:MAX_PROBLEMS]) + (f"; and {left} more" if left > 0 else "")
        return {"ok": not found, "because": because, "figures": list(figures), **more}


def open_bench(progress: Progress, arguments: Mapping[str, Any], *, simulated: bool) -> Bench:
    """The bench of this rank's own device: its GPU if it has one, else the CPU."""
    gpu = os.environ.get("CLUSTERCTL_GPU")
    place = "cpu" if gpu is None else f"gpu:{gpu}"
    device = devices.load(place, arguments)
    if gpu is not None and device.kind != "gpu":
        raise devices.BackendError(
            f"requested {place}, but the backend opened {device.name}: a {device.kind}"
        )
    rank = int(os.environ["PADDLE_TRAINER_ID"])
    return Bench(device, progress, place=place, rank=rank, simulated=simulated)


def count_repeats(least_s: float, once_s: float) -> int:
    """How often a work of ``once_s`` fills ``least_s``."""
    return max(1, min(MAX_REPEATS, math.ceil(least_s / once_s)))


def make_figure(metric: str, values: Sequence[float], unit: str, method: str, **more: Any) -> dict[str, Any]:
    """One figure of a verdict: the median, its range and how it was measured."""
    if not values or not all(math.isfinite(value) for value in values):
        raise MeasurementError(f"{metric} is not a number: {list(values)[:3]}")
    return {
        "metric": metric,
        "value": statistics.median(values),
        "unit": unit,
        "minimum": min(values),
        "maximum": max(values),
        "samples": len(values),
        "method": method,
        **more,
    }


def find_violations(figures: Sequence[Mapping[str, Any]], arguments: Mapping[str, Any]) -> list[str]:
    """Figures below a floor or above a ceiling of the arguments, or not measured though limited."""
    measured = {figure["metric"]: figure for figure in figures}
    violations = []
    for limit, sign, words in (("floors", 1, "at least"), ("ceilings", -1, "at most")):
        for metric, value in (arguments.get(limit) or {}).items():
            if metric not in measured:
                violations.append(f"{metric} not measured; expected {words} {value:g}")
            elif sign * measured[metric]["value"] < sign * value:
                found = measured[metric]
                violations.append(
                    f"{metric} {found['value']:.4g} {found['unit']}; expected {words} {value:g}"
                )
    return violations
