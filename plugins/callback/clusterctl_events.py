# Copyright: the clusterctl authors
# GNU General Public License v3.0+ (see plugins/LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tells clusterctl what happens in a playbook: one JSON line an event, to a descriptor it inherited."""

from __future__ import annotations

import contextlib
import ctypes
import difflib
import json
import mmap
import os
import resource
import signal
import time
from collections import Counter
from collections.abc import Iterable
from functools import partial
from multiprocessing import current_process
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from ansible import constants
from ansible.errors import AnsibleError
from ansible.executor.stats import AggregateStats
from ansible.executor.task_queue_manager import FinalQueue
from ansible.plugins import callback as ansible_callback
from ansible.plugins.action import ActionBase
from ansible.plugins.callback import CallbackBase
from ansible.plugins.connection.ssh import Connection

DOCUMENTATION = """
name: clusterctl_events
type: notification
short_description: JSON-lines events for clusterctl
description:
  - Writes one JSON object a line to the descriptor named by the environment variable CLUSTERCTL_EVENTS_FD.
  - Of a task's result only listed keys leave, and none at all where no_log is set.
  - Does nothing where the variable is not set.
author: clusterctl
options: {}
"""

MESSAGE_LIMIT = 4000
LABEL_LIMIT = 120
CODE_LIMIT = 60
# The variable of a task with the code of its failure: `fail` and `assert` have no option for it.
CODE_OF_TASK = "clusterctl_failure_code"
DIFF_LIMIT = 64_000
# Of all parts of one diff: what comes after them is counted, not shown.
DIFFS_LIMIT = 1_000_000
# Of one result: lines before times lines after. To compare takes up to the cube of the lines.
MAX_COMPARED = 1_000_000
# Of a mapping in a diff that is shown a value a line.
LINES_LIMIT = 10_000
# Of what a module of ours says to clusterctl, as JSON.
REPORT_LIMIT = 1_000_000
# Of all that one host says so in a playbook: clusterctl keeps it until the end.
REPORTS_LIMIT = 10_000_000
# Of what a program on a host prints for one task. Facts have some hundred thousand characters.
OUTPUT_LIMIT = 2_000_000
# Of a whole result on its way to the main process: what was printed, in lines as well.
RESULT_BYTES = 3 * OUTPUT_LIMIT
# Of all results of one host in a playbook, as memory of the main process, which keeps most until the end.
KEPT_LIMIT = 256 << 20
# A result that takes less is not counted: hundreds of tasks with such are few, and errors always pass.
SMALL_RESULT = 256 << 10
# What one value takes, next to eight times its bytes; the opcode that follows each text and container.
VALUE_BYTES, MEMOIZE = 64, b"\x94"
STDERR_LINES = 15
HIDDEN = "the result is hidden (no_log)"
# What a result of other kinds than Ansible's own makes of our reading it: a host may answer anything.
UNREADABLE = (TypeError, ValueError, AttributeError, KeyError, RecursionError)
PR_SET_PDEATHSIG = 1


def ignore_statistics() -> None:
    """Take no statistics from modules: Ansible adds up in its main process, for all hosts, what any returns.

    2.19 and 2.20 also end where they are no mapping, and know a list of keys that modules may not return.
    """
    if listed := getattr(constants, "INTERNAL_RESULT_KEYS", None):
        constants.INTERNAL_RESULT_KEYS = (*listed, "ansible_stats")
    AggregateStats.set_custom_stats = AggregateStats.update_custom_stats = lambda *_args: None


def bound_diffs() -> None:
    """Compare no more lines than files have: Ansible does so in its main process, for `ansible.log`."""
    get_diff = CallbackBase._get_diff

    def get_bounded(callback: CallbackBase, parts: Any) -> str:
        left = MAX_COMPARED

        def unified_diff(before: list[str], after: list[str], **options: Any) -> list[str]:
            nonlocal left
            left -= len(before) * len(after)
            if left < 0:
                return [f"too long to compare: {len(before)} lines before, {len(after)} after\n"]
            return list(difflib.unified_diff(before, after, **options))

        ansible_callback.difflib = SimpleNamespace(unified_diff=unified_diff)
        found: str = get_diff(callback, parts)
        return found

    CallbackBase._get_diff = get_bounded
    CallbackBase._serialize_diff = lambda _, part: serialized(part)


