"""What the kernel said of GPUs."""

from __future__ import annotations

import collections
import re
from typing import TYPE_CHECKING, Any

from clustercheck.probe.programs import command

if TYPE_CHECKING:
    from typing import BinaryIO

KEEP_LINES = 500  # of Xids, and as many of faults without one: neither pushes the other out
XID_LINES = re.compile(r"S?Xid \(")
OTHER_LINES = re.compile(
    r"NVRM: API mismatch|fallen off the bus|RmInitAdapter failed"
    r"|PCIe Bus Error: severity=\w+ \(Fatal\)"
    r"|mlx5_core .*(insufficient power|[Hh]igh [Tt]emperature)"
)
# Of these a killed job or a bad adapter brings thousands: the last ones are kept, and the rest is not missed.
MANY_LINES = re.compile(r"PCIe Bus Error: severity=Uncorrect\w+ \(Non-Fatal\)|nvidia-peermem \w+:\d+ ERROR")
# What a kernel says first, except microcode that was brought up to date before it.
BOOT = re.compile(r"\bLinux version \d|\bBooting Linux on physical CPU\b")
BOOT_LINES = 20


class Sifted:
    """A log of any length, line by line: how it starts, and its last lines on GPUs, each with its number."""

    def __init__(self) -> None:
        self.lines = 0
        self.dropped = 0
        self.begin: list[str] = []
        self._xids: collections.deque[tuple[int, str]] = collections.deque(maxlen=KEEP_LINES)
        self._others: collections.deque[tuple[int, str]] = collections.deque(maxlen=KEEP_LINES)
        self._many: collections.deque[tuple[int, str]] = collections.deque(maxlen=KEEP_LINES)

    @property
    def kept(self) -> list[str]:
        """What is kept of it, in its order."""
        return [line for _, line in sorted([*self._xids, *self._others, *self._many])]

    def read(self, stream: BinaryIO) -> None:
        """Read all of it."""
        for raw in stream:
            line = raw.decode("utf-8", "replace").rstrip("\r\n")
            self.lines += 1
            if self.lines <= BOOT_LINES:
                self.begin.append(line)
            for pattern, kept in (
                (XID_LINES, self._xids),
                (OTHER_LINES, self._others),
                (MANY_LINES, self._many),
            ):
                if pattern.search(line):
                    self.dropped += len(kept) == KEEP_LINES and kept is not self._many
                    kept.append((self.lines, line[:600]))
                    break


def kernel_log(limit_s: float) -> dict[str, Any]:
    """What the kernel said of GPUs since boot, with times; the journal first, else the ring buffer."""
    for source, argv in (
        ("journal", ["journalctl", "-k", "-b", "--output=short-iso-precise", "--no-pager", "--quiet"]),
        ("dmesg", ["dmesg", "--time-format", "iso"]),
    ):
        log = Sifted()
        ran = command(argv, limit_s, log.read)
        if ran["rc"] == 0 and log.lines:
            return {
                "source": source,
                "rc": 0,
                "lines": log.lines,
                "first": log.begin[0][:60],
                "from_boot": any(BOOT.search(line) for line in log.begin),
                "kept": log.kept,
                "dropped": log.dropped,
            }
    because = ran["stderr"][:400] or "no lines"
    return {"source": "", "rc": ran["rc"], "lines": 0, "kept": [], "because": because}
