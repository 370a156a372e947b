# Copyright: the clusterctl authors
# GNU General Public License v3.0+ (see plugins/LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs on a node: repeats the module calls of an apply, and changes nothing.

Each call runs in check mode in a child of one warm process, with its own time limit.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import importlib
import json
import os
import select
import shutil
import signal
import stat
import sys
import tempfile
import time
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ansible.module_utils import basic
from ansible_collections.clusterctl.cluster.plugins.module_utils import bounded

MAX_PARALLEL = 4
# Stands for a secret that differs from the one on the node: Base64 of "(another)".
OTHER_SECRET = b64encode(b"(another)").decode()
CHUNK = 1 << 16
# Not compared, and possibly large or with a secret in it.
OMITTED = ("invocation", "diff", "ansible_facts", "warnings", "deprecations")


def answer(order: dict[str, Any]) -> dict[str, Any]:
    """Return the result of every call of ``order``, by its id; a call that broke is ``failed``."""
    calls = {call["id"]: call for call in order["calls"]}
    for name in sorted({call["module"] for call in calls.values() if call["kind"] == "module"}):
        importlib.import_module(name)
    # A TemporaryDirectory would go with the first child: each of them runs what is left for the exit.
    directory = tempfile.mkdtemp(prefix="clusterctl-")
    try:
        bounded.shared_answers = Path(directory)
        return {"answers": run_calls(calls, float(order["limit_s"]))}
    finally:
        bounded.shared_answers = None
        shutil.rmtree(directory, ignore_errors=True)


def run_calls(calls: dict[str, dict[str, Any]], limit_s: float) -> dict[str, dict[str, Any]]:
    """Return the result of every call by its id, some of them at a time."""
    waiting, running, answers = list(calls), {}, {}
    while waiting or running:
        while waiting and len(running) < MAX_PARALLEL:
            one = Child(waiting.pop(0), calls, limit_s)
            running[one.descriptor] = one
        soonest = min(one.deadline for one in running.values()) - time.monotonic()
        ready = select.select(list(running), [], [], max(0.0, soonest))[0]
        for one in [one for one in running.values() if one.descriptor in ready or one.is_late()]:
            if one.is_late() or not one.read():
                del running[one.descriptor]
                answers[one.identity] = one.end()
    return answers


class Child:
    """One running call, in its own process and process group."""

    def __init__(self, identity: str, calls: dict[str, dict[str, Any]], limit_s: float) -> None:
        self.identity = identity
        self.deadline = time.monotonic() + limit_s
        self._output = bytearray()
        self.descriptor, writer = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            run_in_child(calls[identity], writer)
        os.close(writer)

    def is_late(self) -> bool:
        """Return whether its time limit has passed."""
        return time.monotonic() > self.deadline

    def read(self) -> bool:
        """Read more of its output; False at the end of it."""
        chunk = os.read(self.descriptor, CHUNK)
        self._output += chunk
        return bool(chunk)

    def end(self) -> dict[str, Any]:
        """Kill it and all that it started; return its result."""
        late = self.is_late()
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._pid, signal.SIGKILL)
        os.close(self.descriptor)
        os.waitpid(self._pid, 0)
        if late:
            return {"failed": True, "msg": "it did not answer in time"}
        try:
            result = json.loads(bytes(self._output).splitlines()[-1])
        except (IndexError, ValueError):
            return {"failed": True, "msg": "it gave no answer"}
        return {key: value for key, value in result.items() if key not in OMITTED}


def run_in_child(call: dict[str, Any], writer: int) -> None:
    """Answer one call on ``writer`` and end; never returns."""
    try:
        os.setsid()
        devnull = os.open(os.devnull, os.O_RDWR)
        for source, goal in ((devnull, 0), (writer, 1), (devnull, 2)):
            os.dup2(source, goal)
        KINDS[call["kind"]](call)
    except SystemExit:
        pass
    except BaseException as error:  # noqa: BLE001 - it is in the answer
        write_result({"failed": True, "msg": f"{type(error).__name__}: {error}"})
    finally:
        # Modules leave it to the interpreter's end to remove their temporary directories.
        atexit._run_exitfuncs()
        sys.stdout.flush()
        os._exit(0)


def write_result(result: dict[str, Any]) -> None:
    """Write a result as a module prints it."""
    os.write(1, json.dumps(result).encode() + b"\n")


def run_module(call: dict[str, Any]) -> None:
    """Run a module; in check mode unless it only reads."""
    arguments = dict(call["args"])
    if call["module"].endswith(".service_files"):
        arguments["files"] = [with_secret(one) for one in arguments["files"]]
    # Nothing is logged: a node that is probed often would have nothing else in its log.
    arguments.update(_ansible_check_mode=call["check"], _ansible_no_log=True)
    basic._ANSIBLE_ARGS = json.dumps({"ANSIBLE_MODULE_ARGS": arguments}).encode()
    basic._ANSIBLE_PROFILE = "legacy"
    importlib.import_module(call["module"]).main()


def with_secret(file: dict[str, Any]) -> dict[str, Any]:
    """Return a file whose secret is known by SHA-256 only, with the secret on the node if it is the same."""
    secret = file.get("secret_base64")
    if not isinstance(secret, dict):
        return file
    try:
        text = Path(file["path"]).read_text(encoding="utf-8")
    except (OSError, ValueError):
        text = ""
    # The module ends every file with a line feed.
    forms = [b64encode(form.encode()).decode() for form in (text, text[:-1])]
    same = [form for form in forms if sha256(form) == secret["sha256"]]
    return {**file, "secret_base64": same[0] if same else OTHER_SECRET}


def sha256(text: str) -> str:
    """Return the hexadecimal digest of a text."""
    return hashlib.sha256(text.encode()).hexdigest()


def compare_file(call: dict[str, Any]) -> None:
    """Report whether a file that was rendered on the controller has changed: content, mode, owner, group."""
    wanted, found = call["args"], {}
    path = Path(wanted["dest"])
    with contextlib.suppress(OSError, KeyError):
        state = path.lstat()
        if stat.S_ISREG(state.st_mode):
            found = {
                "checksum": hashlib.sha1(path.read_bytes(), usedforsecurity=False).hexdigest(),
                "mode": f"{stat.S_IMODE(state.st_mode):04o}",
                "owner": path.owner(),
                "group": path.group(),
            }
    differing = [key for key in ("checksum", "mode", "owner", "group") if wanted.get(key) != found.get(key)]
    write_result({"changed": bool(differing), "differs": differing})


def read_system(_call: dict[str, Any]) -> None:
    """Report the facts that conditions of roles use."""
    release = Path("/etc/os-release").read_text(encoding="utf-8")
    python = ".".join(map(str, sys.version_info[:3]))
    write_result(
        {"changed": False, "os_release": release, "machine": os.uname().machine, "python_version": python}
    )


KINDS: dict[str, Callable[[dict[str, Any]], None]] = {
    "module": run_module,
    "file": compare_file,
    "system": read_system,
}
