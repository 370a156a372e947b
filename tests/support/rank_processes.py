"""A job's ranks as processes on this machine."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import clustercheck.jobs


def run_job(
    directory: Path,
    program: str,
    arguments: Mapping[str, Any],
    *,
    ranks: int = 2,
    programs: Mapping[str, str] | None = None,
) -> list[dict[str, Any]]:
    """Runs a job's ranks, over gloo, as a node would; returns their verdicts."""
    shutil.copytree(Path(clustercheck.jobs.__file__).parent, directory, dirs_exist_ok=True)
    (directory / "__init__.py").unlink()
    for name, text in (programs or {}).items():
        (directory / f"{name}.py").write_text(text)
    master, *own = _ports(ranks + 1)
    endpoints = [f"127.0.0.1:{port}" for port in own]
    common = {
        "PADDLE_TRAINERS_NUM": str(ranks),
        "PADDLE_MASTER": f"127.0.0.1:{master}",
        "PADDLE_TRAINER_ENDPOINTS": ",".join(endpoints),
        "PADDLE_DISTRI_BACKEND": "gloo",
        "CLUSTERCTL_BACKEND": "gloo",
        "CLUSTERCTL_PROCESSES": ",".join(["1"] * ranks),
        "GLOO_SOCKET_IFNAME": "lo",
        "OMP_NUM_THREADS": "1",
    }
    own_words = [
        {"PADDLE_TRAINER_ID": str(rank), "PADDLE_CURRENT_ENDPOINT": endpoints[rank]} for rank in range(ranks)
    ]
    specs = [{"rank": rank, "environment": {**common, **own_words[rank]}} for rank in range(ranks)]
    (directory / "arguments.json").write_text(json.dumps(arguments))
    # All of one directory: they share their keys.
    (directory / "keys.json").write_text(json.dumps(dict.fromkeys(map(str, range(ranks)), "of all")))
    (directory / "job.json").write_text(json.dumps({"program": program, "timeout_s": 60, "ranks": specs}))
    supervisor = [sys.executable, str(directory / "supervise.py"), str(directory)]
    ended = subprocess.run(supervisor, check=False, timeout=90)
    assert ended.returncode == 0, _said(directory)
    return [json.loads((directory / f"rank-{rank}.verdict.json").read_text()) for rank in range(ranks)]


def _said(directory: Path) -> str:
    """How each rank ended and what it last wrote: its files are gone before anybody could look."""
    files = sorted(path for kind in ("end", "log", "stack") for path in directory.glob(f"rank-*.{kind}"))
    return "\n".join(f"{path.name}: {path.read_text(errors='replace')[-2000:]}" for path in files)


def _ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
