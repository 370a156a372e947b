# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see plugins/LICENSE)
"""Programs that end in time, or are given up; locks that are waited for in time."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from ansible_collections.clusterctl.cluster.plugins.module_utils.file_lock import lock_within

TIMED_OUT = 124
ABSENT = 127
# Root's alone, unlike /run/lock, where anybody may put a file in our way. Who may read a file may lock it.
LOCKS = Path("/run/clusterctl/locks")


# The code of a failure for which a program that did not end is the cause.
LATE = "task.timed-out"


# Where the modules of one drift probe keep what programs answer: none of them changes anything, so a question
# has one answer, and is asked once.
shared_answers: Path | None = None


def run_bounded(
    argv: list[str], seconds: float, environment: dict[str, str] | None = None, told: str = ""
) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of a program that has `seconds` to end.

    `told` is its standard input, which it need not read.
    124 where it did not end (then it is killed, and not waited for: one that hangs in the kernel
    cannot be killed), 127 if there is no such program; standard error says so.
    """
    if shared_answers is None or told:
        return _run(argv, seconds, environment, told)
    question = json.dumps([Path(argv[0]).name, *argv[1:], sorted((environment or {}).items())])
    place = shared_answers / hashlib.sha256(question.encode()).hexdigest()
    with place.open("a+", encoding="utf-8") as kept:
        # Whoever asks the same has a time limit, and the probe ends a module that waits too long.
        fcntl.flock(kept.fileno(), fcntl.LOCK_EX)
        kept.seek(0)
        if text := kept.read():
            code, output, error_output = json.loads(text)
            return code, output, error_output
        answer = _run(argv, seconds, environment)
        kept.write(json.dumps(answer))
        return answer


def _run(
    argv: list[str], seconds: float, environment: dict[str, str] | None, told: str = ""
) -> tuple[int, str, str]:
    try:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE if told else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
            env={**os.environ, **(environment or {})},
        )
    except OSError as error:
        return ABSENT, "", f"{argv[0]} cannot be run: {error.strerror}"
    try:
        output, error_output = process.communicate(told or None, timeout=seconds)
    except subprocess.TimeoutExpired:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        return TIMED_OUT, "", f"{argv[0]} did not end within {seconds:g} s"
    return process.returncode, output, error_output


def run_reading(
    argv: list[str], most_bytes: int, environment: dict[str, str] | None = None
) -> tuple[int, str, str]:
    """Exit code, standard output (none) and error of a program that may read, and write, so many bytes.

    It is killed when it has read or written more, files and network, by what the kernel counts each second
    [Linux, Documentation/filesystems/proc.rst: rchar, wchar]; standard error says so. What it reads may be
    packed: Go's HTTP client unpacks an answer unasked. A kernel without that count (CONFIG_TASK_XACCT, which
    distributions have) sets no limit.
    """
    with tempfile.TemporaryFile() as words:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=words,
            env={**os.environ, **(environment or {})},
        )
        said = ""
        while True:
            try:
                process.wait(1)
                break
            except subprocess.TimeoutExpired:
                if _bytes_moved(process.pid) > most_bytes:
                    process.kill()
                    said = f"{argv[0]} was ended: reading or writing more than {most_bytes} bytes"
        words.seek(0)
        return process.returncode, "", said or words.read().decode(errors="replace")


def _bytes_moved(pid: int) -> int:
    """That a process has read, or written if that is more; 0 where the kernel does not count."""
    try:
        text = Path(f"/proc/{pid}/io").read_text(encoding="ascii")
    except OSError:
        return 0
    counted = dict(line.split(": ", 1) for line in text.splitlines() if ": " in line)
    return max(int(counted.get(name, 0)) for name in ("rchar", "wchar"))


def late(rc: int) -> dict[str, str]:
    """What a failed result has of a program that ended with `rc`: a code, if it did not end in time."""
    return {"code": LATE} if rc == TIMED_OUT else {}


@dataclass
class Streamed:
    """A program and the pipe to it. How it ended is known after the block: ``late`` where it was killed."""

    pipe: IO[bytes]
    code: int = ABSENT
    words: str = ""
    late: bool = False


@contextmanager
def streaming(argv: list[str], seconds: float, *, reads: bool) -> Iterator[Streamed]:
    """A program whose output the block reads, or whose input it writes; it has `seconds` to end.

    Then it is killed, which ends what the block waits for. What it says goes to a file: a pipe that
    nobody reads would stop it. Raises OSError where it cannot be run.
    """
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL if reads else subprocess.PIPE,
            stdout=subprocess.PIPE if reads else subprocess.DEVNULL,
            stderr=output,
            start_new_session=True,
        )
        pipe = process.stdout if reads else process.stdin
        assert pipe is not None  # noqa: S101 - asked for, lines above
        run = Streamed(pipe)

        def end() -> None:
            run.late = True
            _kill(process)

        watchdog = threading.Timer(seconds, end)
        watchdog.daemon = True
        watchdog.start()
        try:
            yield run
            with suppress(BrokenPipeError):
                pipe.close()
            process.wait()
        finally:
            watchdog.cancel()
            if process.poll() is None:
                _kill(process)
            with suppress(OSError):  # else Python 3.13 writes of what was not sent when it forgets the pipe
                pipe.close()
        output.seek(0)
        lines = output.read().decode(errors="replace").strip().splitlines()
        run.code, run.words = process.returncode, " ".join(lines[-2:])


def _kill(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


@contextmanager
def alone(name: str, seconds: float, directory: Path = LOCKS) -> Iterator[None]:
    """Holds this host's lock `name`. Raises TimeoutError where another keeps it longer than `seconds`."""
    directory.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    directory.mkdir(mode=0o700, exist_ok=True)
    path = directory / f"{name}.lock"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        try:
            lock_within(descriptor, seconds)
        except TimeoutError:
            raise TimeoutError(f"another run has kept {path} for {seconds:g} s") from None
        yield
    finally:
        os.close(descriptor)
