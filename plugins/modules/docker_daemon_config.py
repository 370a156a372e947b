#!/usr/bin/python
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see plugins/LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Merge keys into Docker's daemon.json, and have the daemon take them with the least disturbance."""

from __future__ import annotations

import copy
import json
import stat
import tempfile
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.clusterctl.cluster.plugins.module_utils.bounded import run_bounded
from ansible_collections.clusterctl.cluster.plugins.module_utils.docker_daemon import (
    RELOADABLE,
    Daemon,
    blame,
    restart_keys,
    unmet,
)
from ansible_collections.clusterctl.cluster.plugins.module_utils.docker_flags import (
    UNIT,
    command_of_unit,
    flags_of,
    said_already,
)
from ansible_collections.clusterctl.cluster.plugins.module_utils.masking import mask_urls, mask_values
from ansible_collections.clusterctl.cluster.plugins.module_utils.node_files import keep_copy, replace_file
from ansible_collections.clusterctl.cluster.plugins.module_utils.service_unit import newer

DOCUMENTATION = r"""
module: docker_daemon_config
short_description: Merge keys into Docker's daemon.json and apply them with the least disturbance
description:
  - Merges O(options) into the file; what an operator put there stays, and a backup is kept.
  - Where a password is among O(options), other users cannot read the file.
  - Reloads the daemon where a reload serves. Restarts it only where it must, and never under running
    containers unless live-restore keeps them alive or O(force_busy) allows it;
    it says so and tries again next time.
  - Refuses options that Docker's unit gives as flags with other values: Docker would not start any more.
  - Looks at the running daemon, not at what was asked, so that an interrupted run is completed by the next.
options:
  path: {description: The file, type: path, default: /etc/docker/daemon.json}
  options: {description: Keys to merge, type: dict, default: {}}
  asked_by: {description: "Those of O(options) by the setting that asks for each", type: dict, default: {}}
  without: {description: "Items of ours to take out of lists, by key", type: dict, default: {}}
  optional:
    description: Keys of O(options) that are omitted, with a warning, if a flag of the unit has another value.
    type: list
    elements: str
    default: []
  reads_at_start:
    description: Files that the daemon reads only when it starts; a newer one wants a restart.
    type: list
    elements: path
    default: []
  needs_at_start:
    description: Programs that the daemon looks for only when it starts; it must have started after they came.
    type: list
    elements: path
    default: []
  restart_for:
    description: Further reasons to restart, for what the daemon cannot tell by itself
    type: list
    elements: str
    default: []
  force_busy: {description: Restart although containers would stop, type: bool, default: false}
author: ["the clusterctl authors"]
"""

EXAMPLES = r"""
- name: Register NVIDIA's runtime
  clusterctl.cluster.docker_daemon_config:
    options: {runtimes: {nvidia: {path: nvidia-container-runtime, args: []}}}
"""

RETURN = r"""
keys: {description: The keys that are not as wanted in the file, returned: always, type: list}
changed_file: {description: Whether the file had to be changed, returned: always, type: bool}
action: {description: "none, reload, restart or pending", returned: always, type: str}
because: {description: Why the daemon was or must be restarted, returned: always, type: list}
backup_file: {description: Copy of the file as it was, returned: when it was replaced, type: str}
code:
  description: "Stable code of the failure: host.docker-down"
  returned: when the cause is known
  type: str
"""


OPERATORS_SETTING = "container_runtime_daemon_options"
OTHERS = 0o007


def merge(current: Any, wanted: Any) -> Any:
    """`wanted` laid over `current`: dictionaries by key, lists by item (`name=value` items by name)."""
    if isinstance(current, dict) and isinstance(wanted, dict):
        merged = copy.deepcopy(current)
        for key, value in wanted.items():
            merged[key] = merge(current[key], value) if key in current else copy.deepcopy(value)
        return merged
    if isinstance(current, list) and isinstance(wanted, list):
        names = {name for item in wanted if (name := _option_name(item))}
        kept = [item for item in current if item in wanted or _option_name(item) not in names]
        return kept + [item for item in wanted if item not in kept]
    return copy.deepcopy(wanted)


