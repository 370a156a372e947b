"""`nvidia-smi topo -p2p r|w|n`: whether each GPU may read, write, or reach by NVLink each other."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache

from clustercheck.parse.reading import CannotReadError, lines_of, readable

LARGEST = 1024 * 1024
# As its legend says, after NVML's nvmlGpuP2PStatus_t.
MEANINGS: Mapping[str, str] = {
    "OK": "yes",
    "CNS": "not supported by the chipset",
    "GNS": "not supported by the GPU",
    "TNS": "not supported by the topology",
    "DR": "disabled by a setting of the driver",
    "NS": "not supported",
    "U": "unknown to the driver",
}
_ESCAPE = re.compile(r"\x1b\[[0-9;]{0,20}m")
_GPU = re.compile(r"GPU(\d{1,4})")


@dataclass(frozen=True)
class PeerAccess:
    """The word on each ordered pair of GPUs: ``words[a, b]`` is of a's access to b, a key of MEANINGS."""

    gpus: int
    words: Mapping[tuple[int, int], str]

    @cached_property
    def refused(self) -> tuple[tuple[int, int], ...]:
        """The pairs without access."""
        return tuple(pair for pair, word in sorted(self.words.items()) if word != "OK")


@lru_cache(maxsize=16)  # healthy nodes of a kind all print the same
def parse_peer_access(text: str, gpus: int) -> PeerAccess:
    """Read the matrix of ``gpus`` GPUs.

    Raises CannotReadError where rows and columns are not those of all GPUs in order, or a word is unknown.
    """
    what = "nvidia-smi topo -p2p"
    if len(text) > LARGEST:
        raise CannotReadError(f"the output of {what} is {len(text)} characters long")
    header: list[str] | None = None
    words: dict[tuple[int, int], str] = {}
    rows = 0
    for line in lines_of(_ESCAPE.sub("", readable(text, what)), what):
        cells = line.split()
        if not cells or _GPU.fullmatch(cells[0]) is None:
            continue  # the legend, and what other programs say
        if header is None:
            header = cells
            if header != [f"GPU{n}" for n in range(gpus)]:
                raise CannotReadError(
                    f"nvidia-smi topo -p2p has {len(header)} columns that are not {gpus} GPUs"
                )
            continue
        if cells[0] != f"GPU{rows}" or len(cells) != gpus + 1:
            raise CannotReadError(f"nvidia-smi topo -p2p: the row of {cells[0]} is out of order or not whole")
        for column, word in enumerate(cells[1:]):
            if (word == "X") != (column == rows) or (word != "X" and word not in MEANINGS):
                raise CannotReadError(f"nvidia-smi topo -p2p says {word[:20]!r} of GPU{rows} and GPU{column}")
            if word != "X":
                words[rows, column] = word
        rows += 1
    if header is None or rows != gpus:
        raise CannotReadError(f"nvidia-smi topo -p2p has rows of {rows} GPUs, not of {gpus}")
    return PeerAccess(gpus, words)
