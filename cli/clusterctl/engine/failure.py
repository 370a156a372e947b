"""What a failing task itself says, made into what a person can act on."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from clusterctl.engine.events import Status, TaskResult, TaskStarted

MESSAGE_LINES = 12
_NOISE = re.compile(
    r"^(Failed to connect to the host via ssh: |Task failed: |Module failed: "
    r'|Data could not be sent to remote host "[^"]*"\. Make sure this host can be reached over ssh: )+'
)
_SSH_CHATTER = re.compile(
    r"^(Warning: Permanently added|debug\d:|OpenSSH_|Control socket|mux_client|.*post-quantum)"
)

# What Ansible, ssh and apt say -> what to do. The first that is found holds.
REMEDIES: tuple[tuple[str, str], ...] = (
    (
        r"Host key verification failed|REMOTE HOST IDENTIFICATION HAS CHANGED|No .* host key is known",
        "If the host was re-imaged: clusterctl hosts replace {host}; if it is new: clusterctl hosts scan.",
    ),
    (
        r"Permission denied \((publickey|password|gssapi|keyboard)",
        "Put the key of ansible_ssh_private_key_file into authorized_keys of ansible_user on {host}.",
    ),
    (
        r"Missing sudo password|sudo: a password is required|Incorrect sudo password|Timeout .* privilege",
        "Give the sudo password of {host}, or allow ansible_user to sudo without one.",
    ),
    (
        r"Connection refused|Connection timed out|No route to host|Operation timed out|Connection closed by",
        "See that {host} is up and its sshd answers: ssh to it by hand. "
        "To go on without it: clusterctl hosts quarantine {host} --reason WHY.",
    ),
    (r"Could not resolve hostname", "Set ansible_host of {host} to an address, or mend the DNS."),
    (
        r"Could not get lock|is another process using it|dpkg was interrupted|dpkg frontend lock",
        "Another package run holds {host}: wait for it (unattended-upgrades?), then run this again.",
    ),
    (r"No space left on device", "Free disk space on {host}, then run the same command again."),
    (
        r"Temporary failure (in name resolution|resolving)|Could not resolve '|Name or service not known",
        "{host} cannot resolve that name: see its /etc/resolv.conf, or site_http_proxy in the settings.",
    ),
    (
        r"Unable to locate package|No package matching|has no installation candidate|Version .* was not",
        "The package sources of {host} do not have it: see the version and the repository in the settings.",
    ),
)  # fmt: skip


@dataclass(frozen=True)
class Failure:
    """Why a host stopped. ``message`` is the task's own; ``where`` is file:line of the task."""

    host: str
    task: str
    message: str
    remedy: str = ""
    where: str = ""
    detail: str = ""

    @property
    def headline(self) -> str:
        """The message's first line."""
        return self.message.splitlines()[0] if self.message else "it gave no reason"


def failure_of(result: TaskResult, task: TaskStarted | None) -> Failure:
    """A failed or unreachable result as a failure of its host."""
    message = message_of(result)
    stderr = [line for line in result.stderr if line.strip() and not _SSH_CHATTER.match(line)]
    about = result.clusterctl.get("remedy")
    text = "\n".join([message, *stderr])
    return Failure(
        host=result.host,
        task=title_of(task),
        message=message,
        remedy=str(about) if about else remedy_for(text, result.delegate or result.host),
        where=task.where if task else "",
        detail="\n".join(line for line in stderr[-MESSAGE_LINES:] if line.strip() not in message),
    )


def message_of(result: TaskResult) -> str:
    """The failing task's own words: items' own where a loop failed, stderr where a command did."""
    if result.hidden:
        return "it failed, and its result is hidden, since it deals with secrets (no_log)"
    if result.items:
        texts = [item.get("msg") or _last(item.get("stderr", ())) for item in result.items]
        labels = [item.get("label", "") for item in result.items]
        return _trim("\n".join(f"{label}: {text}" for label, text in zip(labels, texts, strict=True)))
    if result.argument_errors:
        return _trim("the settings are refused: " + "; ".join(result.argument_errors))
    said = "\n".join(line for line in result.msg.splitlines() if not _SSH_CHATTER.match(line))
    said = _NOISE.sub("", said.strip())
    if result.rc not in (None, 0) and (not said or "non-zero return code" in said):
        last = _last(result.stderr) or "it said nothing"
        return _trim(f"the command ended with exit code {result.rc}: {last}")
    if result.status == Status.UNREACHABLE:
        return f"it cannot be reached: {_trim(said) or 'no answer'}"
    return _trim(said) or _last(result.stderr) or "the task failed and gave no reason"


def remedy_for(text: str, host: str) -> str:
    """What to do about a message that we know, or nothing."""
    for pattern, remedy in REMEDIES:
        if re.search(pattern, text, re.IGNORECASE):
            return remedy.format(host=host)
    return ""


def title_of(task: TaskStarted | None) -> str:
    """A task as people read it: role and name."""
    if task is None:
        return "before its first task"
    name = "Check its settings" if task.action.endswith("validate_argument_spec") else task.task
    return f"{task.role}: {name}" if task.role else name


def _last(lines: Sequence[str]) -> str:
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


def _trim(text: str) -> str:
    lines = [line.rstrip() for line in text.strip().splitlines()]
    if len(lines) > MESSAGE_LINES:
        lines = [*lines[: MESSAGE_LINES - 4], "[...]", *lines[-3:]]
    return "\n".join(lines)
