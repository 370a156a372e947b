"""The healthy machine of the sample: crash records, processes, management controller and drives."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import Any

# The BMC has a clock of its own, an hour off.
BMC_NOW = datetime(2026, 11, 18, 15, 13, 20)
POWER_SUPPLY_OK = "| ok  | 10.2 | Presence detected"
# After what ipmitool 1.8.18 prints, a few lines of some hundred.
SENSORS = f"""\
Inlet Temp       | 05h | ok  |  7.1 | 24 degrees C
FAN1             | 30h | ok  | 29.1 | 9800 RPM
FAN2             | 31h | ok  | 29.2 | 9760 RPM
PS1 Status       | C8h | ok  | 10.1 | Presence detected
PS2 Status       | C9h {POWER_SUPPLY_OK}
PS3 Status       | CAh | ns  | 10.3 | No Reading
PS Redundancy    | 77h | ok  |  7.1 | Fully Redundant
"""
# After what `ipmitool mc info` prints; support of devices and the bytes of the maker's own follow.
CONTROLLER = """\
Device ID                 : 32
Device Revision           : 1
Firmware Revision         : 1.73
IPMI Version              : 2.0
Manufacturer ID           : 10876
Manufacturer Name         : Maker
Device Available          : yes
Aux Firmware Rev Info     :
    0x00
    0x0a
"""


def _program(stdout: str) -> dict[str, Any]:
    return {"argv": [], "rc": 0, "stdout": stdout, "stderr": "", "timed_out": False, "missing": False}


def smart_log(**fields: int) -> str:
    """What `nvme smart-log --output-format=json` prints, of a drive in its second year."""
    said = {
        "critical_warning": 0, "temperature": 309, "avail_spare": 100, "spare_thresh": 10, "percent_used": 3,
        "media_errors": 0, "num_err_log_entries": 12, "power_on_hours": 9000, "unsafe_shutdowns": 4,
    }  # fmt: skip
    return json.dumps({**said, **fields})


def bmc_event(sensor: str, event: str, days_ago: float, direction: str = "Asserted") -> str:
    """A line of the event log, as ipmitool 1.8.18 prints it."""
    when = BMC_NOW - timedelta(days=days_ago)
    return f"   1 | {when:%m/%d/%Y | %H:%M:%S} | {sensor} | {event} | {direction}\n"


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
        "nvme": [
            {
                "name": f"nvme{number}",
                "address": f"0000:{bus}:00.0",
                "model": "Maker NVMe 3840",
                "firmware": "1.2",
                "state": "live",
                "smart": _program(smart_log()),
            }
            for number, bus in enumerate(("22", "23"))
        ],
        "bmc": {
            "device": "/dev/ipmi0",
            "installed": True,
            "clock": _program(f"{BMC_NOW:%m/%d/%Y %H:%M:%S}\n"),
            "events": _program(bmc_event("System Event SEL", "Log area reset/cleared", 90)),
            "sensors": _program(SENSORS),
            "controller": _program(CONTROLLER),
        },
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
        "may_wait_for_user": False,
        "has_gpu": False,
        "threads": 1,
        "parent": {"pid": 4000, "name": "bash"},
        **fields,
    }


def zombie(**fields: Any) -> dict[str, Any]:
    """A process that has ended, and whose parent does not ask how."""
    return asleep(pid=4712, name="sh", state="Z", waits_in="0", **fields)
