"""The module calls of an apply, as the callback logged them, and whether they can be repeated safely."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from clusterctl.content import content_root

CONTROLLER = "localhost"
PREFLIGHT = "node_preflight"
# Decide or print on the controller, from the results of other calls and from inputs.
CONTROLLER_ONLY = frozenset(
    {"assert", "fail", "debug", "meta", "set_fact", "include_vars", "include_tasks", "include_role",
     "import_tasks", "import_role", "validate_argument_spec"}
)  # fmt: skip
# Follow a call that reported a change (``wanted``, or a plan): never due on an unchanged host.
FOLLOW_UPS = frozenset({"async_status", "reboot"})
# Ansible's own modules that change nothing in check mode, or never.
SAFE_IN_CHECK_MODE = frozenset({"file", "find", "lineinfile", "stat"})
# Run without check mode: they only read, if they ask just this.
READ_ONLY = frozenset({"command", "uri"})
READING_COMMANDS = frozenset({"systemctl is-active docker-registry.service"})
READING_REQUEST = frozenset({"ca_path", "follow_redirects", "status_code", "url", "use_proxy"})  # a GET
# Arguments that report a change of the same run: empty on an unchanged host.
TRANSIENT_ARGUMENTS: Mapping[str, Mapping[str, Any]] = {
    "nvidia_driver_activate": {"changed_packages": []},
    "docker_daemon_config": {"restart_for": []},
}
MASK = "sha256"


class NotRepeatableError(Exception):
    """A call, or a host, that the drift probe cannot inspect; its text says which and why."""


@dataclass(frozen=True)
class Call:
    """One module call to repeat. ``at`` is empty for the host, or `CONTROLLER`; ``kind`` is one of
    plugins/probe/replay.py's; ``times`` counts the tasks that made this same call.
    """

    at: str
    task: str
    kind: str
    module: str
    args: Mapping[str, Any]
    check: bool = True
    times: int = 1

    @property
    def identity(self) -> str:
        """Equal for calls with the same question."""
        question = json.dumps([self.kind, self.module, self.args, self.check], sort_keys=True)
        return hashlib.sha256(question.encode()).hexdigest()[:16]


def select_calls(host: str, log: Iterable[Mapping[str, Any]]) -> tuple[Call, ...]:
    """Returns the calls to repeat for one host: its own, and all that ran on the controller.

    Raises NotRepeatableError if one of them cannot be repeated.
    """
    merged: dict[tuple[str, str], Call] = {}
    for entry in log:
        if entry["host"] != host and entry["at"] != CONTROLLER:
            continue
        call = _repeatable_call(entry)
        if call is None:
            continue
        key = (call.at, call.identity)
        merged[key] = replace(merged[key], times=merged[key].times + 1) if key in merged else call
    if not any(call.module == PREFLIGHT for call in merged.values()):
        raise NotRepeatableError("its module calls were not logged")
    return tuple(merged.values())


def _repeatable_call(entry: Mapping[str, Any]) -> Call | None:
    """Returns one call to repeat; None for an entry that asks nothing of any host."""
    module, task = str(entry["module"]), str(entry["task"])
    if module in CONTROLLER_ONLY or module in FOLLOW_UPS or entry["job"]:
        return None
    if entry["failed"]:
        raise NotRepeatableError(f"{task}: it failed and was rescued")
    if entry["hidden"]:
        raise NotRepeatableError(f"{task}: it is under no_log")
    if entry["at"] not in ("", CONTROLLER):
        raise NotRepeatableError(f"{task}: it is delegated to {entry['at']}")
    at = CONTROLLER if entry["at"] else ""
    if module in ("setup", "gather_facts"):
        return Call(at, task, "system", module, {})
    if module == "template":
        if not entry.get("file", {}).get("checksum"):
            raise NotRepeatableError(f"{task}: the file's checksum was not logged")
        return Call(at, task, "file", module, entry["file"])
    if "args" not in entry:
        raise NotRepeatableError(f"{task}: its arguments were not logged")
    arguments = {**entry["args"], **TRANSIENT_ARGUMENTS.get(module, {})}
    call = Call(at, task, "module", module, arguments, check=module not in READ_ONLY)
    if not changes_nothing(call):
        raise NotRepeatableError(f"{task}: {module} cannot be repeated without changing anything")
    if _contains_mask(_without_compared_secrets(module, arguments)):
        raise NotRepeatableError(f"{task}: an argument is a secret, which is not kept")
    return call


def changes_nothing(call: Call) -> bool:
    """Whether a call is of those that an apply's log gives: a record may be another's."""
    match (call.kind, call.module):
        case ("system", "setup" | "gather_facts"):
            known = not call.args
        case ("module", module) if call.check:
            known = module in SAFE_IN_CHECK_MODE or module in _own_modules()
        case ("module", "command"):
            known = call.args.keys() == {"_raw_params"} and call.args["_raw_params"] in READING_COMMANDS
        case ("module", "uri"):
            known = call.args.keys() <= READING_REQUEST
        case kind:
            known = kind == ("file", "template")
    return known and call.at in ("", CONTROLLER)


def _own_modules() -> frozenset[str]:
    return frozenset(path.stem for path in (content_root() / "plugins" / "modules").glob("*.py"))


def _without_compared_secrets(module: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the arguments without secrets that the node compares by digest (plugins/probe/replay.py)."""
    files = arguments.get("files")
    if module != "service_files" or not isinstance(files, list):
        return arguments
    return {**arguments, "files": [{key: one[key] for key in one if key != "secret_base64"} for one in files]}


def _contains_mask(value: Any) -> bool:
    if isinstance(value, Mapping):
        return set(value) == {MASK} or any(_contains_mask(part) for part in value.values())
    return isinstance(value, Sequence) and not isinstance(value, str) and any(map(_contains_mask, value))
