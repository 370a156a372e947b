# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see plugins/LICENSE)
"""A node whose driver changes: programs within time limits, files and units, and what was done to them."""

from __future__ import annotations

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.clusterctl.cluster.plugins.module_utils.bounded import late, run_bounded
from ansible_collections.clusterctl.cluster.plugins.module_utils.node_files import read_file, replace_file
from ansible_collections.clusterctl.cluster.plugins.module_utils.service_unit import journal

LIMIT_S = 60
# Fabric Manager trains every link before its unit has started; every kernel gets its initramfs.
LIMITS_S = {
    "systemctl": 600,
    "docker": 120,
    "update-initramfs": 900,
    "dracut": 900,
    "modprobe": 300,
    "rmmod": 120,
}


class Node:
    """The node under change: runs programs, remembers what was done."""

    def __init__(self, module: AnsibleModule, root: Path) -> None:
        self.module = module
        self.root = root
        self.actions: list[str] = []
        self.stopped: list[str] = []
        self.containers: list[str] = []
        self.unloaded: list[str] = []
        self.missing: list[str] = []
        self.late: dict[str, str] = {}

    def run(self, argv: list[str]) -> tuple[int, str, str]:
        """Runs a program within its time limit."""
        code, output, error = run_bounded(argv, LIMITS_S.get(argv[0], LIMIT_S), {"LC_ALL": "C"})
        self.late = self.late or late(code)
        return code, output, error

    def fail(self, msg: str) -> None:
        """Ends the module; a program that did not end in time is the cause."""
        self.module.fail_json(msg=msg, **self.late)

    def do(self, what: str, argv: list[str]) -> tuple[int, str]:
        """Runs a program that changes; in check mode only notes that it would."""
        self.actions.append(what)
        if self.module.check_mode:
            return 0, ""
        code, output, error = self.run(argv)
        return code, (error or output).strip()

    def write(self, path: str, content: str) -> bool:
        """Brings a file to this content, or removes it where that is empty; whether that is a change."""
        file = self.root / path
        if read_file(file) == content:
            return False
        self.actions.append(f"{'write' if content else 'remove'} /{path}")
        if not self.module.check_mode:
            if content:
                replace_file(file, content, 0o644)
            else:
                file.unlink()
        return True

    def stop(self, unit: str) -> None:
        """Stops a unit."""
        self.do(f"stop {unit}", ["systemctl", "stop", f"{unit}.service"])
        self.stopped.append(unit)

    def start(self, unit: str) -> None:
        """Starts a unit; ends the module with its journal where it fails."""
        code, error = self.do(f"start {unit}", ["systemctl", "start", f"{unit}.service"])
        if code != 0:
            self.fail(
                f"{unit} does not start: {(journal(self.run, unit) or error).rstrip('.')}. "
                f"See `journalctl -u {unit}`; driver and Fabric Manager must be of one version."
            )