def without_items(config: dict[str, Any], gone: dict[str, list[str]]) -> dict[str, Any]:
    """`config` less the items of `gone` in its lists.

    A list that is left empty stays: a reload resets only what the file names.
    """
    kept = dict(config)
    for key, items in gone.items():
        if isinstance(kept.get(key), list):
            kept[key] = [item for item in kept[key] if str(item).rstrip("/") not in items]
    return kept


def _option_name(item: Any) -> str | None:
    return item.split("=", 1)[0] if isinstance(item, str) and "=" in item else None


def changed_keys(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """Names of the top-level keys that differ; of `features`, each feature by its own name."""
    keys = []
    for key in sorted(before.keys() | after.keys()):
        old, new = before.get(key), after.get(key)
        if old == new:
            continue
        if key == "features":
            old, new = old or {}, new or {}
            keys += [
                f"features.{name}"
                for name in sorted(old.keys() | new.keys())
                if old.get(name) != new.get(name)
            ]
        else:
            keys.append(key)
    return keys


def taken_by_a_reload(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """`before` with those changes to `after` that a reload takes: the rest waits for its restart."""
    taken = copy.deepcopy(before)
    for name in changed_keys(before, after):
        if name not in RELOADABLE:
            continue
        key, _, feature = name.partition(".")
        source, target = (after.get(key) or {}, taken.setdefault(key, {})) if feature else (after, taken)
        if (feature or key) in source:
            target[feature or key] = source[feature or key]
        else:
            target.pop(feature or key, None)
    return taken


def only_changes(before: dict[str, Any], after: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """What differs, on both sides: what an operator put next to it is nobody's to read in a log."""
    old, new = {}, {}
    for key in before.keys() | after.keys():
        one, other = before.get(key), after.get(key)
        if one == other and (key in before) == (key in after):
            continue
        if isinstance(one, dict) and isinstance(other, dict):
            one, other = only_changes(one, other)
        if key in before:
            old[key] = one
        if key in after:
            new[key] = other
    return mask_values(old), mask_values(new)


def read_config(path: Path) -> dict[str, Any]:
    """The file's content, {} when there is none. Raises ValueError when it is not a JSON object."""
    if not path.exists() or not path.read_text(encoding="utf-8").strip():
        return {}
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise ValueError(
            f"{path}:{error.lineno} is not JSON ({error.msg}); correct it; it was not changed"
        ) from error
    if not isinstance(content, dict):
        raise ValueError(f"{path} holds no JSON object; correct it; it was not changed")  # noqa: TRY004 (one kind)
    return content


def as_text(config: dict[str, Any]) -> str:
    """The file as we write it."""
    return json.dumps(config, indent=2, ensure_ascii=False) + "\n"


def start_reasons(daemon: Daemon, reads: list[str], needs: list[str], state: dict[str, Any]) -> list[str]:
    """Why the daemon must start again because of files that it looks at only when it starts."""
    reasons = [f"{name} changed after the daemon started" for name in newer(reads, daemon.started)]
    for name in needs:
        if not Path(name).exists() or name in state["seen"]:
            continue
        if newer([name], daemon.started):
            reasons.append(f"{name} came after the daemon started")
        else:
            state["seen"].append(name)
    return reasons


def without_flags(options: dict[str, Any], flags: dict[str, list[str]]) -> tuple[dict[str, Any], list[str]]:
    """The options that no flag of Docker's unit has, and the keys of those that a flag contradicts."""
    free = {key: value for key, value in options.items() if key not in flags}
    both = options.keys() & flags.keys()
    return free, sorted(key for key in both if not said_already(key, options[key], flags[key]))


def asking_settings(asked_by: dict[str, dict[str, Any]], keys: list[str]) -> list[str]:
    """The settings that ask for one of these keys, each with the keys."""
    asked = {setting: sorted(options.keys() & set(keys)) for setting, options in asked_by.items()}
    return [f"{setting} for {', '.join(names)}" for setting, names in asked.items() if names]


def refuse_contradictions(module: AnsibleModule, keys: list[str]) -> None:
    """Fail for keys that the file and a flag of the unit would both have, with different values."""
    if keys:
        module.fail_json(
            msg=f"Docker's unit has flags for {', '.join(keys)}: if {module.params['path']} sets that too, "
            "Docker does not start at its next restart. Nothing was changed.",
            clusterctl={
                "remedy": f"keep one: the command line (systemctl cat {UNIT}), the file or the setting "
                f"({', '.join([OPERATORS_SETTING, *asking_settings(module.params['asked_by'], keys)])})"
            },
        )


def refuse_invalid(module: AnsibleModule, text: str) -> None:
    """Have dockerd itself look at the file, where it can (from version 23 on), before it takes its place."""
    dockerd = module.get_bin_path("dockerd")
    if not dockerd or "--validate" not in run_bounded([dockerd, "--help"], 60)[1]:
        return
    with tempfile.NamedTemporaryFile("w", suffix=".json", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        code, output, errors = run_bounded([dockerd, "--validate", "--config-file", file.name], 60)
    if code != 0:
        told = mask_urls(errors or output).replace(file.name, module.params["path"]).strip()
        module.fail_json(msg=f"Docker refuses these options: {told[-500:]}. Nothing was changed.")


def write(path: Path, text: str, new_mode: int = 0o644) -> str | None:
    """Replace the file atomically; returns the name of the backup of what was there, whose mode stays."""
    if not path.exists():
        replace_file(path, text, new_mode)
        return None
    backup = keep_copy(path)
    replace_file(path, text)
    return backup


def restart(module: AnsibleModule, daemon: Daemon, path: Path, result: dict[str, Any]) -> None:
    """Restart; where the daemon refuses what this run wrote, put the old file back, start it and fail."""
    if daemon.control("restart") == 0:
        return
    journal = daemon.journal()
    if not result["changed_file"]:
        module.fail_json(
            msg=f"Docker did not start: {blame(journal)}. {path} is as it was; Docker had to restart: "
            f"{'; '.join(result['because'])}.",
            clusterctl={"remedy": f"correct what the message names, then `systemctl restart {UNIT}`"},
            stderr_lines=journal,
        )
    if backup := result.get("backup_file"):
        module.atomic_move(backup, str(path))
    else:
        path.unlink(missing_ok=True)
    run_bounded(["systemctl", "reset-failed", UNIT], 60)
    again = "runs again" if daemon.control("restart") == 0 else "does not start with it either"
    module.fail_json(
        msg=f"Docker did not start with the new {path}: {blame(journal)}. "
        f"The change was undone, and Docker {again}.",
        clusterctl={"remedy": "correct the daemon options that the message names"},
        stderr_lines=journal,
    )


def must_wait(module: AnsibleModule, daemon: Daemon) -> bool:
    """Whether a restart now would stop containers, and nobody allowed that."""
    keeps = daemon.info.get("LiveRestoreEnabled") or module.params["options"].get("live-restore")
    return bool(daemon.info.get("ContainersRunning")) and not keeps and not module.params["force_busy"]


def apply(
    module: AnsibleModule, daemon: Daemon, result: dict[str, Any], state: dict[str, Any], *, waits: bool
) -> None:
    """Bring the running daemon to what is wanted; fills `result`. ``waits``: a restart must not be now."""
    options, path = module.params["options"], Path(module.params["path"])
    gone = module.params["without"]
    lacking = unmet(options, daemon.info, gone)
    reads, needs = module.params["reads_at_start"], module.params["needs_at_start"]
    reasons = [
        *state["pending"],
        *restart_keys(result["keys"]),
        *lacking["restart"],
        *module.params["restart_for"],
    ]
    reasons = sorted({*reasons, *start_reasons(daemon, reads, needs, state)})
    if any(key in RELOADABLE for key in result["keys"]) or lacking["reload"]:
        result.update(action="reload", changed=True)
        if not module.check_mode:
            daemon.control("reload")
            still = daemon.settle({k: value for k, value in options.items() if k != "features"}, gone)
            reasons += [f"{name} was not taken by a reload" for name in still]
            # What was to keep containers alive may not have been taken.
            running = daemon.info.get("ContainersRunning") and not daemon.info.get("LiveRestoreEnabled")
            waits = waits or bool(running and not module.params["force_busy"])
    if reasons:
        running = int(daemon.info.get("ContainersRunning") or 0)
        result["because"] = reasons
        if waits:
            those = "a container that runs" if running == 1 else f"{running} containers that run"
            why = f"Docker must restart ({'; '.join(reasons)}), which would stop {those}"
            result["action"] = "pending"
            result["clusterctl"] = {"busy": why}
            module.warn(f"{why}. It was left running; apply again when they are done, or set live-restore.")
            # What the file does not say yet is found again by it.
            state["pending"] = [name for name in reasons if name not in restart_keys(result["keys"])]
        else:
            result.update(action="restart", changed=True)
            if not module.check_mode:
                restart(module, daemon, path, result)
                if still := daemon.settle(options, gone):
                    module.fail_json(msg=f"Docker restarted, but does not show {', '.join(still)}", **result)
                state = daemon.recall()
                state["seen"] = [name for name in module.params["needs_at_start"] if Path(name).exists()]
    if not module.check_mode:
        daemon.remember(state)


def main() -> None:
    """Ansible's entry."""
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "default": "/etc/docker/daemon.json"},
            "options": {"type": "dict", "default": {}},
            "asked_by": {"type": "dict", "default": {}},
            "without": {"type": "dict", "default": {}},
            "optional": {"type": "list", "elements": "str", "default": []},
            "reads_at_start": {"type": "list", "elements": "path", "default": []},
            "needs_at_start": {"type": "list", "elements": "path", "default": []},
            "restart_for": {"type": "list", "elements": "str", "default": []},
            "force_busy": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    path = Path(module.params["path"])
    try:
        before = read_config(path)
    except ValueError as error:
        module.fail_json(msg=str(error))
    daemon = Daemon(module)
    # Not to be taken for a daemon without containers; the file waits for it too, or its change would be lost.
    if daemon.pid and not daemon.info:
        module.fail_json(
            msg="Docker runs and does not answer. Look at `journalctl -u docker`.", code="host.docker-down"
        )
    flags = flags_of(command_of_unit(module, daemon.pid))
    options, contradicted = without_flags(module.params["options"], flags)
    left_out = [key for key in contradicted if key in module.params["optional"]]
    for key in left_out:
        module.warn(f"{key} is left to the flag of Docker's unit: {' '.join(flags[key])}")
    refuse_contradictions(module, [key for key in contradicted if key not in left_out])
    # Keys that are in the file already count too: an earlier version wrote some that a flag has.
    kept, contradicted = without_flags(without_items(before, module.params["without"]), flags)
    refuse_contradictions(module, contradicted)
    after = merge(kept, options)
    # The daemon that runs has what a flag sets: only the file changes then.
    taken = {key: value for key, value in before.items() if key not in flags}
    keys = changed_keys(taken, after)
    # A file that asks for a restart comes with it: nobody is there to see it fail at the next boot.
    waits = bool(daemon.pid) and must_wait(module, daemon)
    written = taken_by_a_reload(taken, after) if waits else after
    changed = bool(changed_keys(before, written))
    has_secret = mask_values(options) != options
    is_open = has_secret and path.exists() and bool(path.stat().st_mode & OTHERS)
    result: dict[str, Any] = {
        "changed": changed or is_open, "changed_file": changed, "keys": keys, "action": "none", "because": [],
    }  # fmt: skip
    if is_open and not module.check_mode:
        path.chmod(stat.S_IMODE(path.stat().st_mode) & ~OTHERS)
    if changed:
        old, new = only_changes(before, written)
        result["diff"] = {
            "before_header": str(path),
            "after_header": str(path),
            "before": as_text(old) if old else "",
            "after": as_text(new),
        }
        refuse_invalid(module, as_text(after))
        new_mode = 0o600 if has_secret else 0o644
        if not module.check_mode and (backup := write(path, as_text(written), new_mode)):
            result["backup_file"] = backup
    if daemon.pid:
        apply(module, daemon, result, daemon.recall(), waits=waits)
    elif module.check_mode and module.params["restart_for"]:
        # By then its package has installed and started it.
        result.update(action="restart", changed=True, because=module.params["restart_for"])
    module.exit_json(**result)


if __name__ == "__main__":
    main()
