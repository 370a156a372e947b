"""A child in a process group of its own: watched, limited in time, and ended reliably."""

from __future__ import annotations

import contextlib
import math
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from clusterctl.cluster.captured import limit_memory
from clusterctl.engine.bounded_log import MAX_LOG_BYTES, BoundedLog
from clusterctl.runs.events import MAX_EVENT_BYTES
from clusterctl.signals import Interruption, caught_signals

POLL_S = 0.2
# After a signal the next, stronger one follows when the child has not gone by then.
GRACE_S = 8.0
# What a child that is gone left in its pipes is read at once; what its orphans write has no end.
DRAIN_S = 5.0
# Ansible keeps all that a node prints. Its processes peak at 250 MiB (150 hosts, 64 forks); 16 times that.
MEMORY_LIMIT_BYTES = 4 << 30
# Beyond what `event_reading` takes: the rest of such a line is read and dropped.
MAX_LINE_BYTES = MAX_EVENT_BYTES


@dataclass(frozen=True)
class Ended:
    """``exit_code`` is negative for a signal, as in subprocess."""

    exit_code: int
    interrupted: bool
    timed_out: bool
    duration_s: float


@contextlib.contextmanager
def terminated_like_interrupted() -> Iterator[None]:
    """SIGTERM and a lost terminal end a run as Ctrl-C does: what it holds on nodes is released first."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def run(
    argv: Sequence[str],
    *,
    cwd: Path,
    environment: Mapping[str, str],
    log: Path,
    on_line: Callable[[bytes], None],
    on_tick: Callable[[], None],
    time_limit_s: float,
    grace_s: float = GRACE_S,
    memory_limit_bytes: int = MEMORY_LIMIT_BYTES,
    log_limit_bytes: int = MAX_LOG_BYTES,
    hopeless: Callable[[], bool] = lambda: False,
    on_signal: Callable[[], None] = lambda: None,
) -> Ended:
    """Run a child until it ends; each line it writes to the events' descriptor goes to ``on_line``.

    It is ended past its time, as soon as ``hopeless``, asked a few times a second, says so, and where a
    callback fails, whose error is raised once it is gone. It and each process that it starts may use
    ``memory_limit_bytes``: what needs more fails, and the others continue.

    Its output is appended to ``log``, which gets no larger than ``log_limit_bytes`` and a few lines. A signal
    to us is passed on, ``on_signal`` hears of the first, and the child, with all that it started, is gone in
    bounded time. Must be called from the main thread: the child dies with it.
    """
    started = time.monotonic()
    reader, writer = os.pipe()
    output_reader, output = os.pipe()
    try:
        with caught_signals() as caught, BoundedLog(log, log_limit_bytes) as kept:
            child = subprocess.Popen(
                list(argv),
                cwd=cwd,
                env={
                    **environment,
                    "CLUSTERCTL_EVENTS_FD": str(writer),
                    "CLUSTERCTL_EVENTS_PARENT": str(os.getpid()),
                },
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=(writer,),
                start_new_session=True,
            )
            os.close(writer)
            os.close(output)
            writer = output = -1
            events, listener = LineSplitter(), _Listener()

            def take(chunk: bytes) -> None:
                for line in events.feed(chunk):
                    listener.tell(on_line, line)

            try:
                limit_memory(child, memory_limit_bytes)
                ending = _Ending(
                    child, caught, deadline=started + time_limit_s, grace_s=grace_s,
                    hopeless=lambda: listener.error is not None or hopeless(),
                    on_signal=lambda: listener.tell(on_signal),
                )  # fmt: skip
                readers = {reader: take, output_reader: kept.write}
                _pump(child, readers, lambda: listener.tell(on_tick), ending)
            finally:
                kill_process_tree(child)
            if listener.error is not None:
                raise listener.error
    finally:
        for descriptor in (reader, output_reader, writer, output):
            if descriptor >= 0:
                os.close(descriptor)
    return Ended(child.returncode, caught.signal is not None, ending.timed_out, time.monotonic() - started)


class _Listener:
    """Calls back until a call fails: the child is then ended as by a signal, not in the middle of a write."""

    def __init__(self) -> None:
        self.error: Exception | None = None

    def tell(self, callback: Callable[..., None], *arguments: object) -> None:
        """Call it, unless one has failed."""
        if self.error is None:
            try:
                callback(*arguments)
            except Exception as error:  # noqa: BLE001 - raised by `run`, once the child is gone
                self.error = error


class _Ending:
    """Escalates: the first signal, then SIGTERM, then SIGKILL, ``grace_s`` apart."""

    def __init__(
        self,
        child: subprocess.Popen[bytes],
        caught: Interruption,
        *,
        deadline: float,
        grace_s: float,
        hopeless: Callable[[], bool],
        on_signal: Callable[[], None],
    ) -> None:
        self._child = child
        self._caught = caught
        self._deadline = deadline
        self._grace_s = grace_s
        self._hopeless = hopeless
        self._on_signal: Callable[[], None] | None = on_signal
        self._steps = [signal.SIGINT, signal.SIGTERM, signal.SIGKILL]
        self._next = 0.0
        self.timed_out = False

    def tick(self) -> None:
        """Send what is due now."""
        now = time.monotonic()
        if now > self._deadline or (not self.timed_out and self._hopeless()):
            self.timed_out = True
        if self._caught.signal is not None and self._on_signal is not None:
            self._on_signal()
            self._on_signal = None
        if (self.timed_out or self._caught.signal is not None) and now >= self._next and self._steps:
            step = self._steps.pop(0)
            self._next = now + self._grace_s
            if step is signal.SIGKILL:
                kill_process_tree(self._child)
            else:
                _signal(self._child.pid, step)


class LineSplitter:
    """Cuts a stream into lines. Of one that is longer than ``limit`` the start is kept, to be refused."""

    def __init__(self, limit: int = MAX_LINE_BYTES) -> None:
        self._limit = limit
        self._buffer = bytearray()

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """The lines that end in this chunk, each of at most one byte more than the limit."""
        *whole, rest = chunk.split(b"\n")
        for end in whole:
            self._keep(end)
            yield bytes(self._buffer)
            self._buffer.clear()
        self._keep(rest)

    def _keep(self, piece: bytes) -> None:
        self._buffer += piece[: self._limit + 1 - len(self._buffer)]


def _pump(
    child: subprocess.Popen[bytes],
    takers: Mapping[int, Callable[[bytes], None]],
    on_tick: Callable[[], None],
    ending: _Ending,
) -> None:
    """Hand on what comes by each pipe until the child is gone, and what it left in them. Its orphans may hold
    them open, and write: an end of a pipe is not a sign."""
    for reader in takers:
        os.set_blocking(reader, False)
    open_, gone_at = set(takers), math.inf
    while True:
        gone = child.poll() is not None
        gone_at = min(gone_at, time.monotonic()) if gone else gone_at
        ready = select.select(sorted(open_), [], [], 0 if gone else POLL_S)[0] if open_ else []
        for reader in ready:
            chunk = os.read(reader, 1 << 16)
            if chunk:
                takers[reader](chunk)
            else:
                open_.discard(reader)
        if gone and ready and time.monotonic() < gone_at + DRAIN_S:
            continue
        if not open_ and not gone:
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(POLL_S)
        on_tick()
        ending.tick()
        if gone:
            return


def descendants(pid: int) -> list[int]:
    """Every living process below ``pid``; Ansible's workers lead sessions of their own."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError, ValueError):
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                children.setdefault(parent, []).append(int(entry.name))
    found, queue = [], [pid]
    while queue:
        below = children.get(queue.pop(), [])
        found += below
        queue += below
    return found


def kill_process_tree(child: subprocess.Popen[bytes]) -> None:
    """Kill a child that still runs, its group and its descendants, and reap it."""
    if child.poll() is not None:
        return
    below = descendants(child.pid)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    for pid in below:
        _signal(pid, signal.SIGKILL)
    child.wait()


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
