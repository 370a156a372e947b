"""Starts this node's ranks inside the training container, watches them, and records how each one ended.

Shipped beside rank.py and run as ``python supervise.py DIRECTORY``. Ends when the first rank fails, when
the time is up, when no rank gets on any more, or when it is told to by SIGTERM; whoever is then still running
first prints its stack.
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

GRACE_AFTER_FAILURE_S = 3.0  # peers of a dead rank raise within about a second: let them say so themselves
STACK_S = 2.0
LOOK_S = 1.0
PASSING_STATES = "DZ"  # of a process that writes, or ends
# Of the job's time: no healthy phase takes so much of it, and a hang need not be waited out.
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
            # A session of its own: what signals the container must not end it before it gave its stack.
            self.process = subprocess.Popen(
                [sys.executable, str(directory / "rank.py"), str(directory), program],
                env=environment,
                cwd=directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def seen(self) -> str:
        """Have it print its stack; returns the kernel's letter for it (R, S, D, T), nothing where it ended.

        D is told of what stays so alone: whatever writes or ends is in D, then in Z, for a moment.
        """
        stack = self._directory / f"rank-{self.number}.stack"
        before = stack.stat().st_size if stack.exists() else None
        state, settled = self.state(), ""
        begun = settled_at = time.monotonic()
        if before is not None:  # else not so far yet: SIGUSR1 would only kill it
            self.process.send_signal(signal.SIGUSR1)
        while not self.has_ended():
            now = time.monotonic()
            if state not in PASSING_STATES:
                # What it was before it spoke: whatever prints its stack runs.
                if before is None or stack.stat().st_size != before:
                    return settled or state
                settled, settled_at = state, now
            if now - begun >= STACK_S:
                return state if now - settled_at >= STACK_S / 2 else settled
            time.sleep(0.05)  # neither a file's growth nor a process's state can be waited for
            state = self.state()
        return ""

    def has_ended(self) -> bool:
        """Whether it came to its own end."""
        return self.process.returncode is not None

    def progress(self) -> bytes:
        """What it last noted of where it is."""
        try:
            return (self._directory / f"rank-{self.number}.progress").read_bytes()
        except OSError:
            return b""

    def state(self) -> str:
        """The kernel's letter for the process (R, S, D, T, Z), or nothing where it has gone."""
        try:
            return Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (OSError, IndexError):
            return ""

    def record_end(self, order: int, killed: str, state: str) -> None:
        """Write how it ended, for whoever comes to read."""
        record = {"exit_code": self.process.returncode, "order": order, "killed": killed, "state": state}
        (self._directory / f"rank-{self.number}.end").write_text(json.dumps(record), encoding="utf-8")


class Stall:
    """Tells when no rank has got on for a time; one that waits for a peer elsewhere stands still, too."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._seen: dict[int, bytes] = {}
        self._since = time.monotonic()

    def is_over(self, running: Mapping[int, Rank]) -> bool:
        """Whether none of them has moved for longer than the limit."""
        seen = {number: rank.progress() for number, rank in running.items()}
        if seen != self._seen:
            self._seen, self._since = seen, time.monotonic()
        return time.monotonic() - self._since > self._limit_s


def supervise(directory: Path) -> int:
    """Run all ranks of this node. 0 where every one came to its own end with 0."""
    job = json.loads((directory / "job.json").read_text(encoding="utf-8"))
    # Simple, for the handler of the signal may interrupt the very get that waits: a Queue would lock up.
    events: queue.SimpleQueue[tuple[str, int]] = queue.SimpleQueue()
    signal.signal(signal.SIGTERM, lambda *_: events.put(("told", -1)))
    ranks = [Rank(directory, job["program"], spec) for spec in job["ranks"]]
    for rank in ranks:
        threading.Thread(target=_announce_end, args=(rank, events), daemon=True).start()
    running = {rank.number: rank for rank in ranks}
    deadline = time.monotonic() + float(job["timeout_s"])
    stall = Stall(STALL_PART * float(job["timeout_s"]))
    # Ranks that have no peers go on without each other.
    alone = bool(job.get("alone"))
    order, good, why = 0, True, "deadline"
    while running:
        try:
            kind, number = events.get(timeout=min(LOOK_S, max(0.0, deadline - time.monotonic())))
        except queue.Empty:
            if time.monotonic() >= deadline:
                break
            if stall.is_over(running):
                why = "stalled"
                break
            continue
        if kind == "told":
            why = "told"
            break
        ended = running.pop(number)
        ended.record_end(order, "", "")
        order += 1
        if ended.process.returncode != 0 and good:
            good = False
            if not alone:
                why, deadline = "peer failed", min(deadline, time.monotonic() + GRACE_AFTER_FAILURE_S)
    _end_all(running, order, why)
    return 0 if good and not running else 1


def _announce_end(rank: Rank, events: queue.SimpleQueue[tuple[str, int]]) -> None:
    rank.process.wait()
    events.put(("ended", rank.number))


def _end_all(running: Mapping[int, Rank], order: int, why: str) -> None:
    with ThreadPoolExecutor(max(1, len(running))) as looks:
        states = dict(zip(running, looks.map(Rank.seen, running.values())))
    for number, rank in running.items():
        if rank.has_ended():  # by itself, while we looked: it is what its exit code says
            rank.record_end(order, "", "")
            continue
        rank.process.kill()
        rank.process.wait()
        rank.record_end(order, why, states[number])


if __name__ == "__main__":
    sys.exit(supervise(Path(sys.argv[1])))
