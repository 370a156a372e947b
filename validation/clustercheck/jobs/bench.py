"""The means to measure on one device: phases, timing, figures and the verdict, for the programs gpu_*.py."""

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
else:  # shipped to a node they lie side by side, and are no package
    devices = importlib.import_module(f"{__package__}.device" if __package__ else "device")

# A sample shorter than this measures launches and the timer's steps; CUDA's events resolve 0.5 us
# (CUDA Runtime API, cudaEventElapsedTime): 20 ms is 40,000 of them.
SAMPLE_S = 0.02
WARM_UP_S = 0.3  # a GPU raises its clocks within tens of milliseconds of load
MOST_REPEATS = 1_000_000
MOST_SAID = 5
NODE = "the node"


class MeasurementError(Exception):
    """What was measured is no measurement."""


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
        self.keep: Callable[[Mapping[str, Any]], None] = lambda verdict: None  # leaves what is known so far
        self._progress = progress
        self._title = ""

    def describe(self) -> dict[str, Any]:
        """What every verdict says of where it was measured."""
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

    def at(self, phase: str) -> None:
        """Note where this rank is."""
        self._progress.at(self._title + phase)

    def entitle(self, program: str) -> None:
        """Name the program in every phase from now on."""
        self._title = f"{program}: "

    def blames(self, error: Exception) -> str:
        """What went wrong and where, in a line."""
        first_line = next(iter(str(error).strip().splitlines()), "") or "no message"
        return f"{type(error).__name__} while {self._progress.phase}: {first_line[:300]}"

    @contextmanager
    def in_use(self, directory: Path = Path()) -> Iterator[None]:
        """At work on its own device: nobody has the `whole_node` meanwhile."""
        self._progress.at(f"{self._title}waiting until another GPU releases the node", collective=True)
        with self._lock(NODE, directory, fcntl.LOCK_SH):
            yield

    @contextmanager
    def whole_node(self, directory: Path = Path()) -> Iterator[None]:
        """Alone on the node: after all others have ended what they do with their own devices."""
        self._progress.at(f"{self._title}waiting until the node's other GPUs are idle", collective=True)
        with self._lock(NODE, directory, fcntl.LOCK_EX):
            yield

    @contextmanager
    def turn(self, shared: str, directory: Path = Path()) -> Iterator[None]:
        """Alone among this node's ranks that share something: a rank that ends gives it up by itself."""
        self._progress.at(f"{self._title}waiting for its turn on {shared}", collective=True)
        with self._lock(shared, directory, fcntl.LOCK_EX):
            self.at(f"its turn on {shared}")
            yield

    @contextmanager
    def _lock(self, shared: str, directory: Path, kind: int) -> Iterator[None]:
        with (directory / f"{re.sub(r'[^a-z0-9]+', '-', shared.lower())}.turn").open("w") as lock:
            fcntl.flock(lock, kind)
            yield

    def barrier(self) -> None:
        """Nobody else takes part."""

    def size(self, name: str, arguments: Mapping[str, Any]) -> int:
        """A size as asked for, else as it suits the device. Raises ValueError where it is none."""
        size = int(arguments.get(name) or self.device.defaults[name])
        if size <= 0:
            raise ValueError(f"{name} must be positive, not {size}")
        return size

    def elapsed_s(self, work: Callable[[], None], repeat: int = 1) -> float:
        """Seconds of one ``work``. Raises MeasurementError where the timer says what cannot be."""
        return self.checked(self.device.elapsed_s(work, repeat), repeat)

    def checked(self, total: float, repeat: int) -> float:
        """Seconds of one of ``repeat`` works that took ``total`` together. Raises MeasurementError."""
        if not (math.isfinite(total) and total > 0):
            raise MeasurementError(f"the timer returned {total} s while {self._progress.phase}")
        return total / repeat

    def times_s(
        self, work: Callable[[], None], *, samples: int, after: Callable[[], None] | None = None
    ) -> list[float]:
        """Seconds of one ``work``, so many times over, each from a whole sample of repeats; warmed up.

        ``after`` is called after each sample, untimed: to look at what the last ``work`` left.
        """
        once = self.elapsed_s(work)  # the first run also compiles, loads and allocates
        once = self.elapsed_s(work, repeats(WARM_UP_S, once))
        repeat = repeats(SAMPLE_S, once)
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
        """The verdict: right, and no figure beyond what the arguments ask (``floors``, ``ceilings``)."""
        said = [*problems, *beyond(figures, arguments)]
        left = len(said) - MOST_SAID
        because = "; ".join(said[:MOST_SAID]) + (f"; and {left} more" if left > 0 else "")
        return {"ok": not said, "because": because, "figures": list(figures), **more}


def open_bench(progress: Progress, arguments: Mapping[str, Any], *, simulated: bool) -> Bench:
    """The bench of this rank's own device: its GPU where it has one, else the CPU."""
    gpu = os.environ.get("CLUSTERCTL_GPU")
    place = "cpu" if gpu is None else f"gpu:{gpu}"
    device = devices.load(place, arguments)
    if gpu is not None and device.kind != "gpu":
        raise devices.BackendError(
            f"requested {place}, but the backend opened {device.name}: a {device.kind}"
        )
    rank = int(os.environ["PADDLE_TRAINER_ID"])
    return Bench(device, progress, place=place, rank=rank, simulated=simulated)


def repeats(least_s: float, once_s: float) -> int:
    """How often a work of ``once_s`` fills ``least_s``."""
    return max(1, min(MOST_REPEATS, math.ceil(least_s / once_s)))


def figure(metric: str, values: Sequence[float], unit: str, method: str, **more: Any) -> dict[str, Any]:
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


def beyond(figures: Sequence[Mapping[str, Any]], arguments: Mapping[str, Any]) -> list[str]:
    """What is below a floor or above a ceiling of the arguments, or was not measured though one is set."""
    measured = {figure["metric"]: figure for figure in figures}
    said = []
    for limit, sign, words in (("floors", 1, "at least"), ("ceilings", -1, "at most")):
        for metric, value in (arguments.get(limit) or {}).items():
            if metric not in measured:
                said.append(f"{metric} not measured; expected {words} {value:g}")
            elif sign * measured[metric]["value"] < sign * value:
                found = measured[metric]
                said.append(f"{metric} {found['value']:.4g} {found['unit']}; expected {words} {value:g}")
    return said
