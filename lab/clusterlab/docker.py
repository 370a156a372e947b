"""The container engine's command line."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from clusterlab.process import ORDINARY_S, call

_HINT = "See what the engine says with: docker info; docker ps -a"


def run(
    arguments: Sequence[str],
    *,
    stdin: bytes | Path = b"",
    timeout_s: float = ORDINARY_S,
    check: bool = True,
) -> subprocess.CompletedProcess[bytes]:
    """Run ``docker ARGUMENTS``.

    Raises ClusterctlError (``lab.engine-failed``) where it fails and ``check``.
    """
    command = ["docker", *arguments]
    return call(command, stdin=stdin, timeout_s=timeout_s, check=check, code="lab.engine-failed", hint=_HINT)


def output(arguments: Sequence[str], *, timeout_s: float = ORDINARY_S) -> str:
    """What ``docker ARGUMENTS`` prints on standard output. Raises ClusterctlError where it fails."""
    return run(arguments, timeout_s=timeout_s).stdout.decode(errors="replace").strip()


def inspect(kind: str, names: Sequence[str], *, missing_ok: bool = False) -> list[dict[str, Any]]:
    """``docker KIND inspect``; kind is container, network, volume or image.

    Raises ClusterctlError where one does not exist; with ``missing_ok`` it is left out.
    """
    if not names:
        return []
    command = [kind, "inspect", *names]
    done = run(command, check=not missing_ok)
    complaints = done.stderr.decode(errors="replace").splitlines()
    if not all(is_about_missing(line) for line in complaints):
        run(command)
    found: list[dict[str, Any]] = json.loads(done.stdout or b"[]")
    return found


def is_about_missing(complaint: str) -> bool:
    """Whether the engine only says that a thing does not exist; any other complaint is a failure."""
    message = complaint.lower()
    return not message.strip() or "no such" in message or "not found" in message


def exists(kind: str, name: str) -> bool:
    """Whether the engine has a container, network, volume or image of that name."""
    return bool(inspect(kind, [name], missing_ok=True))


def execute(
    container: str,
    argv: Sequence[str],
    *,
    stdin: str = "",
    timeout_s: float = 60.0,
    check: bool = True,
) -> subprocess.CompletedProcess[bytes]:
    """Run ``argv`` as root inside a running container."""
    return run(["exec", "-i", container, *argv], stdin=stdin.encode(), timeout_s=timeout_s, check=check)


def by_label(kind: str, label: str) -> list[str]:
    """Names of the containers (running or not), networks or volumes that have ``label`` (KEY=VALUE)."""
    every = ["--all"] if kind == "container" else []
    form = "{{.Names}}" if kind == "container" else "{{.Name}}"
    return sorted(output([kind, "ls", *every, "--filter", f"label={label}", "--format", form]).split())
