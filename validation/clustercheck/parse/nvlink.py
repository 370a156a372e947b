"""`nvidia-smi nvlink -s`: the rate of each NVLink of each GPU."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from clustercheck.parse.reading import CannotReadError

_GPU = re.compile(r"GPU (\d{1,4}): (.*?)(?: \(UUID: ([^)]*)\))?\s*$")
_LINK = re.compile(r"\s+Link (\d{1,4}): (?:(\d+(?:\.\d+)?) GB/s|<?(inactive)>?)\s*$", re.IGNORECASE)
_NONE = re.compile(r"NVML: Unable to retrieve NVLink information|does not support NVLink", re.IGNORECASE)


@dataclass(frozen=True)
class GpuLinks:
    """The NVLinks of one GPU: link number to rate one way in GB/s, 0.0 where the link is down."""

    index: int
    uuid: str
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
    """Read the links of every GPU listed.

    Raises CannotReadError at the first line that is neither a GPU, a link, nor "has no NVLink".
    """
    found: list[GpuLinks] = []
    for line in text.splitlines():
        if not line.strip():
            continue
        if match := _GPU.match(line):
            found.append(GpuLinks(int(match[1]), match[3] or ""))
        elif match := _LINK.match(line):
            if not found:
                raise CannotReadError("nvidia-smi nvlink -s lists a link before any GPU")
            number = int(match[1])
            if number in found[-1].rates:
                raise CannotReadError(f"nvidia-smi nvlink -s lists link {number} of a GPU twice")
            found[-1].rates[number] = float(match[2] or 0)
        elif not _NONE.search(line):
            raise CannotReadError(f"nvidia-smi nvlink -s says {line.strip()[:80]!r}")
    if not found:
        raise CannotReadError("nvidia-smi nvlink -s lists no GPU")
    if len({links.index for links in found}) != len(found):
        raise CannotReadError("nvidia-smi nvlink -s lists one GPU twice")
    return tuple(found)
