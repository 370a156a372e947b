# Copyright: the clusterctl authors
# GNU General Public License v3.0+ (see plugins/LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Remembers what each task asked of a host, so that a later apply can ask the host all of it at once."""

from __future__ import annotations

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
short_description: What each task asked of a host, as JSON lines
description:
  - Writes one JSON object a module call to the file named by the environment variable CLUSTERCTL_CALLS.
  - A value that the module does not log, or that holds a URL with a password, is replaced by its SHA-256.
    Where no module says what it logs (under no_log, where it failed, of a job, of what runs on the
    controller), the name alone is written.
  - At the end of a playbook one more object says how many calls of each host should be there. Ansible goes on
    where a callback breaks, and what is missing would not be missed.
  - Does nothing where the variable is not set.
author: clusterctl
options: {}
"""

# What Ansible puts where a module's value is not to be logged.
UNLOGGED = ("VALUE_SPECIFIED_IN_NO_LOG_PARAMETER", "********")
# Ansible's own arguments beside the task's: where to put temporary files, and the like.
INTERNAL = "_ansible_"
PROXIES = ("http_proxy", "https_proxy")
# A URL that names a user, and with him perhaps a password. As in module_utils/masking.py, which Ansible gives
# to modules and not to callbacks.
USER_IN_URL = re.compile(r"[a-z][a-z0-9+.-]*://[^/\s@\"']*@", re.IGNORECASE)
# Of a file's result: what a later look compares.
OF_A_FILE = ("dest", "checksum", "mode", "owner", "group")


def masked(value: Any, logged: Any, name: str = "") -> Any:
    """``value`` with what ``logged`` hides or lacks as ``{"sha256": ...}``, except a mere proxy."""
    if isinstance(value, Mapping) and isinstance(logged, Mapping):
        return {key: masked(part, logged.get(key, UNLOGGED[0]), key) for key, part in value.items()}
    if isinstance(value, list) and isinstance(logged, list) and len(logged) == len(value):
        return [masked(part, seen, name) for part, seen in zip(value, logged, strict=True)]
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True, default=str)
    if name in PROXIES and "@" not in text:
        return value
    # Of another form than what was logged: then the mark may stand anywhere.
    seen_text = logged if isinstance(logged, str) else json.dumps(logged, default=str)
    if not any(mark in seen_text for mark in UNLOGGED) and not USER_IN_URL.search(text):
        return value
    return {"sha256": hashlib.sha256(text.encode()).hexdigest()}


class CallbackModule(CallbackBase):
    """One line a call; silent unless clusterctl wants it."""

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
        self._told: Counter[str] = Counter()

    def v2_playbook_on_start(self, playbook: Any) -> None:
        """Several playbooks of one run write to the same file."""
        self._playbook = Path(playbook._file_name).name

    def v2_playbook_on_stats(self, stats: Any) -> None:
        """All is told: what should be there, by our own count and by Ansible's."""
        self._write({"playbook": self._playbook, "ok": dict(stats.ok), "told": dict(self._told)})

    def v2_runner_on_ok(self, result: Any) -> None:
        """A task is done; the items of a loop were told one by one."""
        if not result.task.loop:
            self._tell(result)

    def v2_runner_item_on_ok(self, result: Any) -> None:
        """One item of a loop is done."""
        self._tell(result)

    def v2_runner_on_failed(self, result: Any, ignore_errors: bool = False) -> None:
        """What failed and was rescued cannot be asked again."""
        self._tell(result, failed=True)

    def _tell(self, result: Any, *, failed: bool = False) -> None:
        host = result.host.get_name()
        self._told[host] += 1
        task, fields, data = result.task, result.task_fields, result.result
        role = task._role.get_name(include_role_fqcn=False) if task._role else ""
        call: dict[str, Any] = {
            "host": host,
            "at": str(fields.get("delegate_to") or ""),
            "task": f"{role}: {task.name}" if role else task.name or task.action,
            "module": task.action.rpartition(".")[2],
            "looks": list(task.changed_when) == [False],
            "job": bool(fields.get("async_val")),
            "failed": failed,
            "hidden": task.no_log is True or "censored" in data,
        }
        logged = (data.get("invocation") or {}).get("module_args")
        # Nothing but the module itself tells which of its arguments are secrets.
        if isinstance(logged, Mapping) and not (call["hidden"] or failed or call["job"]):
            asked = (fields.get("args") or {}).items()
            call["args"] = masked({key: own for key, own in asked if not key.startswith(INTERNAL)}, logged)
        if not call["hidden"]:
            call["file"] = {key: data[key] for key in OF_A_FILE if key in data}
        self._write(call)

    def _write(self, line: dict[str, Any]) -> None:
        said = json.dumps({**line, "part": self._part}, default=str) + "\n"
        os.write(self._descriptor, said.encode())
