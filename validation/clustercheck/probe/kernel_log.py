"""What the kernel said of GPUs."""

from __future__ import annotations

import collections
import re
from typing import TYPE_CHECKING, Any

from clustercheck.probe.programs import command

if TYPE_CHECKING:
    from typing import BinaryIO

KEEP_LINES = 500  # of Xids, and as many of faults without one: neither pushes the other out
# What stands before a message: dmesg's time, or the journal's with host and kernel, and the thread's number.
# Messages are matched at their beginning alone, as further behind the kernel repeats names that users choose:
# of programs that crashed, of cgroups. A program's own name comes first, but has 15 letters at most: as many
# as "NVRM: Xid (PCI:", which no digit of an address follows then.
_TIME = r"(?:\[[^\]]{1,40}\] |\d{4}-\S{6,40} |\S{1,40} (?=\S{1,255} kernel: ))?"
BEFORE = _TIME + r"(?:(?:\S{1,255} )?kernel: )?(?:\[ *[TC]?\d[\d.]*\] )?"
_XID_AT = r"NVRM: Xid \((?:PCI:(?:[0-9A-Fa-f]|$)|[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:)"
XID_LINES = re.compile(rf"{BEFORE}(?:{_XID_AT}|nvidia-nvswitch\d*: SXid)")
_AT = r"([0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-7])?)"
_AER = rf"(?:[\w.-]{{1,32}} )?{_AT}: (?:AER: )?PCIe Bus Error: severity="
# Faults without a number, in the driver's words and the kernel's (drivers/pci/pcie/aer.c, mlx5's events.c).
GRAVE = {
    "GPU has fallen off the bus": rf"NVRM: (?:The NVIDIA )?GPU (?:at )?(?:PCI:)?{_AT}.*fallen off the bus",
    "RmInitAdapter failed": rf"NVRM: GPU {_AT}: RmInitAdapter failed",
    "fatal PCI Express error": rf"{_AER}\w+ \(Fatal\)",
    "the slot gives the adapter too little power": rf"mlx5_core {_AT}: .*insufficient power",
    "the adapter or its cable's module is too hot": rf"mlx5_core {_AT}: .*[Hh]igh [Tt]emperature",
}
NOT_FATAL = "uncorrected PCI Express error"
PEERMEM = "nvidia-peermem reports errors"
# Of these a killed job or a bad adapter brings thousands: the last ones are kept, and the rest is not missed.
MANY = {
    NOT_FATAL: rf"{_AER}Uncorrect\w+ \(Non-Fatal\)",
    PEERMEM: r"(nvidia-peermem) \w+:\d+ ERROR",
}
GRAVE_LINES, MANY_LINES = (re.compile(f"{BEFORE}(?:{'|'.join(each.values())})") for each in (GRAVE, MANY))
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
        self._grave: collections.deque[tuple[int, str]] = collections.deque(maxlen=KEEP_LINES)
        self._many: collections.deque[tuple[int, str]] = collections.deque(maxlen=KEEP_LINES)

    @property
    def kept(self) -> list[str]:
        """What is kept of it, in its order."""
        return [line for _, line in sorted([*self._xids, *self._grave, *self._many])]

    def read(self, stream: BinaryIO) -> None:
        """Read all of it."""
        for raw in stream:
            line = raw.decode("utf-8", "replace").rstrip("\r\n")
            self.lines += 1
            if self.lines <= BOOT_LINES:
                self.begin.append(line)
            for pattern, kept in (
                (XID_LINES, self._xids),
                (GRAVE_LINES, self._grave),
                (MANY_LINES, self._many),
            ):
                if pattern.match(line):
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