def keep_password_from_jump_hosts(gate: str) -> None:
    """Have ssh ask this program, which answers no ssh that another ssh has started: Ansible's answers all."""
    initialize = Connection._init_shm

    def initialize_gated(connection: Connection) -> dict[str, Any]:
        options: dict[str, Any] = initialize(connection)
        if environment := options.get("env"):
            environment["CLUSTERCTL_SSH_PARENT"] = str(os.getpid())
            environment["SSH_ASKPASS"] = gate
        return options

    Connection._init_shm = initialize_gated


def serialized(part: Any) -> str:
    """A mapping of a diff, a value a line; a long one in one line: what is deep takes many blanks."""
    line = json.dumps(part, sort_keys=True, default=str)
    if len(line) <= LINES_LIMIT:
        line = json.dumps(part, sort_keys=True, default=str, indent=4)
    return f"{line}\n"


def halve_memory() -> None:
    """Half of the limit of the address space, where there is one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    if soft != resource.RLIM_INFINITY:
        resource.setrlimit(resource.RLIMIT_AS, (soft // 2, hard))


def bound_output() -> None:
    """Fail a task on whose host a program prints more than any module does.

    The main process copies each value of an answer several times and prints it, while all hosts wait.
    """
    run = ActionBase._low_level_execute_command

    def run_bounded(action: ActionBase, *arguments: Any, **options: Any) -> dict[str, Any]:
        found: dict[str, Any] = run(action, *arguments, **options)
        size = sum(len(found.get(name) or "") for name in ("stdout", "stderr"))
        if size > OUTPUT_LIMIT:
            raise AnsibleError(
                f"a program on the host printed {size} characters, and at most {OUTPUT_LIMIT} are read"
            )
        return found

    ActionBase._low_level_execute_command = run_bounded


class HostMemory:
    """What the results of each host take in the main process, in memory that all of its workers share."""

    def __init__(self, hosts: Iterable[str]) -> None:
        self._index = {name: number for number, name in enumerate(hosts, 1)}  # 0 is of all others
        self._taken = memoryview(mmap.mmap(-1, 8 * (len(self._index) + 1))).cast("Q")

    def take(self, host: str, message: bytes) -> None:
        """Count one result, pickled. Raises AnsibleError where the host has had too much."""
        size = 8 * len(message) + VALUE_BYTES * message.count(MEMOIZE)
        if size <= SMALL_RESULT:
            return
        index = self._index.get(host, 0)
        self._taken[index] += size
        if self._taken[index] > KEPT_LIMIT:
            raise AnsibleError(
                f"all results of {host} would take more than {KEPT_LIMIT >> 20} MiB of Ansible's memory"
            )


def bound_messages(memory: HostMemory) -> None:
    """Fail a task whose result, or error, would be larger than any that a module gives, alone or with those
    before it.

    A host also prints where a file is put on it, and errors of connections repeat that.
    """
    put = FinalQueue.put

    def put_bounded(queue: FinalQueue, message: Any) -> None:
        pickled = bytes(ForkingPickler.dumps(message))
        if len(pickled) > RESULT_BYTES:
            raise AnsibleError(f"the result has {len(pickled)} bytes, and at most {RESULT_BYTES} are read")
        memory.take(str(getattr(current_process(), "_host", "")), pickled)
        put(queue, message)

    FinalQueue.put = put_bounded


def bound_worker(memory: HostMemory) -> None:
    """In the process of one host's task."""
    halve_memory()
    bound_output()
    bound_messages(memory)


def answer_of(result: Any) -> tuple[dict[str, Any], str]:
    """What a host answered, and why that cannot be read: Ansible copies it first, and stops at some depth."""
    try:
        return result.result, ""
    except UNREADABLE as error:
        return {}, clip(str(error)) or type(error).__name__


