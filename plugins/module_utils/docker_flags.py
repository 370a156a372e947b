# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see plugins/LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Flags that Docker's unit gives to dockerd: what a flag says, daemon.json may not say too.

dockerd then refuses to start [moby, daemon/config, findConfigurationConflicts]; a reload does not notice.
"""

from __future__ import annotations

import re
import shlex
from contextlib import suppress
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.clusterctl.cluster.plugins.module_utils.bounded import run_bounded

UNIT = "docker.service"
LOOK_S = 60
# Flags that may be repeated have another name in the file.
KEYS = {
    "H": "hosts", "host": "hosts", "default-ulimit": "default-ulimits", "exec-opt": "exec-opts",
    "registry-mirror": "registry-mirrors", "insecure-registry": "insecure-registries", "label": "labels",
    "storage-opt": "storage-opts", "log-opt": "log-opts", "authorization-plugin": "authorization-plugins",
    "dns-opt": "dns-opts", "default-address-pool": "default-address-pools",
    "cluster-store-opt": "cluster-store-opts", "default-network-opt": "default-network-opts",
    "cdi-spec-dir": "cdi-spec-dirs", "node-generic-resource": "node-generic-resources",
    "D": "debug", "l": "log-level", "s": "storage-driver", "G": "group", "b": "bridge", "g": "data-root",
    "p": "pidfile",
}  # fmt: skip
# Both are merged.
MERGED = frozenset({"runtimes", "add-runtime", "features", "builder"})


def exec_start(unit: str) -> list[str]:
    """The command of a service as `systemctl cat` prints it, with drop-ins: an empty line start again."""
    command: list[str] = []
    for line in re.sub(r"\\\n", " ", unit).splitlines():
        key, _, value = line.partition("=")
        if key.strip() == "ExecStart":
            try:
                command = shlex.split(value)
            except ValueError:
                command = value.split()
    return command


def command_of_unit(module: AnsibleModule, pid: int) -> list[str]:
    """How systemd starts Docker; what a variable of the unit holds is known from the process that runs."""
    systemctl = module.get_bin_path("systemctl")
    command = exec_start(run_bounded([systemctl, "cat", UNIT], LOOK_S)[1]) if systemctl else []
    if pid and any(word.startswith("$") for word in command):
        with suppress(OSError):
            command += Path(f"/proc/{pid}/cmdline").read_text(encoding="utf-8").rstrip("\0").split("\0")[1:]
    return command


def flags_of(command: list[str]) -> dict[str, list[str]]:
    """Values of the flags by the key that they have in daemon.json; "true" for a flag without a value."""
    found: dict[str, list[str]] = {}
    words = command[1:]
    for number, word in enumerate(words):
        if not word.startswith("-") or word == "--":
            continue
        name, equals, value = word.lstrip("-").partition("=")
        following = words[number + 1] if number + 1 < len(words) else "-"
        if not equals:
            value = "true" if following.startswith(("-", "$")) else following
        if name not in MERGED:
            found.setdefault(KEYS.get(name, name), []).append(value)
    return found


def said_already(key: str, wanted: Any, values: list[str]) -> bool:
    """Whether flags with these values say all that is wanted of a key."""
    if isinstance(wanted, list):
        return {str(item).rstrip("/") for item in wanted} <= {value.rstrip("/") for value in values}
    if key == "default-ulimits" and isinstance(wanted, dict):
        return {_ulimit(name, each) for name, each in wanted.items()} <= set(map(_whole_ulimit, values))
    if isinstance(wanted, dict):
        return {f"{name}={value}" for name, value in wanted.items()} <= set(values)
    if isinstance(wanted, bool):
        return values[-1] == str(wanted).lower()
    return isinstance(wanted, (str, int)) and values[-1] == str(wanted)


def _ulimit(name: str, limit: Any) -> str:
    return f"{name}={limit.get('Soft')}:{limit.get('Hard')}" if isinstance(limit, dict) else name


def _whole_ulimit(value: str) -> str:
    """With both limits: one number is soft and hard."""
    name, _, limits = value.partition("=")
    return value if ":" in limits else f"{name}={limits}:{limits}"
