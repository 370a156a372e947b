"""Programs of this machine, run with a time limit, and with failures that say what was asked."""

from __future__ import annotations

import os
import subprocess
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from clusterctl.errors import EXIT_INCOMPLETE, ClusterctlError
from clusterctl.interpreter import python_environment

ORDINARY_S = 120.0


def call(
    command: Sequence[str],
    *,
    stdin: bytes | Path = b"",
    timeout_s: float = ORDINARY_S,
    check: bool = True,
    variables: Mapping[str, str] | None = None,
    code: str = "lab.program-failed",
    hint: str = "",
) -> subprocess.CompletedProcess[bytes]:
    """Run ``command`` and return what it said; ``stdin`` is bytes, or a file to read;
    ``variables`` join the environment.

    Raises ClusterctlError with ``code`` where the program is missing, fails (unless ``check`` is off), or
    has not ended after ``timeout_s`` seconds.
    """
    environment = {**python_environment(), **(variables or {})}
    try:
        if isinstance(stdin, Path):
            with stdin.open("rb") as stream:
                done = subprocess.run(
                    command,
                    stdin=stream,
                    capture_output=True,
                    timeout=timeout_s,
                    check=False,
                    env=environment,
                )
        else:
            done = subprocess.run(
                command, input=stdin, capture_output=True, timeout=timeout_s, check=False, env=environment
            )
    except FileNotFoundError as error:
        raise _failure(command, f"there is no program {command[0]!r}", code, hint) from error
    except subprocess.TimeoutExpired as error:
        raise _failure(command, f"no end within {timeout_s:.0f} s", code, hint) from error
    if check and done.returncode != 0:
        message = (done.stderr or done.stdout).decode(errors="replace").strip()
        raise _failure(command, message or f"exit code {done.returncode}", code, hint)
    return done


@contextmanager
def usual_umask() -> Iterator[None]:
    """Let what is made here be readable, secrets apart: nodes are shown it, and not all in them is root."""
    before = os.umask(0o022)
    try:
        yield
    finally:
        os.umask(before)


def _failure(command: Sequence[str], answer: str, code: str, hint: str) -> ClusterctlError:
    last = " / ".join(answer.splitlines()[-3:])[:600]
    return ClusterctlError(
        f"{' '.join(command[:2])} failed: {last}",
        code=code,
        where=textwrap.shorten(" ".join(command), 160, placeholder=" ..."),
        hint=hint,
        exit_code=EXIT_INCOMPLETE,
    )
