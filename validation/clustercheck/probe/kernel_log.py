"""What the kernel said of GPUs."""

from __future__ import annotations

import collections
import itertools
import re
from typing import TYPE_CHECKING, Any

from clustercheck.probe.programs import command

if TYPE_CHECKING:
    from typing import BinaryIO

# A program that crashes brings a line for each multiprocessor of each GPU.
LAST_OF_KIND = 5
MOST_KINDS = 1000
KEEP_LINES = 500  # of those that are many on plain machines
# What stands before a message: dmesg's time, or the journal's with host and kernel, and the thread's number.
# Messages are matched at their beginning alone, as further behind the kernel repeats names that users choose:
# of programs that crashed, of cgroups. A program's own name comes first, but has 15 letters at most: as many
# as "NVRM: Xid (PCI:", which no digit of an address follows then.
_TIME = r"(?:\[[^\]]{1,40}\] |\d{4}-\S{6,40} |\S{1,40} (?=\S{1,255} kernel: ))?"
BEFORE = _TIME + r"(?:(?:\S{1,255} )?kernel: )?(?:\[ *[TC]?\d[\d.]*\] )?"
_XID_AT = r"NVRM: Xid \((?:PCI:(?:[0-9A-Fa-f]|$)|[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:)"
XID_LINES = re.compile(rf"{BEFORE}(?:{_XID_AT}|nvidia-nvswitch\d*: SXid)")
# With MIG the driver names the instances after the address: "(PCI:0000:41:00 GPU-I:05 GPU-CI:00)".
XID = BEFORE + r"NVRM: Xid \(PCI:([0-9A-Fa-f:.]{4,16})(?: [A-Z][A-Z-]{0,15}:\d{1,5}){0,4}\): (\d{1,4})"
SXID = BEFORE + r"nvidia-nvswitch\d*: SXid \(PCI:([0-9A-Fa-f:.]{4,16})\): (\d{1,6})"
# How bad it is, by the message's last such word: before it may stand a program's name, which users choose.
SEVERITY = r"\b(Fatal|Non-?fatal)\b"
BY_SEVERITY = frozenset(map(str, range(144, 151)))  # Xids of NVLink 5
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
# What a line's kind is known by: which of these it is, and the groups in it (device, code).
_KINDS = (re.compile(XID), re.compile(SXID), XID_LINES, GRAVE_LINES)
# What a kernel says first, except microcode that was brought up to date before it.
BOOT = re.compile(r"\bLinux version \d|\bBooting Linux on physical CPU\b")
BOOT_LINES = 20


class Sifted:
    """A log of any length, line by line: how it starts, and lines on GPUs, each with its number.

    Of each kind the last are kept, and the others are ``omitted``; of what is ``dropped`` none is kept.
    """

    def __init__(self) -> None:
        self.lines = 0
        self.omitted = 0
        self.dropped = 0
        self.begin: list[str] = []
        self._kinds: dict[tuple[object, ...], collections.deque[tuple[int, str]]] = {}
        self._many: collections.deque[tuple[int, str]] = collections.deque(maxlen=KEEP_LINES)

    @property
    def kept(self) -> list[str]:
        """What is kept of it, in its order."""
        return [line for _, line in sorted(itertools.chain(self._many, *self._kinds.values()))]

    def read(self, stream: BinaryIO) -> None:
        """Read all of it."""
        for raw in stream:
            line = raw.decode("utf-8", "replace").rstrip("\r\n")
            self.lines += 1
            if self.lines <= BOOT_LINES:
                self.begin.append(line)
            said = (self.lines, line[:600])
            if kind := _kind(line):
                self._keep(kind, said)
            elif MANY_LINES.match(line):
                self._many.append(said)

    def _keep(self, kind: tuple[object, ...], said: tuple[int, str]) -> None:
        if kind not in self._kinds and len(self._kinds) == MOST_KINDS:
            self.dropped += 1
            return
        last = self._kinds.setdefault(kind, collections.deque(maxlen=LAST_OF_KIND))
        self.omitted += len(last) == LAST_OF_KIND
        last.append(said)


def _kind(line: str) -> tuple[object, ...]:
    """By which messages are alike; an error of NVLink or NVSwitch also by its severity."""
    for number, pattern in enumerate(_KINDS):
        if match := pattern.match(line):
            of_links = pattern.pattern == SXID or match[match.lastindex or 0] in BY_SEVERITY
            said = re.findall(SEVERITY, line[match.end() :])[-1:] if of_links else []
            return (number, *match.groups(), *said)
    return ()


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
                "omitted": log.omitted,
                "dropped": log.dropped,
            }
    because = ran["stderr"][:400] or "no lines"
    return {"source": "", "rc": ran["rc"], "lines": 0, "kept": [], "because": because}
