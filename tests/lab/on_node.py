"""What a test does to one node and sees there: commands as its root, locks, an apply next to the test."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from .conftest import PROGRAM, RunningLab

NODE = "gpu03"
TOOLKIT = "nvidia-container-toolkit"
BOUND_S = 240.0
# fcntl's lock, as dpkg's own; flock's is another.
HOLD_LOCK = (
    "import fcntl, time; stream = open('/var/lib/dpkg/lock-frontend', 'w'); "
    "fcntl.lockf(stream, fcntl.LOCK_EX); time.sleep(300)"
)
# A line for each transaction that is not simulated; what apt-get starts has other arguments.
INSTALLS = (
    r"cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\0' ' ' | "
    r"grep -oP 'apt-get --quiet(?: (?!--simulate)-\S+(?: [A-Z]\S*=\S+)?)* [i]nstall'"
)


def inside(lab: RunningLab, command: str, *, check: bool = True, host: str = NODE) -> str:
    """What a shell says as root inside the host's container: it needs neither sshd nor sudo."""
    done = subprocess.run(
        ["docker", "exec", lab.container(host), "sh", "-c", command],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0 or not check, done.stderr
    return done.stdout.strip()


def until(lab: RunningLab, condition: str, *, there: bool = True, host: str = NODE) -> None:
    """Wait for a shell condition on the host, which may be away meanwhile."""
    deadline = time.monotonic() + BOUND_S
    while (inside(lab, f"if {condition}; then echo yes; fi", check=False, host=host) == "yes") is not there:
        assert time.monotonic() < deadline, f"{condition} was not {there} within {BOUND_S:.0f} s"
        time.sleep(0.2)


@contextmanager
def without_toolkit(lab: RunningLab) -> Iterator[None]:
    """There is a package to be installed, and it must be downloaded."""
    packages = f"{TOOLKIT} {TOOLKIT}-base"
    inside(lab, f"apt-mark unhold {packages}; apt-get remove -y {packages}; apt-get clean")
    yield


@contextmanager
def lock_held(lab: RunningLab) -> Iterator[None]:
    inside(lab, f'systemd-run --unit=holder --quiet python3 -c "{HOLD_LOCK}"')
    try:
        until(lab, "grep -q $(stat -c %i /var/lib/dpkg/lock-frontend) /proc/locks")
        yield
    finally:
        inside(lab, "systemctl stop holder", check=False)


def apply_arguments(part: str) -> tuple[str, ...]:
    """An apply of one part to the node alone."""
    return ("apply", "--yes", "--json", "--only", part, "--limit", NODE)


def changes(lines: list[dict[str, Any]]) -> set[tuple[str, str]]:
    """(host, task) of all that a run with --json changed."""
    titles = {
        line["task_id"]: f"{line['role']}: {line['task']}" if line.get("role") else line["task"]
        for line in lines
        if line["type"] == "task_started"
    }
    results = [line for line in lines if line["type"] == "result"]
    return {(line["host"], titles[line["task_id"]]) for line in results if line["status"] == "changed"}


class Apply:
    """An apply that runs next to the test, and is ended with it."""

    def __init__(self, lab: RunningLab, *arguments: str) -> None:
        self._lines: list[dict[str, Any]] = []
        self._child = subprocess.Popen(
            [str(PROGRAM), "-C", str(lab.cluster), *arguments],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True,
        )  # fmt: skip

    def __enter__(self) -> Apply:
        return self

    def __exit__(self, *_: object) -> None:
        if self._child.poll() is None:
            self._child.terminate()
            self._child.communicate(timeout=60)

    def read_until(self, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Read on to the first event that is wanted."""
        assert self._child.stdout is not None
        for line in self._child.stdout:
            self._lines.append(json.loads(line))
            if wanted(self._lines[-1]):
                return self._lines[-1]
        pytest.fail(f"apply ended before: {self._child.communicate()[1][-2000:]}")

    def kill(self, number: signal.Signals) -> None:
        """Send a signal, and see the controller gone."""
        self._child.send_signal(number)
        self._child.communicate(timeout=60)

    def end(self) -> tuple[int, list[dict[str, Any]], str]:
        """Exit code, events and messages."""
        out, messages = self._child.communicate(timeout=BOUND_S)
        self._lines += [json.loads(line) for line in out.splitlines()]
        return self._child.returncode, self._lines, messages
