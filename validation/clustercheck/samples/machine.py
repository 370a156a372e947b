"""The healthy machine of the sample: crash records, processes, management controller and drives."""

from __future__ import annotations

from typing import Any


def machine_parts(now: float) -> dict[str, Any]:
    """These parts of a healthy node's record, at this time."""
    return {
        "crashes": {
            "now": now,
            "backend": "efi_pstore",
            "mounted": True,
            "records": [],
            "dropped": 0,
            "unreadable": {},
        },
        "processes": {"looked_s": 0.0, "lasted": [], "omitted": 0},
    }


def crash_record(time: float) -> dict[str, Any]:
    """A dump of a kernel that panicked then, in the words of the kernel's own files."""
    return {
        "place": "/sys/fs/pstore",
        "path": f"/sys/fs/pstore/dmesg-efi_pstore-{int(time)}01001",
        "time": time,
        "head": "Panic#1 Part1",
        "said": ["Kernel panic - not syncing: Fatal hardware error!"],
    }


def asleep(**fields: Any) -> dict[str, Any]:
    """A process that waits for a disk that does not answer."""
    return {
        "pid": 4711,
        "name": "python3",
        "state": "D",
        "kernel": False,
        "waits_in": "io_schedule",
        "has_gpu": False,
        "threads": 1,
        "parent": {"pid": 4000, "name": "bash"},
        **fields,
    }


def zombie(**fields: Any) -> dict[str, Any]:
    """A process that has ended, and whose parent does not ask how."""
    return asleep(pid=4712, name="sh", state="Z", waits_in="0", **fields)
