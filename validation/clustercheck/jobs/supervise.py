"""Starts this node's ranks inside the training container, supervises them, and records how each one ended.

Shipped next to rank.py and run as ``python supervise.py DIRECTORY``. Ends when the first rank fails, at the
time limit, when no rank makes progress any more, or on SIGTERM; ranks that are still running print their
stacks first.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

GRACE_AFTER_FAILURE_S = 3.0  # peers of a dead rank raise within about a second and report it
STACK_S = 2.0
POLL_S = 1.0
TRANSIENT_STATES = "DZ"  # of a process that writes, or ends
# Of the job's time limit: no healthy phase takes that much, so a longer one is a hang.
STALL_PART = 0.4


class Rank:
    """One rank's process and its files."""

    def __init__(self, directory: Path, program: str, spec: Mapping[str, Any]) -> None:
        self.number = int(spec["rank"])
        self._directory = directory
        environment = {k: v for k, v in os.environ.items() if not k.startswith("PADDLE_")}
        environment.update(spec["environment"])
        environment["PYTHONUNBUFFERED"] = "1"
        with (directory / f"rank-{self.number}.log").open("w") as log:
            # A session of its own: a signal to the container must not end it before it printed its stack.
            self.process = subprocess.Popen(
                [sys.executable, str(directory / "rank.py"), str(directory), program],
                env=environment,
                cwd=directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def dump_stack(self) -> str:
        """Make it print its stack; returns the kernel's state letter (R, S, D, T), empty if it ended.

        D is returned only if it persists: a process that writes or ends is in D, then in Z, for a moment.
        """
        stack = self._directory / f"rank-{self.number}.stack"
        size_before = stack.stat().st_size if stack.exists() else None
        state, settled = self.state(), ""
        started_at = settled_at = time.monotonic()
        if size_before is not None:  # before, SIGUSR1 would kill it
            self.process.send_signal(signal.SIGUSR1)
        while not self.has_ended():
            now = time.monotonic()
            if state not in TRANSIENT_STATES:
                # The state before: a process that prints its stack is running.
                if size_before is None or stack.stat().st_size != size_before:
                    return settled or state
                settled, settled_at = state, now
            if now - started_at >= STACK_S:
                return state if now - settled_at >= STACK_S / 2 else settled
            time.sleep(0.05)  # neither a file's size nor a process's state can be waited for
            state = self.state()
        return ""

    def has_ended(self) -> bool:
        """Whether it ended by itself."""
        return self.process.returncode is not None

    def progress(self) -> bytes:
        """The last phase that it recorded."""
        try:
            return (self._directory / f"rank-{self.number}.progress").read_bytes()
        except OSError:
            return b""

    def state(self) -> str:
        """The kernel's state letter of the process (R, S, D, T, Z), or empty if it is gone."""
        try:
            return Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (OSError, IndexError):
            return ""

    def record_end(self, order: int, killed: str, state: str) -> None:
        """Write how it ended, for the launcher."""
        record = {"exit_code": self.process.returncode, "order": order, "killed": killed, "state": state}
        (self._directory / f"rank-{self.number}.end").write_text(json.dumps(record), encoding="utf-8")


class StallDetector:
    """Detects that no rank makes progress; one that waits for a peer elsewhere does not either."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._seen: dict[int, bytes] = {}
        self._since = time.monotonic()

    def has_stalled(self, running: Mapping[int, Rank]) -> bool:
        """Whether none of them made progress within the limit."""
        seen = {number: rank.progress() for number, rank in running.items()}
        if seen != self._seen:
            self._seen, self._since = seen, time.monotonic()
        return time.monotonic() - self._since > self._limit_s


def supervise(directory: Path) -> int:
    """Run all ranks of this node. 0 if every rank ended by itself with 0."""
    job = json.loads((directory / "job.json").read_text(encoding="utf-8"))
    # SimpleQueue: the signal handler may interrupt the waiting get, where a Queue would deadlock.
    events: queue.SimpleQueue[tuple[str, int]] = queue.SimpleQueue()
    signal.signal(signal.SIGTERM, lambda *_: events.put(("told", -1)))
    ranks = [Rank(directory, job["program"], spec) for spec in job["ranks"]]
    for rank in ranks:
        threading.Thread(target=_report_end, args=(rank, events), daemon=True).start()
    running = {rank.number: rank for rank in ranks}
    deadline = time.monotonic() + float(job["timeout_s"])
    stall = StallDetector(STALL_PART * float(job["timeout_s"]))
    # Ranks without peers continue when another fails.
    alone = bool(job.get("alone"))
    order, good, reason = 0, True, "deadline"
    while running:
        try:
            kind, number = events.get(timeout=min(POLL_S, max(0.0, deadline - time.monotonic())))
        except queue.Empty:
            if time.monotonic() >= deadline:
                break
            if stall.has_stalled(running):
                reason = "stalled"
                break
            continue
        if kind == "told":
            reason = "told"
            break
        ended = running.pop(number)
        ended.record_end(order, "", "")
        order += 1
        if ended.process.returncode != 0 and good:
            good = False
            if not alone:
                reason, deadline = "peer failed", min(deadline, time.monotonic() + GRACE_AFTER_FAILURE_S)
    _kill_all(running, order, reason)
    return 0 if good and not running else 1


def _report_end(rank: Rank, events: queue.SimpleQueue[tuple[str, int]]) -> None:
    rank.process.wait()
    events.put(("ended", rank.number))


def _kill_all(running: Mapping[int, Rank], order: int, reason: str) -> None:
    with ThreadPoolExecutor(max(1, len(running))) as pool:
        states = dict(zip(running, pool.map(Rank.dump_stack, running.values())))
    for number, rank in running.items():
        if rank.has_ended():  # by itself, in the meantime: its exit code counts
            rank.record_end(order, "", "")
            continue
        rank.process.kill()
        rank.process.wait()
        rank.record_end(order, reason, states[number])


if __name__ == "__main__":
    sys.exit(supervise(Path(sys.argv[1])))
