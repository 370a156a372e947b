"""Puts all calls of many hosts to them: one command a host over SSH, and one here for the controller."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from clustercheck.launch.bounded import run_all
from clustercheck.launch.transport import Completed, NodeUnreachableError
from clustercheck.parse.document import read_answer
from clustercheck.parse.reading import CannotReadError
from clusterctl.cluster.directory import ClusterDirectory
from clusterctl.cluster.ssh import OpenSshTransport, PasswordRefusedError
from clusterctl.content import content_root
from clusterctl.interpreter import python_command, python_environment
from clusterctl.rollout.probe import code
from clusterctl.rollout.probe.calls import HERE, PREFLIGHT, Call

CALL_LIMIT_S = 60.0
HOST_LIMIT_S = 180.0
AT_ONCE = 32
ON_NODES = "/root/.clusterctl/probe"

# Results by identity of the call, or in words why there are none.
Answers = Mapping[str, Mapping[str, Any]] | str


def ask(calls: Mapping[str, Sequence[Call]], transport: OpenSshTransport) -> dict[str, Answers]:
    """The answers of each host; the code is put on those that lack it.

    Raises PasswordRefusedError at the first host whose sudo refuses the password; no further one is asked.
    """
    questions = {host: lambda host=host: _ask_host(host, calls[host], transport) for host in calls}
    answers: dict[str, Answers] = {}
    for ended in run_all(questions, limit_s=HOST_LIMIT_S, parallel=AT_ONCE):
        if isinstance(ended.error, PasswordRefusedError):
            raise ended.error
        if ended.value is None:
            answers[ended.name] = str(ended.error or f"no answer within {HOST_LIMIT_S:.0f} s")
        else:
            answers[ended.name] = ended.value
    return answers


def ask_here(calls: Sequence[Call], directory: ClusterDirectory) -> Answers:
    """The controller's own answers, from the same code in a process of its own."""
    if not calls:
        return {}
    place = directory.state / "probe" / "code"
    missing = not (place / code.digest()).is_dir()
    try:
        done = subprocess.run(
            python_command(*_launcher(place)),
            input=f"{_order(calls)}\n{code.packed() if missing else ''}\n",
            capture_output=True,
            text=True,
            timeout=HOST_LIMIT_S,
            cwd=content_root(),
            env={**python_environment(), "LC_ALL": "C.UTF-8"},
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"this controller gave no answer within {HOST_LIMIT_S:.0f} s"
    return _answers(Completed(done.returncode, done.stdout, done.stderr, 0.0))


def _ask_host(host: str, calls: Sequence[Call], transport: OpenSshTransport) -> Answers:
    own = [call for call in calls if call.at != HERE]
    command, order = ["python3", *_launcher(Path(ON_NODES))], _order(own)
    try:
        done = transport.run(host, command, stdin=f"{order}\n\n", timeout_s=HOST_LIMIT_S - 20)
        if _is_missing(done):
            sent = f"{order}\n{code.packed()}\n"
            done = transport.run(host, command, stdin=sent, timeout_s=HOST_LIMIT_S - 20)
    except PasswordRefusedError:
        raise
    except NodeUnreachableError as error:
        return str(error)
    return _answers(done)


def _launcher(place: Path) -> list[str]:
    return ["-I", "-c", code.launcher(), str(place), code.digest()]


def _order(calls: Sequence[Call]) -> str:
    asked = [
        {
            "id": c.identity,
            "kind": c.kind,
            "module": code.importable(c.module),
            "check": c.check,
            "args": _arguments(c),
        }
        for c in calls
    ]
    return json.dumps({"limit_s": CALL_LIMIT_S, "calls": asked})


def _arguments(call: Call) -> dict[str, Any]:
    """As they were, except the time of day."""
    now = {"controller_time": time.time()} if call.module == PREFLIGHT else {}
    return {**call.args, **now}


def _is_missing(done: Completed) -> bool:
    return done.exit_code == 0 and done.stdout.strip() == '{"missing": true}'


def _answers(done: Completed) -> Answers:
    try:
        said = read_answer(done.stdout, "its answer")
    except CannotReadError:
        lines = done.stderr.strip().splitlines()
        return f"the look ended with {done.exit_code}: {lines[-1] if lines else 'it said nothing'}"
    if said.get("missing"):
        return "the code of the look is not there"
    answers = said.get("answers")
    return answers if isinstance(answers, dict) else "the look gave no answers"
