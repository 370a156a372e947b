"""What an apply asked of hosts, as the callback wrote it down, and whether one look can ask it again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from clusterctl.content import content_root

HERE = "localhost"
PREFLIGHT = "node_preflight"
# Decide and say things on the controller, from what is in the record besides.
OF_THE_CONTROLLER = frozenset(
    {"assert", "fail", "debug", "meta", "set_fact", "include_vars", "include_tasks", "include_role",
     "import_tasks", "import_role", "validate_argument_spec"}
)  # fmt: skip
# Follow on what a look has found (``wanted``, or a plan of what to do): not asked of a host that is done.
CONSEQUENCES = frozenset({"async_status", "reboot"})
# Ansible's own that change nothing in check mode, or look alone.
BUILTIN = frozenset({"file", "lineinfile", "stat"})
LOOKING = frozenset({"command", "uri"})
# Arguments that say what a change has just done: not so when nothing has been changed.
PASSING: Mapping[str, Mapping[str, Any]] = {
    "nvidia_driver_activate": {"changed_packages": []},
    "docker_daemon_config": {"restart_for": []},
}
HIDDEN = "sha256"


class CannotAskError(Exception):
    """A call that cannot be asked again in one look; says which and why."""


@dataclass(frozen=True)
class Call:
    """One thing to ask. ``at`` is empty for the host, or `HERE`; ``kind`` is one of those of replay.py."""

    at: str
    task: str
    kind: str
    module: str
    args: Mapping[str, Any]
    check: bool = True
    times: int = 1

    @property
    def identity(self) -> str:
        """Equal for calls that ask the same."""
        asked = json.dumps([self.kind, self.module, self.args, self.check], sort_keys=True)
        return hashlib.sha256(asked.encode()).hexdigest()[:16]


def of_host(host: str, told: Iterable[Mapping[str, Any]]) -> tuple[Call, ...]:
    """What to ask of one host: its own calls, and those of the controller that any host of it wanted.

    Raises CannotAskError where one of them cannot be asked again.
    """
    merged: dict[tuple[str, str], Call] = {}
    for one in told:
        if one["host"] != host and one["at"] != HERE:
            continue
        call = _call(one)
        if call is None:
            continue
        key = (call.at, call.identity)
        merged[key] = replace(merged[key], times=merged[key].times + 1) if key in merged else call
    if not any(call.module == PREFLIGHT for call in merged.values()):
        raise CannotAskError("it was not written down what was asked of it")
    return tuple(merged.values())


def _call(told: Mapping[str, Any]) -> Call | None:
    """One call to ask again; None for what asks nothing of any host."""
    module, task = str(told["module"]), str(told["task"])
    if module in OF_THE_CONTROLLER or module in CONSEQUENCES or told["job"]:
        return None
    if told["failed"]:
        raise CannotAskError(f"{task}: it failed and was rescued")
    if told["hidden"]:
        raise CannotAskError(f"{task}: it is under no_log")
    if told["at"] not in ("", HERE):
        raise CannotAskError(f"{task}: it is delegated to {told['at']}")
    at = HERE if told["at"] else ""
    if module in ("setup", "gather_facts"):
        return Call(at, task, "system", module, {})
    if module == "template":
        if not told.get("file", {}).get("checksum"):
            raise CannotAskError(f"{task}: nothing is known of the file's content")
        return Call(at, task, "file", module, told["file"])
    if "args" not in told:
        raise CannotAskError(f"{task}: it did not say what it was asked")
    arguments = {**told["args"], **PASSING.get(module, {})}
    if module == "uri" and str(arguments.get("method", "GET")) != "GET":
        raise CannotAskError(f"{task}: it does more than look")
    looks = module in LOOKING
    if not (module in BUILTIN or (looks and (told["looks"] or module == "uri")) or module in _ours()):
        raise CannotAskError(f"{task}: {module} cannot be asked without changing anything")
    if _holds_secret(_without_compared(module, arguments)):
        raise CannotAskError(f"{task}: an argument is a secret that was not kept")
    return Call(at, task, "module", module, arguments, check=not looks)


def _ours() -> frozenset[str]:
    return frozenset(path.stem for path in (content_root() / "plugins" / "modules").glob("*.py"))


def _without_compared(module: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    """All but the secrets that the node itself compares by their digest (``with_secret`` in replay.py)."""
    files = arguments.get("files")
    if module != "service_files" or not isinstance(files, list):
        return arguments
    return {**arguments, "files": [{key: one[key] for key in one if key != "secret_base64"} for one in files]}


def _holds_secret(value: Any) -> bool:
    if isinstance(value, Mapping):
        return set(value) == {HIDDEN} or any(_holds_secret(part) for part in value.values())
    return isinstance(value, Sequence) and not isinstance(value, str) and any(map(_holds_secret, value))
