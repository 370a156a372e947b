# Copyright: the clusterctl authors
# GNU General Public License v3.0+ (see plugins/LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Remembers what each task asked of a host, so that a later apply can ask the host all of it at once."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from typing import Any

from ansible.plugins.callback import CallbackBase

DOCUMENTATION = """
name: clusterctl_calls
type: notification
short_description: What each task asked of a host, as JSON lines
description:
  - Writes one JSON object a module call to the file named by the environment variable CLUSTERCTL_CALLS.
  - A value that the module does not log is replaced by its SHA-256. Where no module says what it logs (under
    no_log, where it failed, of a job, of what runs on the controller), the name alone is written.
  - Does nothing where the variable is not set.
author: clusterctl
options: {}
"""

# What Ansible puts where a module's value is not to be logged.
UNLOGGED = ("VALUE_SPECIFIED_IN_NO_LOG_PARAMETER", "********")
# Ansible's own arguments beside the task's: where to put temporary files, and the like.
INTERNAL = "_ansible_"
PROXIES = ("http_proxy", "https_proxy")
# Of a file's result: what a later look compares.
OF_A_FILE = ("dest", "checksum", "mode", "owner", "group")


def masked(value: Any, logged: Any, name: str = "") -> Any:
    """``value`` with what ``logged`` hides as ``{"sha256": ...}``; a proxy without a password stays."""
    if isinstance(value, Mapping):
        seen = logged if isinstance(logged, Mapping) else {}
        return {key: masked(part, seen.get(key), key) for key, part in value.items()}
    if isinstance(value, list):
        seen_list = logged if isinstance(logged, list) and len(logged) == len(value) else [None] * len(value)
        return [masked(part, seen, name) for part, seen in zip(value, seen_list, strict=True)]
    hidden = isinstance(logged, str) and any(mark in logged for mark in UNLOGGED)
    if not hidden or (name in PROXIES and "@" not in str(value)):
        return value
    return {"sha256": hashlib.sha256(str(value).encode()).hexdigest()}


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
        task, fields, data = result.task, result.task_fields, result.result
        call: dict[str, Any] = {
            "host": result.host.get_name(),
            "at": str(fields.get("delegate_to") or ""),
            "task": f"{task._role.get_name()}: {task.name}" if task._role else task.name or task.action,
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
        os.write(self._descriptor, (json.dumps(call, default=str) + "\n").encode())
