"""Repeats the calls of many hosts: one command per host over SSH, and beside them one here."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from clustercheck.launch.bounded import run_all
from clustercheck.launch.transport import Completed, NodeUnreachableError
from clustercheck.parse.document import read_answer
from clustercheck.parse.plain_text import one_line
from clustercheck.parse.reading import CannotReadError
from clusterctl.cluster.ssh import OpenSshTransport
from clusterctl.cluster.sudo_password import PasswordRefusedError
from clusterctl.content import collections_path, content_root
from clusterctl.interpreter import python_command, python_environment
from clusterctl.rollout.drift import payload
from clusterctl.rollout.drift.calls import CONTROLLER, PREFLIGHT, Call

CALL_LIMIT_S = 60.0
HOST_LIMIT_S = 180.0
MAX_PARALLEL = 32
# With the code as it is installed: what lies in a cluster directory is never run.
ON_CONTROLLER = (
    "import json, sys; sys.path[:0] = sys.argv[1:]; import replay; "
    "print(json.dumps(replay.answer(json.load(sys.stdin))))"
)
DIRECTORY_ON_NODES = "/root/.clusterctl/probe"
# Among the hosts that are asked: none of them has an empty name.
HERE = ""

# Results by the call's identity, or a sentence that says why there are none.
Answers = Mapping[str, Mapping[str, Any]] | str


def replay_calls(
    calls: Mapping[str, Sequence[Call]], transport: OpenSshTransport
) -> tuple[Answers, dict[str, Answers]]:
    """Returns the controller's own answers, and those of each host; sends the payload to hosts that lack it.

    Raises PasswordRefusedError where several hosts refuse sudo's password, or none took it: then no other is
    asked. A host that is the only one to refuse it answers with that.
    """
    own = {call.identity: call for asked in calls.values() for call in asked if call.at == CONTROLLER}
    questions: dict[str, Callable[[], Answers]] = {HERE: lambda: replay_on_controller(list(own.values()))}
    for host in calls:
        questions[host] = partial(_replay_on_host, host, calls[host], transport)
    answers: dict[str, Answers] = {}
    refused: PasswordRefusedError | None = None
    for ended in run_all(questions, limit_s=HOST_LIMIT_S, parallel=MAX_PARALLEL):
        if isinstance(ended.error, PasswordRefusedError):
            refused = refused or ended.error
            if ended.error.is_wrong:
                break
        if ended.value is None:
            answers[ended.name] = one_line(str(ended.error or f"no answer within {HOST_LIMIT_S:.0f} s"))
        else:
            answers[ended.name] = ended.value
    if refused is not None and not (answers.keys() == questions.keys() and transport.is_password_taken()):
        raise refused
    return answers.pop(HERE), answers


def replay_on_controller(calls: Sequence[Call]) -> Answers:
    """Returns the controller's own answers, given by the same modules in a process of its own."""
    if not calls:
        return {}
    paths = (str(content_root() / "plugins" / "probe"), str(collections_path()))
    try:
        done = subprocess.run(
            python_command("-c", ON_CONTROLLER, *paths),
            input=_order(calls),
            capture_output=True,
            text=True,
            timeout=HOST_LIMIT_S,
            cwd=content_root(),
            env={**python_environment(), "LC_ALL": "C.UTF-8"},
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"this controller gave no answer within {HOST_LIMIT_S:.0f} s"
    return read_answers(Completed(done.returncode, done.stdout, done.stderr, 0.0), calls)


def _replay_on_host(host: str, calls: Sequence[Call], transport: OpenSshTransport) -> Answers:
    asked = [call for call in calls if call.at != CONTROLLER]
    order = _order(asked)
    command = ["python3", *_launcher(Path(DIRECTORY_ON_NODES))]
    try:
        done = transport.run(host, command, stdin=f"{order}\n\n", timeout_s=HOST_LIMIT_S - 20)
        if _lacks_payload(done):
            sent = f"{order}\n{payload.pack()}\n"
            done = transport.run(host, command, stdin=sent, timeout_s=HOST_LIMIT_S - 20)
    except PasswordRefusedError:
        raise
    except NodeUnreachableError as error:
        return one_line(str(error))
    return read_answers(done, asked)


def _launcher(place: Path) -> list[str]:
    return ["-I", "-c", payload.launcher(), str(place), payload.digest()]


def _order(calls: Sequence[Call]) -> str:
    questions = [
        {
            "id": call.identity,
            "kind": call.kind,
            "module": payload.import_name(call.module),
            "check": call.check,
            "args": _current_arguments(call),
        }
        for call in calls
    ]
    return json.dumps({"limit_s": CALL_LIMIT_S, "calls": questions})


def _current_arguments(call: Call) -> dict[str, Any]:
    """Returns the logged arguments, with the time of day as it is now."""
    now = {"controller_time": time.time()} if call.module == PREFLIGHT else {}
    return {**call.args, **now}


def _lacks_payload(done: Completed) -> bool:
    return done.exit_code == 0 and done.stdout.strip() == '{"missing": true}'


def read_answers(done: Completed, calls: Sequence[Call]) -> Answers:
    """The results of ``calls`` in what a host answered; one that is missing or no result has no answer.

    Results are not cleaned: they are compared as they are. Who shows a part of one cleans it.
    """
    try:
        reply = read_answer(done.stdout, "its answer")
    except CannotReadError:
        lines = done.stderr.strip().splitlines()
        return one_line(
            f"the drift probe exited with {done.exit_code}: {lines[-1] if lines else 'no output'}"
        )
    if reply.get("missing"):
        return "the drift probe's code is missing there"
    answers = reply.get("answers")
    if not isinstance(answers, dict):
        return "the drift probe returned no answers"
    results = {call.identity: answers.get(call.identity) for call in calls}
    return {identity: result for identity, result in results.items() if isinstance(result, dict)}
