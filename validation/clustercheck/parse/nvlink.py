"""`nvidia-smi nvlink -s` and `-e`: the rate of each NVLink of each GPU, and the errors it has counted."""

from __future__ import annotations

import re
import sys
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TypeVar

from clustercheck.parse.nvidia_smi import GONE, corrupt_inforoms, lost_gpus
from clustercheck.parse.reading import MAX_GPUS, CannotReadError, lines_of

_GPU = re.compile(r"GPU (\d{1,4}): ")
_UUID = re.compile(r" \(UUID: ([^()]*)\)$")
_LINK = re.compile(r"\s+Link (\d{1,4}): (?:(\d{1,6}(?:\.\d{1,6})?) GB/s|<?(inactive)>?)\s*$", re.IGNORECASE)
_COUNT = re.compile(r"\s+Link (\d{1,4}): ([A-Za-z][A-Za-z0-9 _-]{1,60}): (\d{1,20}|N/A)\s*$")
# Bit error rates of NVLink 5, as "Effective BER: 15e-255": the counts beside them say the same.
_RATIO = re.compile(
    r"\s+Link \d{1,4}: [A-Za-z ]{0,40}BER[A-Za-z0-9 ]{0,20}: (?:\d{1,20}(?:e-?\d{1,5})?|N/A)\s*$"
)
_INACTIVE = re.compile(r"\s+Link (\d{1,4}): <?inactive>?\s*$", re.IGNORECASE)
_NONE = re.compile(r"NVML: Unable to retrieve NVLink information|does not support NVLink", re.IGNORECASE)
_rate = lru_cache(maxsize=256)(float)  # few rates, of thousands of links

L = TypeVar("L", bound="Listed")


@dataclass(frozen=True)
class Listed:
    """One GPU's part of the output.

    ``unread`` is its first line that could not be read, ``lost`` what says that the GPU no longer answers.
    """

    index: int
    uuid: str
    unread: str = ""
    lost: str = ""


@dataclass(frozen=True)
class GpuLinks(Listed):
    """The NVLinks of one GPU: link number to rate one way in GB/s, 0.0 where the link is down."""

    rates: dict[int, float] = field(default_factory=dict)

    @property
    def up(self) -> tuple[int, ...]:
        """Numbers of the links that carry data."""
        return tuple(number for number, rate in sorted(self.rates.items()) if rate > 0)

    @property
    def down(self) -> tuple[int, ...]:
        """Numbers of the links that do not."""
        return tuple(number for number, rate in sorted(self.rates.items()) if rate <= 0)


def parse_nvlink(text: str) -> tuple[GpuLinks, ...]:
    """Read the links of every GPU listed. A line of unknown form takes from its GPU alone.

    Raises CannotReadError where no GPU is listed before it, or one is listed twice.
    """
    found: list[GpuLinks] = []
    for line in filter(str.strip, lines_of(text, "nvidia-smi nvlink -s")):
        if match := _GPU.match(line):
            found.append(GpuLinks(int(match[1]), _uuid_in(line)))
        elif match := _LINK.match(line):
            if not found:
                raise CannotReadError("nvidia-smi nvlink -s lists a link before any GPU")
            number = int(match[1])
            if number in found[-1].rates:
                raise CannotReadError(f"nvidia-smi nvlink -s lists link {number} of a GPU twice")
            found[-1].rates[number] = _rate(match[2] or "0")
        elif not _NONE.search(line) and not lost_gpus(line) and not corrupt_inforoms(line):
            _note_unread(found, line, "nvidia-smi nvlink -s")
    _require_plausible(found, "nvidia-smi nvlink -s")
    rates: dict[Hashable, dict[int, float]] = {}
    return tuple(replace(gpu, rates=rates.setdefault(tuple(gpu.rates.items()), gpu.rates)) for gpu in found)


def _uuid_in(line: str) -> str:
    match = _UUID.search(line.rstrip())
    return match[1] if match else ""


def _require_plausible(found: Sequence[Listed], what: str) -> None:
    """Raises CannotReadError where no GPU is listed, one twice, or more than any node has."""
    if not found:
        raise CannotReadError(f"{what} lists no GPU")
    if len(found) > MAX_GPUS:
        raise CannotReadError(f"{what} lists {len(found)} GPUs, at most {MAX_GPUS} are read")
    if len({gpu.index for gpu in found}) != len(found):
        raise CannotReadError(f"{what} lists one GPU twice")


def _note_unread(found: list[L], line: str, what: str) -> None:
    """Note it of the GPU whose lines these are. Raises CannotReadError if there is none."""
    message = f"{what} says {line.strip()[:80]!r}"
    if not found:
        raise CannotReadError(message)
    lost = next((words for words in sorted(GONE) if words in line), "")
    found[-1] = replace(found[-1], unread=found[-1].unread or message, lost=found[-1].lost or lost)


@dataclass(frozen=True)
class GpuLinkErrors(Listed):
    """What the NVLinks of one GPU have counted: link number to counts by the driver's names, lower case.

    A link that is down counts nothing; a count that the driver does not report is None.
    """

    counts: dict[int, dict[str, int | None]] = field(default_factory=dict)


def parse_nvlink_errors(text: str) -> tuple[GpuLinkErrors, ...]:
    """Read the counters of every GPU listed. A line of unknown form takes from its GPU alone.

    Raises CannotReadError where no GPU is listed before it, or one is listed twice.
    """
    what = "nvidia-smi nvlink -e"
    found: list[GpuLinkErrors] = []
    for line in filter(str.strip, lines_of(text, what)):
        if match := _GPU.match(line):
            found.append(GpuLinkErrors(int(match[1]), _uuid_in(line)))
            continue
        count = _COUNT.match(line)
        down = None if count else _INACTIVE.match(line)
        if (down or count) and not found:
            raise CannotReadError(f"{what} lists a link before any GPU")
        if down:
            found[-1].counts.setdefault(int(down[1]), {})
        elif count:
            counts, name = found[-1].counts.setdefault(int(count[1]), {}), sys.intern(count[2].lower())
            if name in counts:
                raise CannotReadError(f"{what} counts {name} of link {count[1]} twice")
            counts[name] = None if count[3] == "N/A" else int(count[3])
        elif not any((_RATIO.match(line), _NONE.search(line), lost_gpus(line), corrupt_inforoms(line))):
            _note_unread(found, line, what)
    _require_plausible(found, what)
    alike: dict[Hashable, dict[str, int | None]] = {}
    together: dict[Hashable, dict[int, dict[str, int | None]]] = {}
    for gpu in found:  # nearly all links and GPUs have counted the same: nothing
        gpu.counts.update({n: alike.setdefault(tuple(one.items()), one) for n, one in gpu.counts.items()})
    lines = [tuple((n, tuple(one.items())) for n, one in gpu.counts.items()) for gpu in found]
    return tuple(replace(gpu, counts=together.setdefault(key, gpu.counts)) for key, gpu in zip(lines, found))
