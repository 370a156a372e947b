"""Two nodes' ranks of a job that meet without a framework, as processes on this machine."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from clustercheck.jobs import meeting
from clustercheck.launch.requests import make_keys

NOT_MET = object()
JOBS = Path(meeting.__file__).parent
# Which every user may run, also where the virtual environment is root's alone.
PYTHON = shutil.which("python3", path=os.defpath) or sys.executable
ADDRESSES = ("127.0.0.1", "127.0.0.2")  # two nodes, as far as addresses go
ASKED = {
    "limit_s": 60, "limit_each_s": 20, "collectives": ["all_reduce"], "least": 8,
    "most": 64, "iterations": 2, "warmup": 1,
}  # fmt: skip


def free_port(address: str = ADDRESSES[0]) -> int:
    with socket.socket() as one:
        one.bind((address, 0))
        return int(one.getsockname()[1])


def script(place: Path, name: str, text: str) -> None:
    place.mkdir(exist_ok=True)
    (place / name).write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    (place / name).chmod(0o755)


def ranks(
    tmp_path: Path,
    programs: dict[str, str],
    arguments: dict[str, Any] = ASKED,
    job: str = "nccl_tests",
    *,
    variables: tuple[dict[str, str], dict[str, str]] = ({}, {}),
    hostile: int = -1,
    says: Any = None,
    tells: Any = NOT_MET,
) -> list[Any]:
    """Two nodes' ranks of the job, to their verdicts; a ``hostile`` one answers all with ``says``, and who
    comes to it with what it ``tells``; it goes to nobody.
    """
    for name, text in programs.items():
        script(tmp_path / "bin", name, text)
    master, started = f"{ADDRESSES[0]}:{free_port()}", []
    endpoints = [f"{address}:{free_port(address)}" for address in ADDRESSES]
    for rank in sorted({0, 1} - {hostile}):
        directory = tmp_path / f"node{rank}"
        directory.mkdir()
        for source in JOBS.glob("*.py"):  # with another file than this machine's in which users are named
            text = source.read_text(encoding="utf-8").replace("/etc/passwd", f"{tmp_path}/passwd")
            if hostile >= 0:  # which meets nobody
                text = text.replace("MEET_S = 30.0", "MEET_S = 1.0")
            (directory / source.name).write_text(text, encoding="utf-8")
        (directory / "arguments.json").write_text(json.dumps(arguments), encoding="utf-8")
        keys = make_keys("s3cret", rank, 2)
        (directory / meeting.KEYS_FILE).write_text(json.dumps(keys), encoding="utf-8")
        environment = {
            "PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin", "PADDLE_TRAINER_ID": str(rank),
            "PADDLE_TRAINERS_NUM": "2", "PADDLE_MASTER": master, "HERE": f"node{rank}",
            "PADDLE_CURRENT_ENDPOINT": endpoints[rank], "PADDLE_TRAINER_ENDPOINTS": ",".join(endpoints),
            "SEEN": str(tmp_path / "seen"),
            **variables[rank],
        }  # fmt: skip
        words = [PYTHON, "rank.py", str(directory), job]
        started.append(subprocess.Popen(words, cwd=directory, env=environment))
    if hostile >= 0:
        host, port = master.rsplit(":", 1)
        keys = make_keys("s3cret", hostile, 2)
        group = meeting.Meeting(hostile, 2, (host, int(port)), keys)
        at, own = endpoints[hostile].rsplit(":", 1)
        with contextlib.closing(meeting.Door(meeting.listen(at, int(own)), keys.get)) as door:
            if tells is not NOT_MET:
                threading.Thread(target=_tell, args=(door, tells), daemon=True).start()
            with contextlib.suppress(meeting.MeetingError, OSError):
                while True:
                    group.exchange(says, str, 60)
    ended = [process.wait(60) for process in started]
    assert hostile >= 0 or ended == [0, 0]
    found = sorted(tmp_path.glob("node*/rank-*.verdict.json"))
    return [json.loads(path.read_text(encoding="utf-8")) for path in found]


def _tell(door: meeting.Door, words: Any) -> None:
    while (came := door.next(60)) is not None:
        with contextlib.suppress(meeting.MeetingError, OSError), contextlib.closing(came[0]) as line:
            line.send(words)
            line.receive(5)


def counters(tmp_path: Path) -> set[int]:
    """How often each rank waited for the others, as the launcher reads it."""
    files = sorted(tmp_path.glob("node*/rank-*.progress"))
    assert len(files) == 2
    return {json.loads(file.read_text(encoding="utf-8"))["counter"] for file in files}
