"""A program's output in memory, with an end: what runs on a node may print for ever."""

from __future__ import annotations

import contextlib
import os
import resource
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

# A probe's record of eight GPUs with its kernel log has about 1 MiB.
MAX_STDOUT_BYTES = 16 * 1024 * 1024
MAX_STDERR_BYTES = 64 * 1024  # its end is kept, where programs say what was wrong
CHUNK_BYTES = 64 * 1024


class OutputTooLongError(Exception):
    """The program printed more than anything that we run prints; it was ended."""


def run_captured(
    command: Sequence[str],
    *,
    stdin: str,
    timeout_s: float,
    environment: Mapping[str, str],
    max_stdout_bytes: int = MAX_STDOUT_BYTES,
    cwd: Path | None = None,
    max_memory_bytes: int | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a program in a session of its own, and return its exit code, output and the end of its errors.

    It, and each process that it starts, may have ``max_memory_bytes``. Bytes that are no UTF-8 are replaced.
    Raises subprocess.TimeoutExpired or OutputTooLongError; the program is then killed, and what it left open
    is not waited for.
    """
    process = subprocess.Popen(
        list(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env=dict(environment), start_new_session=True, cwd=cwd,
    )  # fmt: skip
    if max_memory_bytes is not None:
        limit_memory(process, max_memory_bytes)
    output, errors, too_long = bytearray(), bytearray(), threading.Event()

    def read_output(stream: IO[bytes]) -> None:
        while chunk := os.read(stream.fileno(), CHUNK_BYTES):
            if len(output) + len(chunk) > max_stdout_bytes:
                too_long.set()
                process.kill()
                return
            output.extend(chunk)

    def read_errors(stream: IO[bytes]) -> None:
        while chunk := os.read(stream.fileno(), CHUNK_BYTES):
            errors.extend(chunk)
            del errors[:-MAX_STDERR_BYTES]

    def write(stream: IO[bytes]) -> None:
        with contextlib.suppress(OSError):  # it ended without reading all
            stream.write(stdin.encode())
        with contextlib.suppress(OSError):
            stream.close()

    deadline = time.monotonic() + timeout_s
    work = ((write, process.stdin), (read_output, process.stdout), (read_errors, process.stderr))
    threads = [threading.Thread(target=do, args=(stream,), daemon=True) for do, stream in work]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        process.wait(max(0.0, deadline - time.monotonic()))
    except BaseException:
        process.kill()
        process.wait()
        raise
    if any(thread.is_alive() for thread in threads):  # a child of it holds them open
        raise subprocess.TimeoutExpired(command, timeout_s)
    if too_long.is_set():
        raise OutputTooLongError(f"it printed more than {max_stdout_bytes // 1024 // 1024} MiB")
    return subprocess.CompletedProcess(
        list(command), process.returncode, output.decode(errors="replace"), errors.decode(errors="replace")
    )


def limit_memory(child: subprocess.Popen[Any], limit_bytes: int) -> None:
    """Limit a child's address space, and of all that it starts each one's; a lower limit stays."""
    with contextlib.suppress(ProcessLookupError):
        soft, hard = resource.prlimit(child.pid, resource.RLIMIT_AS)
        if soft == resource.RLIM_INFINITY or soft > limit_bytes:
            resource.prlimit(child.pid, resource.RLIMIT_AS, (limit_bytes, hard))
