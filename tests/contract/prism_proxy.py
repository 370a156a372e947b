"""Prism between a client and a server: it holds requests and answers against an API's description."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

HERE = Path(__file__).resolve().parent / "prism"
PROGRAM = HERE / "node_modules" / ".bin" / "prism"
READY = "Prism is listening"


def described(path: Path, target: Path) -> Path:
    """The description, made strict: an object has no other fields than those that it describes."""
    if not path.is_file():
        pytest.skip("Harbor's API description is not next to this clone")
    description = yaml.safe_load(path.read_text(encoding="utf-8"))
    for definition in description["definitions"].values():
        if definition.get("properties"):
            definition.setdefault("additionalProperties", False)
    target.write_text(json.dumps(description), encoding="utf-8")
    return target


@contextlib.contextmanager
def between(description: Path, upstream: str) -> Iterator[str]:
    """The address of a Prism that passes everything on to ``upstream``.

    Whoever has the description has it judged: without Prism these tests fail.
    """
    if shutil.which("node") is None:
        pytest.fail("there is no node on this machine, and Prism needs one")
    if not PROGRAM.exists():
        pytest.fail("Prism is not installed: script/test does it with npm (npm ci in tests/contract/prism)")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [str(PROGRAM), "proxy", "-h", "127.0.0.1", "-p", str(port), str(description), upstream]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )
    try:
        assert process.stdout is not None
        said = []
        for line in process.stdout:
            said.append(line)
            if READY in line:
                break
        else:
            pytest.fail(f"Prism did not start: {''.join(said)[-2000:]}")
        drain = threading.Thread(target=process.stdout.read)
        drain.start()
        yield f"http://127.0.0.1:{port}"
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def violations(answer: Any) -> list[tuple[str, str]]:
    """What Prism found: where, and what."""
    found = json.loads(answer.headers.get("sl-violations", "[]"))
    return [(".".join(map(str, one["location"])), one["message"]) for one in found]
