# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see plugins/LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The running dockerd: what it shows, what it takes by a reload, and what it was told already."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.clusterctl.cluster.plugins.module_utils.bounded import run_bounded
from ansible_collections.clusterctl.cluster.plugins.module_utils.docker_flags import UNIT
from ansible_collections.clusterctl.cluster.plugins.module_utils.masking import mask_urls
from ansible_collections.clusterctl.cluster.plugins.module_utils.node_files import replace_file
from ansible_collections.clusterctl.cluster.plugins.module_utils.service_unit import (
    main_pid,
    show,
    started_at,
)

# https://docs.docker.com/reference/cli/dockerd/#configuration-reload-behavior
CGROUP_DRIVER = "native.cgroupdriver="
RELOADABLE = frozenset(
    {
        "debug",
        "labels",
        "live-restore",
        "max-concurrent-downloads",
        "max-concurrent-uploads",
        "max-download-attempts",
        "default-runtime",
        "runtimes",
        "authorization-plugins",
        "insecure-registries",
        "registry-mirrors",
        "shutdown-timeout",
        "features.buildkit",
    }
)
STATE = Path("/run/clusterctl/docker.json")
SETTLE_S = 20.0
LOOK_S = 30
# The unit's own limits are shorter; containers get their time to stop.
CONTROL_S = 600


def restart_keys(keys: list[str]) -> list[str]:
    """Those of `keys` that a running daemon does not take by a reload."""
    return [key for key in keys if key not in RELOADABLE]


def unmet(
    options: dict[str, Any], info: dict[str, Any], gone: dict[str, list[str]] | None = None
) -> dict[str, list[str]]:
    """What the running daemon (`docker info`) lacks of `options`, and still has of `gone`.

    Returns {"reload": [...], "restart": [...]}.
    """
    lacking: dict[str, list[str]] = {"reload": [], "restart": []}
    runtimes = info.get("Runtimes") or {}
    for name, runtime in (options.get("runtimes") or {}).items():
        if name not in runtimes or runtimes[name].get("path") != runtime.get("path"):
            lacking["reload"].append(f"runtimes.{name}")
    mirrors = {url.rstrip("/") for url in (info.get("RegistryConfig") or {}).get("Mirrors") or []}
    for url in options.get("registry-mirrors") or []:
        if url.rstrip("/") not in mirrors:
            lacking["reload"].append(f"registry-mirrors {mask_urls(url)}")
    for url in (gone or {}).get("registry-mirrors") or []:
        if url.rstrip("/") in mirrors:
            lacking["reload"].append(f"registry-mirrors without {mask_urls(url)}")
    if "live-restore" in options and bool(options["live-restore"]) != bool(info.get("LiveRestoreEnabled")):
        lacking["reload"].append("live-restore")
    if "default-runtime" in options and options["default-runtime"] != info.get("DefaultRuntime"):
        lacking["reload"].append("default-runtime")
    if (options.get("features") or {}).get("cdi") and not info.get("CDISpecDirs"):
        lacking["restart"].append("features.cdi")
    drivers = [
        word.partition("=")[2] for word in options.get("exec-opts") or [] if word.startswith(CGROUP_DRIVER)
    ]
    if drivers and drivers[-1] != info.get("CgroupDriver"):
        lacking["restart"].append(f"{CGROUP_DRIVER}{drivers[-1]}")
    return lacking


def blame(journal: list[str]) -> str:
    """The daemon's own last word on why it did not start, without the unit manager's lines around it."""
    lines = [
        line
        for line in journal
        if not line.startswith(("docker.service", "Failed to start", "Start", "Stop"))
    ]
    errors = [line for line in lines if "level=info" not in line and "level=warning" not in line]
    return (errors or lines or ["its journal says nothing"])[-1]


class Daemon:
    """The running dockerd, and what must outlive one run about it: until when it has been told what."""

    def __init__(self, module: AnsibleModule) -> None:
        self.module = module
        self.refresh()

    def refresh(self) -> None:
        """Look again: process, start time, `docker info`."""
        self.pid = main_pid(self.module, UNIT) if self.module.get_bin_path("docker") else 0
        self.started = started_at(self.pid) if self.pid else 0.0
        self.info = self._info() if self.pid else {}

    def _info(self) -> dict[str, Any]:
        rc, out, _ = run_bounded(["docker", "info", "--format", "{{json .}}"], LOOK_S)
        return json.loads(out) if rc == 0 and out.startswith("{") else {}

    def recall(self) -> dict[str, Any]:
        """What earlier runs left about this very process."""
        try:
            state = json.loads(STATE.read_text(encoding="utf-8"))
        except (FileNotFoundError, json.JSONDecodeError):
            state = {}
        return state if state.get("pid") == self.pid else {"pid": self.pid, "seen": [], "pending": []}

    def remember(self, state: dict[str, Any]) -> None:
        """Keep `state` for the next run; /run forgets it with the daemon at a reboot."""
        replace_file(STATE, json.dumps({**state, "pid": self.pid}), 0o644)

    def control(self, verb: str) -> int:
        """`systemctl VERB docker.service`, units read again first where needed. Its exit code."""
        stale = show(self.module, UNIT, "NeedDaemonReload").get("NeedDaemonReload") == "yes"
        if verb == "restart" and stale:
            run_bounded(["systemctl", "daemon-reload"], CONTROL_S)
        return run_bounded(["systemctl", verb, UNIT], CONTROL_S)[0]

    def journal(self) -> list[str]:
        """The last lines that the daemon's unit wrote."""
        command = ["journalctl", "-u", UNIT, "-n", "20", "--no-pager", "-o", "cat"]
        return mask_urls(run_bounded(command, LOOK_S)[1]).splitlines()

    def settle(self, options: dict[str, Any], gone: dict[str, list[str]]) -> list[str]:
        """Wait until the daemon shows `options` and nothing of `gone`; what is wrong after `SETTLE_S`."""
        deadline = time.monotonic() + SETTLE_S
        while True:
            self.refresh()
            lacking = (
                sorted(name for names in unmet(options, self.info, gone).values() for name in names)
                if self.info
                else ["an answer"]
            )
            if not lacking or time.monotonic() > deadline:
                return lacking
            time.sleep(0.2)