def clip(text: Any, limit: int = MESSAGE_LIMIT) -> str:
    """Text of at most ``limit`` characters; the middle goes, since causes stand first and last."""
    text = text if isinstance(text, str) else json.dumps(text, default=str)
    text = text.strip()
    if len(text) <= limit:
        return text
    head = limit * 2 // 3
    return text[:head] + "\n[...]\n" + text[len(text) - (limit - head) :]


def is_hidden(task: Any, result: dict[str, Any]) -> bool:
    """Whether no_log covers this result, by the task's word or by what Ansible left in it."""
    return task.no_log is True or bool(result.get("_ansible_no_log")) or "censored" in result


def summarize(result: dict[str, Any]) -> dict[str, Any]:
    """The listed keys of one result that is not hidden."""
    kept: dict[str, Any] = {}
    message = result.get("msg")
    if message not in (None, ""):
        kept["msg"] = clip(message)
    if isinstance(result.get("rc"), int):
        kept["rc"] = result["rc"]
    if isinstance(result.get("code"), str):
        kept["code"] = clip(result["code"], CODE_LIMIT)
    stderr = result.get("stderr_lines") or str(result.get("module_stderr") or "").splitlines()
    if stderr:
        kept["stderr"] = [clip(str(line), 400) for line in stderr[-STDERR_LINES:]]
    if result.get("argument_errors"):
        kept["argument_errors"] = [clip(str(error), 400) for error in result["argument_errors"]][:20]
    return kept


def failed_items(result: dict[str, Any]) -> list[dict[str, Any]]:
    """Label and message of each failed item of a loop; from Ansible 2.21 on none has the key `failed`."""
    items = [item for item in result.get("results") or [] if isinstance(item, dict)]
    items = [item for item in items if item.get("failed", "exception" in item)]
    return [
        {"label": label_of(item), **({"msg": HIDDEN} if "censored" in item else summarize(item))}
        for item in items[:10]
    ]


def label_of(item: dict[str, Any]) -> str:
    """What the loop calls the item; structures are cut short, since they may be large."""
    return clip(item.get("_ansible_item_label", item.get("item", "")), LABEL_LIMIT)


def diff_texts(diff: Any) -> list[dict[str, str]]:
    """(header, before, after) of each part of a diff, as text."""
    parts = diff if isinstance(diff, list) else [diff]
    texts: list[dict[str, str]] = []
    for part in parts:
        if not isinstance(part, dict):
            continue
        header = clip(part.get("after_header") or part.get("before_header") or "", MESSAGE_LIMIT)
        if "prepared" in part:
            texts.append({"header": header, "prepared": clip(str(part["prepared"]), DIFF_LIMIT)})
        elif part.get("before") != part.get("after"):
            before, after = (clip(part.get(side) or "", DIFF_LIMIT) for side in ("before", "after"))
            texts.append({"header": header, "before": before, "after": after})
    return texts


def within(parts: list[dict[str, str]], limit: int) -> list[dict[str, str]]:
    """The first parts of a diff, of at most ``limit`` characters; then one that counts the others."""
    size = 0
    for number, part in enumerate(parts):
        size += sum(map(len, part.values()))
        if size > limit:
            return [*parts[:number], {"header": "", "prepared": f"[{len(parts) - number} more parts]"}]
    return parts


