"""Faults of the ranks of distributed jobs: signalled in the middle of their work."""

from __future__ import annotations

import signal

from clusterlab.faults.base import FaultTarget, LabFault

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


def ambush(kind: str, summary: str, number: signal.Signals) -> LabFault:
    """A fault that signals every rank that works on the host, until it is cleared or the host reboots."""
    unit = f"{kind}.service"

    def clear(target: FaultTarget) -> None:
        """A rank that was signalled stays as it is: its job ends it."""
        if target.is_running():
            target.exec(["sh", "-ec", _STOP, "sh", unit])

    def inject(target: FaultTarget) -> None:
        clear(target)
        start = ["systemd-run", "--quiet", "--collect", f"--unit={unit}"]
        target.exec([*start, "python3", "-c", _PROGRAM, str(int(number))])

    return LabFault(kind, summary, "node", inject, clear, caught_by=("all-reduce",))


FAULTS = (
    # As of a fault in its memory.
    ambush(
        "rank-crash",
        "each job's rank on the node dies while it works, until the node reboots",
        signal.SIGSEGV,
    ),
    # As the kernel does where memory runs out.
    ambush(
        "rank-killed",
        "each job's rank on the node is killed while it works, until the node reboots",
        signal.SIGKILL,
    ),
    ambush(
        "rank-hang",
        "each job's rank on the node hangs while it works, until the node reboots",
        signal.SIGSTOP,
    ),
)
