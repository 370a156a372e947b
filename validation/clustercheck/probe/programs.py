"""Programs and small files: run and read with limits, and never a reason to raise."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import BinaryIO

KEEP_BYTES = 8 * 1024 * 1024


def read(path: str) -> str | None:
    """The text of a small file without its last newline, or None where it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:  # noqa: PTH123
            return stream.read(KEEP_BYTES).strip()
    except OSError:
        return None


def listing(path: str) -> list[str]:
    """The names in a directory, sorted; none where it cannot be read."""
    try:
        return sorted(os.listdir(path))  # noqa: PTH208
    except OSError:
        return []


def whole(text: str | None) -> int | None:
    """The whole number that a text is, or None."""
    try:
        return int(text or "")
    except ValueError:
        return None


def command(
    argv: Sequence[str], limit_s: float, reader: Callable[[BinaryIO], None] | None = None
) -> dict[str, Any]:
    """Run one program until it ends or its limit; its output, and how it ended. Never raises.

    A ``reader`` gets the standard output instead, all of it: else no more than KEEP_BYTES are kept.
    """
    record: dict[str, Any] = {
        "argv": list(argv),
        "rc": None,
        "stdout": "",
        "stderr": "",
        "timed_out": False,
        "missing": False,
    }
    began = time.monotonic()
    # Files, not pipes: a grandchild that keeps a pipe open would keep us waiting for its end.
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        try:
            process = subprocess.Popen(
                list(argv),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
                env=dict(os.environ, LC_ALL="C", LANG="C"),
            )
        except OSError as error:
            record.update(missing=isinstance(error, FileNotFoundError), stderr=str(error))
            return record
        try:
            record["rc"] = process.wait(timeout=limit_s)
        except subprocess.TimeoutExpired:
            record["timed_out"] = True
            kill(process)
        for name, stream in (("stdout", out), ("stderr", err)):
            stream.seek(0)
            if reader is not None and name == "stdout":
                reader(stream)
            else:
                record[name] = stream.read(KEEP_BYTES).decode("utf-8", "replace")
    record["duration_s"] = round(time.monotonic() - began, 3)
    return record


def kill(process: Any) -> None:
    """End a process and its children; do not wait for one that the kernel holds."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(timeout=1.0)
    except (OSError, subprocess.TimeoutExpired):
        return


def unit(name: str, limit_s: float) -> dict[str, Any]:
    """The state of a systemd unit."""
    shown = command(
        ["systemctl", "show", name, "--property=LoadState,ActiveState,SubState,Result,UnitFileState"], limit_s
    )
    record: dict[str, Any] = {"rc": shown["rc"], "timed_out": shown["timed_out"]}
    for line in shown["stdout"].splitlines():
        key, _, value = line.partition("=")
        record[key] = value
    return record


def has_failed(record: dict[str, Any]) -> bool:
    """Whether an installed program gave no answer."""
    return not record["missing"] and record["rc"] != 0


def how_failed(record: dict[str, Any]) -> str:
    """Why a program gave no answer, in a few words."""
    if record["timed_out"]:
        return "did not answer"
    lines = [line.strip() for line in record["stderr"].splitlines() if line.strip()]
    return "failed: {}".format(lines[-1][:200] if lines else "exit code {}".format(record["rc"]))
