"""Lies in wait on a node for the ranks of distributed jobs, and signals each in the middle of its work."""

from __future__ import annotations

from clusterlab.faults.base import FaultTarget

# Runs on the node as a service. A rank notes its phase in a file: it is met while its peers wait for it.
# One that waits for its turn on a GPU (gpu_...) has no peers on other nodes, and is left alone.
_PROGRAM = """
import json, os, pathlib, sys, time

number, met = int(sys.argv[1]), set()
while True:
    for path in pathlib.Path("/var/lib/clusterctl/jobs").glob("*/*/rank-*.progress"):
        try:
            progress = json.loads(path.read_text())
        except (OSError, ValueError):
            continue
        if not progress["collective"] or progress["phase"].startswith(("joining", "done", "gpu_")):
            continue
        for process in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                words = (process / "cmdline").read_bytes().split(b"\\0")
                rank = b"PADDLE_TRAINER_ID=" + path.stem.partition("-")[2].encode()
                if words[1:3] != [bytes(path.parent / "rank.py"), bytes(path.parent)] or process.name in met:
                    continue
                if rank in (process / "environ").read_bytes().split(b"\\0"):
                    met.add(process.name)
                    os.kill(int(process.name), number)
            except OSError:
                continue
    time.sleep(0.02)
"""


# A unit that ended is forgotten: there is none to stop, as after a reboot.
_STOP = """
state=$(systemctl show --property=LoadState --value "$1")
if [ "$state" != not-found ]; then systemctl stop "$1"; fi
"""


def lie_in_wait(target: FaultTarget, unit: str, signal_number: int) -> None:
    """Signal every rank that comes to work on the host, from now until its next reboot."""
    leave(target, unit)
    target.exec(
        [
            "systemd-run",
            "--quiet",
            "--collect",
            f"--unit={unit}",
            "python3",
            "-c",
            _PROGRAM,
            str(signal_number),
        ]
    )


def leave(target: FaultTarget, unit: str) -> None:
    """Wait no longer. A rank that was signalled stays as it is: its job ends it."""
    if target.is_running():
        target.exec(["sh", "-ec", _STOP, "sh", unit])
