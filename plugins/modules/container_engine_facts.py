#!/usr/bin/python
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see plugins/LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What the container engine on this host is and can do, in one look; an absent one is an answer."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.clusterctl.cluster.plugins.module_utils.bounded import TIMED_OUT, run_bounded
from ansible_collections.clusterctl.cluster.plugins.module_utils.docker_flags import (
    UNIT,
    command_of_unit,
    flags_of,
)
from ansible_collections.clusterctl.cluster.plugins.module_utils.kubernetes_node import has_kubelet
from ansible_collections.clusterctl.cluster.plugins.module_utils.service_unit import main_pid

DOCUMENTATION = r"""
module: container_engine_facts
short_description: Read what the container engine on this host is and can do
description:
  - Reads the version of Docker, what it was configured for and whether containers run. Changes nothing.
options:
  adopt: {description: Packages of somebody else's engine, type: list, elements: str, default: []}
author: ["the clusterctl authors"]
"""

EXAMPLES = r"""
- name: Look at the engine
  clusterctl.cluster.container_engine_facts:
  register: engine
"""

RETURN = r"""
engine:
  description: >-
    version ("" when absent), running, cdi (never, option, default), runtimes, cgroup driver, the one that
    daemon.json or a flag of the unit asks for, image store, selinux (it confines containers); adopted (one of
    O(adopt) is installed), kubelet (this is a node of Kubernetes), and reload_keeps_devices (from 29.2 on,
    daemon-reload takes no GPU from a container)
  returned: always
  type: dict
code:
  description: "Stable code of the failure: host.docker-down"
  returned: when the cause is known
  type: str
"""


LOOK_S = 60
CONFIG = Path("/etc/docker/daemon.json")


def version_tuple(version: str) -> tuple[int, ...]:
    """`26.1.5+dfsg1` -> (26, 1, 5); () when there is none."""
    found = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(int(part) for part in found.group().split(".")) if found else ()


def cdi_support(version: str) -> str:
    """How an engine of `version` knows CDI: `never`, by `option` (from 25), by `default` (28.2)."""
    numbers = version_tuple(version)
    if numbers >= (28, 2):
        return "default"
    return "option" if numbers >= (25,) else "never"


def is_adopted(packages: list[str], root: Path = Path("/")) -> bool:
    """Whether one of these packages is installed."""
    try:
        status = (root / "var/lib/dpkg/status").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return any(run_bounded(["rpm", "--quiet", "--query", name], LOOK_S)[0] == 0 for name in packages)
    installed = re.findall(r"^Package: (\S+)\nStatus: \S+ \S+ installed$", status, re.MULTILINE)
    return not set(packages).isdisjoint(installed)


def asked_cgroup_driver(path: Path, flags: list[str]) -> str:
    """The cgroup driver that daemon.json or a flag of the unit asks for; "" if neither does."""
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
        words = [*flags, *(str(word) for word in config.get("exec-opts") or [])]
    except (OSError, ValueError, AttributeError, TypeError):
        words = flags
    found = [word.partition("=")[2] for word in words if word.startswith("native.cgroupdriver=")]
    return found[-1] if found else ""


def facts(client_version: str, info: dict[str, Any], asked: str = "") -> dict[str, Any]:
    """The answer, from `docker info`, or `docker --version` without a daemon, and the cgroup driver asked."""
    found = re.search(r"version ([^,\s]+)", client_version)
    version = info.get("ServerVersion") or (found.group(1) if found else "")
    storage = dict(row for row in info.get("DriverStatus") or [] if len(row) == 2)
    return {
        "version": version,
        "running": bool(info.get("ServerVersion")),
        "cdi": cdi_support(version),
        "runtimes": sorted(info.get("Runtimes") or {}),
        "cgroup_driver": str(info.get("CgroupDriver") or ""),
        "cgroup_driver_asked": asked,
        "reload_keeps_devices": version_tuple(version) >= (29, 2),
        "containers_running": int(info.get("ContainersRunning") or 0),
        "live_restore": bool(info.get("LiveRestoreEnabled")),
        # Only where the daemon was told to, by selinux-enabled.
        "selinux": any("name=selinux" in str(option) for option in info.get("SecurityOptions") or []),
        "image_store_containerd": "containerd" in storage.get("driver-type", ""),
    }


def main() -> None:
    """Ansible's entry."""
    module = AnsibleModule(
        argument_spec={
            "adopt": {"type": "list", "elements": "str", "default": []},
        },
        supports_check_mode=True,
    )
    docker = module.get_bin_path("docker")
    client, info = "", {}
    if docker:
        rc, out, err = run_bounded([docker, "info", "--format", "{{json .}}"], LOOK_S)
        if rc == TIMED_OUT:  # not to be taken for an engine without containers
            module.fail_json(
                msg=f"Docker does not answer: {err}. Look at `systemctl status docker`.",
                code="host.docker-down",
            )
        info = json.loads(out) if rc == 0 and out.startswith("{") else {}
        client = "" if info.get("ServerVersion") else run_bounded([docker, "--version"], LOOK_S)[1]
    flags = flags_of(command_of_unit(module, main_pid(module, UNIT) if info else 0)).get("exec-opts", [])
    found = facts(client, info, asked_cgroup_driver(CONFIG, flags))
    module.exit_json(
        changed=False,
        engine={**found, "adopted": is_adopted(module.params["adopt"]), "kubelet": has_kubelet()},
    )


if __name__ == "__main__":
    main()
