"""`nvidia-smi nvlink -s` and `-e`: the rate of each NVLink of each GPU, and the errors it has counted."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

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

    rates: Mapping[int, float] = field(default_factory=dict)

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
    what = "nvidia-smi nvlink -s"
    found = []
    for index, uuid, lines in _by_gpu(text, what, _LINK.match):
        rates, unread, lost = _rates(lines)
        found.append(GpuLinks(index, uuid, unread, lost, rates))
    return tuple(found)


@lru_cache(maxsize=64)  # the lines of nearly all GPUs are alike
def _rates(lines: tuple[str, ...]) -> tuple[Mapping[int, float], str, str]:
    """The rate of each link of one GPU, with its ``unread`` and ``lost``. Raises CannotReadError."""
    rates: dict[int, float] = {}
    strange = []
    for line in lines:
        if match := _LINK.match(line):
            number = int(match[1])
            if number in rates:
                raise CannotReadError(f"nvidia-smi nvlink -s lists link {number} of a GPU twice")
            rates[number] = float(match[2] or "0")
        elif _is_strange(line):
            strange.append(line)
    return rates, *_unread(strange, "nvidia-smi nvlink -s")


def _by_gpu(
    text: str, what: str, is_of_link: Callable[[str], object]
) -> list[tuple[int, str, tuple[str, ...]]]:
    """Each GPU's number, UUID and the lines below. Raises CannotReadError where some are of no GPU."""
    lines = lines_of(text, what)
    starts = [
        (number, match)
        for number, line in enumerate(lines)
        if line.startswith("GPU ") and (match := _GPU.match(line))
    ]
    for line in lines[: starts[0][0]] if starts else lines:
        if is_of_link(line):
            raise CannotReadError(f"{what} lists a link before any GPU")
        if _is_strange(line):
            raise CannotReadError(_unread([line], what)[0])
    if not starts:
        raise CannotReadError(f"{what} lists no GPU")
    if len(starts) > MAX_GPUS:
        raise CannotReadError(f"{what} lists {len(starts)} GPUs, at most {MAX_GPUS} are read")
    ends = [number for number, _ in starts[1:]] + [len(lines)]
    found = [
        (int(match[1]), _uuid_in(lines[number]), tuple(lines[number + 1 : end]))
        for (number, match), end in zip(starts, ends)
    ]
    if len({index for index, _, _ in found}) != len(found):
        raise CannotReadError(f"{what} lists one GPU twice")
    return found


def _uuid_in(line: str) -> str:
    match = _UUID.search(line.rstrip())
    return match[1] if match else ""


def _is_strange(line: str) -> bool:
    """Whether a line that is of no link says something that is not known."""
    known = not line.strip() or _NONE.search(line) or lost_gpus(line) or corrupt_inforoms(line)
    return not known


def _unread(strange: Sequence[str], what: str) -> tuple[str, str]:
    """What to say of a GPU with lines that are not known: the first of them, and that it is lost."""
    lost = (next((words for words in sorted(GONE) if words in line), "") for line in strange)
    return f"{what} says {strange[0].strip()[:80]!r}" if strange else "", next(filter(None, lost), "")


@dataclass(frozen=True)
class GpuLinkErrors(Listed):
    """What the NVLinks of one GPU have counted: link number to counts by the driver's names, lower case.

    A link that is down counts nothing; a count that the driver does not report is None.
    """

    counts: Mapping[int, Mapping[str, int | None]] = field(default_factory=dict)


def parse_nvlink_errors(text: str) -> tuple[GpuLinkErrors, ...]:
    """Read the counters of every GPU listed. A line of unknown form takes from its GPU alone.

    Raises CannotReadError where no GPU is listed before it, or one is listed twice.
    """
    what = "nvidia-smi nvlink -e"
    found = []
    for index, uuid, lines in _by_gpu(text, what, _of_link):
        counts, unread, lost = _counts(lines)
        found.append(GpuLinkErrors(index, uuid, unread, lost, counts))
    return tuple(found)


def _of_link(line: str) -> object:
    return _COUNT.match(line) or _INACTIVE.match(line) or _RATIO.match(line)


@lru_cache(maxsize=64)  # the lines of nearly all GPUs are alike: they have counted nothing
def _counts(lines: tuple[str, ...]) -> tuple[Mapping[int, Mapping[str, int | None]], str, str]:
    """What each link of one GPU counts, with its ``unread`` and ``lost``. Raises CannotReadError."""
    links: dict[int, dict[str, int | None]] = {}
    strange = []
    for line in lines:
        if match := _COUNT.match(line):
            counts, name = links.setdefault(int(match[1]), {}), sys.intern(match[2].lower())
            if name in counts:
                raise CannotReadError(f"nvidia-smi nvlink -e counts {name} of link {match[1]} twice")
            counts[name] = None if match[3] == "N/A" else int(match[3])
        elif down := _INACTIVE.match(line):
            links.setdefault(int(down[1]), {})
        elif not _RATIO.match(line) and _is_strange(line):
            strange.append(line)
    return links, *_unread(strange, "nvidia-smi nvlink -e")