class CallbackModule(CallbackBase):
    """One line an event; silent unless clusterctl is listening."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "notification"
    CALLBACK_NAME = "clusterctl_events"
    CALLBACK_NEEDS_ENABLED = True

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        descriptor = os.environ.get("CLUSTERCTL_EVENTS_FD", "")
        if not descriptor.isdigit():
            self.disabled = True
            return
        ignore_statistics()
        bound_diffs()
        keep_password_from_jump_hosts(os.environ.get("CLUSTERCTL_ASKPASS", ""))
        self._descriptor = int(descriptor)
        self._reported: Counter[str] = Counter()
        self._memory: HostMemory | None = None
        os.set_inheritable(self._descriptor, False)
        self._die_with_parent()

    @staticmethod
    def _die_with_parent() -> None:
        """A playbook that nobody watches must not continue: its outcome would be lost."""
        parent = os.environ.get("CLUSTERCTL_EVENTS_PARENT", "")
        with contextlib.suppress(OSError, AttributeError):  # not Linux: the broken pipe ends it
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        if parent.isdigit() and os.getppid() != int(parent):
            raise KeyboardInterrupt

    def _report(self, host: str, result: dict[str, Any]) -> dict[str, Any]:
        """What a module of ours says to clusterctl. Raises ValueError where that is too long."""
        report = result.get("clusterctl")
        if not isinstance(report, dict):
            return {}
        size = len(json.dumps(report, default=str))
        if size > REPORT_LIMIT:
            raise ValueError(f"it has {size} characters, and at most {REPORT_LIMIT} are read")
        self._reported[host] += size
        if self._reported[host] > REPORTS_LIMIT:
            raise ValueError(f"more than {REPORTS_LIMIT} characters of reports in one playbook")
        return {"clusterctl": report}

    def _send(self, event: str, **fields: Any) -> None:
        record = {"event": event, "at": round(time.time(), 3), **fields}
        line = memoryview((json.dumps(record, default=str) + "\n").encode())
        try:
            while line:
                line = line[os.write(self._descriptor, line) :]
        except BrokenPipeError:
            self.disabled = True
            raise KeyboardInterrupt from None

    # Plays and tasks

    def v2_playbook_on_play_start(self, play: Any) -> None:
        """A play starts; names its hosts, so that a host that says nothing is missed."""
        inventory = play.get_variable_manager()._inventory
        if self._memory is None:
            self._memory = HostMemory(host.name for host in inventory.get_hosts())
            # The process of one host's task has half of the memory: what it can read, this one can copy.
            os.register_at_fork(after_in_child=partial(bound_worker, self._memory))
        hosts = [host.name for host in inventory.get_hosts(play.hosts)]
        self._send("play_started", play=play.get_name(), hosts=hosts)

    def v2_playbook_on_no_hosts_matched(self) -> None:
        """The limit left this play without hosts."""
        self._send("play_empty")

    def v2_playbook_on_task_start(self, task: Any, is_conditional: bool) -> None:
        """A task starts on the play's hosts."""
        self._task_started(task, handler=False)

    def v2_playbook_on_handler_task_start(self, task: Any) -> None:
        """A handler starts."""
        self._task_started(task, handler=True)

    def _task_started(self, task: Any, *, handler: bool) -> None:
        role = task._role.get_name(include_role_fqcn=False) if task._role else ""
        # The name without its templates resolved: a variable in it may be a secret.
        self._send("task_started", task_id=task._uuid, task=clip(task.name or task.action, LABEL_LIMIT),
                   role=role, action=task.action, where=self._where(task), handler=handler)  # fmt: skip

    @staticmethod
    def _where(task: Any) -> str:
        named = task.get_path()
        # In a clone the collection is a link to the directory in which Ansible runs.
        path = os.path.realpath(named) if named else ""
        return os.path.relpath(path) if path.startswith(str(Path.cwd()) + os.sep) else path

    def v2_runner_on_start(self, host: Any, task: Any) -> None:
        """One host starts the task."""
        self._send("host_started", host=host.get_name(), task_id=task._uuid)

    # Results

    def v2_runner_on_ok(self, result: Any) -> None:
        """Done on one host, changed or not."""
        self._result(result, "changed" if result.is_changed() else "ok")

    def v2_runner_on_failed(self, result: Any, ignore_errors: bool = False) -> None:
        """Failed on one host; a rescue may still catch it: the stats at the end say so."""
        self._result(result, "ignored" if ignore_errors else "failed")

    def v2_runner_on_skipped(self, result: Any) -> None:
        """Not for this host."""
        self._result(result, "skipped")

    def v2_runner_on_unreachable(self, result: Any) -> None:
        """The host did not answer."""
        self._result(result, "unreachable")

    def _result(self, result: Any, status: str) -> None:
        (data, unreadable), task = answer_of(result), result.task
        fields = {"host": result.host.get_name(), "task_id": task._uuid, "status": status}
        if task.delegate_to:
            fields["delegate"] = clip(str(task.delegate_to), LABEL_LIMIT)
        if is_hidden(task, data):
            self._send("result", **fields, msg=HIDDEN, hidden=True)
            return
        if unreadable:
            self._send("result", **fields, unreadable=unreadable)
            return
        kept: dict[str, Any] = {}
        try:
            self._job(result, data, status)
            kept |= self._kept(task, data, status)
            # Last: a report that is too long takes no cause with it.
            kept |= self._report(fields["host"], data) if status != "skipped" else {}
        except UNREADABLE as error:
            kept["unreadable"] = clip(str(error))
        self._send("result", **fields, **kept)

    @staticmethod
    def _kept(task: Any, data: dict[str, Any], status: str) -> dict[str, Any]:
        kept = summarize(data) if status != "skipped" else {}
        if status in ("failed", "ignored", "unreachable"):
            kept["items"] = failed_items(data)
            if code := task.vars.get(CODE_OF_TASK):
                kept["code"] = str(code)
        else:
            kept.pop("stderr", None)
            kept.pop("msg", None) if task.action.endswith("setup") else None
        return kept

    def v2_runner_item_on_ok(self, result: Any) -> None:
        """One item of a loop is done."""
        self._item(result, "changed" if result.is_changed() else "ok")

    def v2_runner_item_on_failed(self, result: Any) -> None:
        """One item of a loop failed."""
        self._item(result, "failed")

    def _item(self, result: Any, status: str) -> None:
        data, unreadable = answer_of(result)
        if is_hidden(result.task, data):
            return
        fields = {"host": result.host.get_name(), "task_id": result.task._uuid, "status": status}
        if unreadable:
            self._send("item", **fields, unreadable=unreadable)
            return
        try:
            self._job(result, data, status)
            kept = {"label": label_of(data), **self._report(fields["host"], data)}
        except UNREADABLE as error:
            kept = {"unreadable": clip(str(error))}
        self._send("item", **fields, **kept)

    def v2_runner_retry(self, result: Any) -> None:
        """An `until` is not met yet."""
        data, _ = answer_of(result)
        self._send("retry", host=result.host.get_name(), task_id=result.task._uuid,
                   attempt=data.get("attempts", 0), retries=data.get("retries", 0))  # fmt: skip

    def _job(self, result: Any, data: dict[str, Any], status: str) -> None:
        """An asynchronous job starts or has ended; its id must outlive us."""
        task = result.task
        job = data.get("ansible_job_id")
        if not job or "results" in data:
            return
        fields = {"host": str(task.delegate_to or result.host.get_name()), "job_id": str(job)}
        if not task.action.endswith("async_status"):
            # A host may say so of any task.
            if task.async_val and data.get("started") and not data.get("finished"):
                self._send("job_started", task_id=task._uuid, limit_s=task.async_val,
                           results_file=str(data.get("results_file", "")), **fields)  # fmt: skip
        elif data.get("finished"):
            failed = status in ("failed", "ignored")  # Ansible takes the key `failed` out of the result
            self._send("job_finished", failed=failed, changed=bool(data.get("changed")),
                       **fields, **summarize(data))  # fmt: skip

    def v2_on_file_diff(self, result: Any) -> None:
        """What a task changed, or in check mode would change."""
        data, _ = answer_of(result)
        if is_hidden(result.task, data) or not result.is_changed():
            return
        items = data.get("results")
        results = items if isinstance(items, list) and items else [data]
        parts = [
            text
            for one in results
            if isinstance(one, dict) and one.get("diff") and "censored" not in one
            for text in diff_texts(one["diff"])
        ]
        parts = within(parts, DIFFS_LIMIT)
        if parts:
            self._send("diff", host=result.host.get_name(), task_id=result.task._uuid, parts=parts)

    # The end

    def v2_playbook_on_stats(self, stats: Any) -> None:
        """The playbook came to its own end; without this line it was interrupted."""
        hosts = {name: stats.summarize(name) for name in stats.processed}
        self._send("stats", hosts=hosts)
