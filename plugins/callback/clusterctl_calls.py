# Copyright: the clusterctl authors
# GNU General Public License v3.0+ (see plugins/LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Logs the module calls of each task, so that the drift probe can repeat them (docs/second-apply.md)."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import secrets
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansible.plugins.callback import CallbackBase

DOCUMENTATION = """
name: clusterctl_calls
type: notification
short_description: Log of module calls, as JSON lines
description:
  - Writes one JSON object per module call to the file named by the environment variable CLUSTERCTL_CALLS.
  - A value that the module does not log, or that holds a URL with a password, is replaced by its SHA-256.
    If no module reports what it logs (no_log, a failure, a background job, an action of the controller), only
    the module's name is written.
  - At the end of a playbook one more object holds how many calls of each host should be there. Ansible
    continues after a callback breaks, and a missing call would go unnoticed.
  - Does nothing if the variable is not set.
author: clusterctl
options: {}
"""

# What Ansible writes in place of a value that must not be logged.
UNLOGGED = ("VALUE_SPECIFIED_IN_NO_LOG_PARAMETER", "********")
# Ansible's own arguments next to the task's: the directory for temporary files, and the like.
INTERNAL = "_ansible_"
PROXIES = ("http_proxy", "https_proxy")
# A URL with a user, and perhaps a password; of its scheme the last letter alone, since a node may have chosen
# the text, and a search for a whole scheme takes the square of its length.
USER_IN_URL = re.compile(r"[a-z0-9+.-]://[^/\s@]*@", re.IGNORECASE)
# The fields of a file's result that the drift probe compares.
OF_A_FILE = ("dest", "checksum", "mode", "owner", "group")
# The arguments of modules that hold secrets, whatever a host says of them.
SECRET_NAME = re.compile(r"passw|secret|token", re.IGNORECASE)
MAX_VALUE = 4096
# Of one playbook: what hosts answered may stand in later arguments. An incomplete log is used for nothing.
MAX_LOG_BYTES = 256 << 20
# Of one call, and of one host's: beyond them its calls are written without arguments, and cannot be repeated.
MAX_CALL_BYTES, MAX_HOST_BYTES = 8 << 20, 16 << 20


def masked(value: Any, logged: Any, name: str = "") -> Any:
    """Return ``value`` with what ``logged`` hides or lacks as ``{"sha256": ...}``; a plain proxy is kept."""
    if isinstance(value, Mapping) and isinstance(logged, Mapping):
        return {key: masked(part, logged.get(key, UNLOGGED[0]), key) for key, part in value.items()}
    if isinstance(value, list) and isinstance(logged, list) and len(logged) == len(value):
        return [masked(part, seen, name) for part, seen in zip(value, logged, strict=True)]
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True, default=str)
    if name in PROXIES and "@" not in text:
        return value
    # A host that lies may say that it logs each argument.
    if SECRET_NAME.search(name):
        logged = UNLOGGED[0]
    # The logged form may differ from the value's: then the mark may be anywhere in it.
    seen_text = logged if isinstance(logged, str) else json.dumps(logged, default=str)
    if not any(mark in seen_text for mark in UNLOGGED) and not USER_IN_URL.search(text):
        return value
    return {"sha256": hashlib.sha256(text.encode()).hexdigest()}


def is_short(value: Any) -> bool:
    """Return whether a host's answer is a plain value, and one that a file may have."""
    return isinstance(value, int) or (isinstance(value, str) and len(value) <= MAX_VALUE)


class CallbackModule(CallbackBase):
    """One line per call."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "notification"
    CALLBACK_NAME = "clusterctl_calls"
    CALLBACK_NEEDS_ENABLED = True

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        path = os.environ.get("CLUSTERCTL_CALLS", "")
        self.disabled = not path
        if path:
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
            self._descriptor = os.open(path, flags, 0o600)
        self._part, self._playbook = secrets.token_hex(8), ""
        self._logged: Counter[str] = Counter()
        self._bytes: Counter[str] = Counter()
        self._left = MAX_LOG_BYTES

    def v2_playbook_on_start(self, playbook: Any) -> None:
        """Several playbooks of one run write to the same file."""
        self._playbook = Path(playbook._file_name).name

    def v2_playbook_on_stats(self, stats: Any) -> None:
        """The playbook has finished: log how many calls should be there, by our count and by Ansible's."""
        self._write({"playbook": self._playbook, "ok": dict(stats.ok), "logged": dict(self._logged)})

    def v2_runner_on_ok(self, result: Any) -> None:
        """A task is done; the items of a loop were logged one by one."""
        if not result.task.loop:
            self._log(result)

    def v2_runner_item_on_ok(self, result: Any) -> None:
        """One item of a loop is done."""
        self._log(result)

    def v2_runner_on_failed(self, result: Any, ignore_errors: bool = False) -> None:
        """A task that failed and was rescued cannot be repeated."""
        self._log(result, failed=True)

    def _log(self, result: Any, *, failed: bool = False) -> None:
        host = result.host.get_name()
        self._logged[host] += 1
        task, fields, data = result.task, result.task_fields, {}
        # Ansible copies what a host answered, and stops at some depth: then its call cannot be repeated.
        with contextlib.suppress(RecursionError, ValueError, TypeError):
            data = result.result
        role = task._role.get_name(include_role_fqcn=False) if task._role else ""
        call: dict[str, Any] = {
            "host": host,
            "at": str(fields.get("delegate_to") or ""),
            "task": f"{role}: {task.name}" if role else task.name or task.action,
            "module": task.action.rpartition(".")[2],
            "job": bool(fields.get("async_val")),
            "failed": failed,
            "hidden": task.no_log is True or "censored" in data,
        }
        invocation = data.get("invocation")
        logged = invocation.get("module_args") if isinstance(invocation, Mapping) else None
        # Only the module itself knows which of its arguments are secrets.
        if isinstance(logged, Mapping) and not (call["hidden"] or failed or call["job"]):
            asked = (fields.get("args") or {}).items()
            # What a host says that it logs may be too deep to be read: then its call cannot be repeated.
            with contextlib.suppress(RecursionError, ValueError, TypeError):
                call["args"] = masked(
                    {key: own for key, own in asked if not key.startswith(INTERNAL)}, logged
                )
        if not call["hidden"]:
            call["file"] = {key: data[key] for key in OF_A_FILE if is_short(data.get(key))}
        size = len(json.dumps(call, default=str))
        if size > MAX_CALL_BYTES or self._bytes[host] + size > MAX_HOST_BYTES:
            call.pop("args", None)
        else:
            self._bytes[host] += size
        self._write(call)

    def _write(self, line: dict[str, Any]) -> None:
        content = f"{json.dumps({**line, 'part': self._part}, default=str)}\n".encode()
        self._left -= len(content)
        if self._left >= 0:
            os.write(self._descriptor, content)
