"""Turns the result of a failed task into a message, a code and a remedy."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from clusterctl.engine.events import Status, TaskResult, TaskStarted
from clusterctl.engine.failure_kinds import OTHER, UNREACHABLE, kind_of, known_code

MESSAGE_LINES = 12
# Ansible's message of a command that failed, which names no cause.
NO_REASON = "non-zero return code"
_NOISE = re.compile(
    r"^(Failed to connect to the host via ssh: |Task failed: |Module failed: "
    r'|Data could not be sent to remote host "[^"]*"\. Make sure this host can be reached over ssh: )+'
)
_SSH_CHATTER = re.compile(
    r"^(Warning: Permanently added|debug\d:|OpenSSH_|Control socket|mux_client|.*post-quantum)"
)
# In which ssh says that a host's key has changed, or is revoked.
_FRAME = re.compile(r"@{9,}\s*\n@ *(.*?) *@\s*\n@{9,}")


@dataclass(frozen=True)
class Failure:
    """Why a host stopped. ``message`` is the task's own; ``where`` is the file:line of the task.

    ``code`` is one of `clusterctl.engine.failure_kinds`, ``task.failed`` if nothing is known of the failure.
    """

    host: str
    task: str
    message: str
    remedy: str = ""
    where: str = ""
    detail: str = ""
    code: str = OTHER.code

    @property
    def headline(self) -> str:
        """The message's first line."""
        return self.message.splitlines()[0] if self.message else "it gave no reason"


def failure_of(result: TaskResult, task: TaskStarted | None) -> Failure:
    """The failure of a host from a failed or unreachable result."""
    message = message_of(result)
    stderr = [line for line in result.stderr if line.strip() and not _SSH_CHATTER.match(line)]
    about = result.clusterctl.get("remedy")
    kind = kind_of("\n".join([message, *stderr]), code_in(result))
    if kind is None:
        kind = UNREACHABLE if result.status == Status.UNREACHABLE else OTHER
    return Failure(
        host=result.host,
        task=title_of(task),
        message=message,
        code=kind.code,
        remedy=about or kind.remedy.format(host=result.delegate or result.host),
        where=task.where if task else "",
        detail="\n".join(line for line in stderr[-MESSAGE_LINES:] if line.strip() not in message),
    )


def code_in(result: TaskResult) -> str:
    """The code that the failed module reports, or the first of those that failed in a loop."""
    codes = [result.code, *(item.get("code") for item in result.items)]
    return next(filter(None, map(known_code, codes)), "")


def message_of(result: TaskResult) -> str:
    """The message of the failed task: of the items if a loop failed, stderr if a command failed."""
    if result.hidden:
        return "it failed; its result is hidden because it deals with secrets (no_log)"
    if result.items:
        texts = [_of_item(item) for item in result.items]
        labels = [item.get("label", "") for item in result.items]
        return _trim("\n".join(f"{label}: {text}" for label, text in zip(labels, texts, strict=True)))
    if result.argument_errors:
        return _trim("the settings are refused: " + "; ".join(result.argument_errors))
    message = "\n".join(line for line in result.msg.splitlines() if not _SSH_CHATTER.match(line))
    message = _FRAME.sub(r"\1", _NOISE.sub("", message.strip()))
    if result.rc not in (None, 0) and (not message or NO_REASON in message):
        return _trim(_of_command(result.rc, result.stderr))
    if result.status == Status.UNREACHABLE:
        return f"it cannot be reached: {_trim(message) or 'no answer'}"
    return _trim(message) or _last(result.stderr) or "the task failed and gave no reason"


def remedy_for(text: str, host: str) -> str:
    """The remedy for a message that is recognized, or nothing."""
    return (kind_of(text) or OTHER).remedy.format(host=host)


def title_of(task: TaskStarted | None) -> str:
    """The displayed title of a task: role and name."""
    if task is None:
        return "before its first task"
    name = "Check its settings" if task.action.endswith("validate_argument_spec") else task.task
    return f"{task.role}: {name}" if task.role else name


def _of_item(item: Mapping[str, Any]) -> str:
    message, stderr = item.get("msg", ""), item.get("stderr", ())
    if NO_REASON in message and "rc" in item:
        return _of_command(item["rc"], stderr)
    return message or _last(stderr)


def _of_command(rc: object, stderr: Sequence[str]) -> str:
    return f"the command ended with exit code {rc}: {_last(stderr) or 'it said nothing'}"


def _last(lines: Sequence[str]) -> str:
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


def _trim(text: str) -> str:
    lines = [line.rstrip() for line in text.strip().splitlines()]
    if len(lines) > MESSAGE_LINES:
        lines = [*lines[: MESSAGE_LINES - 4], "[...]", *lines[-3:]]
    return "\n".join(lines)
