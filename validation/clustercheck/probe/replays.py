"""What the PCI Express link of each GPU has counted: of a report of 200 kB, which stays on the node."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from clustercheck.probe.programs import command

if TYPE_CHECKING:
    from typing import BinaryIO

GPU = re.compile(r'\s*<gpu id="([0-9A-Fa-f:.]{4,20})"')
COUNT = re.compile(r"\s*<replay_counter>([^<]{0,20})</replay_counter>")
MOST_GPUS = 64


class Replays:
    """The counts in `nvidia-smi -q -x`, as printed, by the GPU's address as printed there."""

    def __init__(self) -> None:
        self.counts: dict[str, str] = {}

    def read(self, stream: BinaryIO) -> None:
        """Read all of it, line by line, as it prints one element a line."""
        address = ""
        for raw in stream:
            line = raw.decode("utf-8", "replace")
            if begins := GPU.match(line):
                address = begins[1]
            elif (found := COUNT.match(line)) and address and len(self.counts) < MOST_GPUS:
                self.counts[address] = found[1].strip()


def pcie_replays(limit_s: float) -> dict[str, Any]:
    """Counts since the driver's load, by GPU."""
    replays = Replays()
    record = command(["nvidia-smi", "-q", "-x"], limit_s, replays.read)
    return dict(record, stdout="", counts=replays.counts)
