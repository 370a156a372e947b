#!/usr/bin/python
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see plugins/LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A service's files and units in one look: written where they differ, units running with what was written."""

from __future__ import annotations

import stat
from base64 import b64decode
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.clusterctl.cluster.plugins.module_utils.bounded import late, run_bounded
from ansible_collections.clusterctl.cluster.plugins.module_utils.masking import mask_urls
from ansible_collections.clusterctl.cluster.plugins.module_utils.node_files import replace_file
from ansible_collections.clusterctl.cluster.plugins.module_utils.rpm_database import has_rpm
from ansible_collections.clusterctl.cluster.plugins.module_utils.service_unit import (
    main_pid,
    newer,
    show,
    started_at,
)

DOCUMENTATION = r"""
module: service_files
short_description: Write a service's files and have its units run with them
description:
  - Writes the files that differ, each atomically, then enables and starts the units.
  - A unit that started before one of the files changed is restarted, also after an interrupted run.
options:
  files:
    description: The files
    type: list
    elements: dict
    required: true
    suboptions:
      path: {description: The file, type: path, required: true}
      content: {description: Its text, type: str}
      secret_base64:
        description:
          - Its text in Base64; shown nowhere.
          - Ansible masks a value where it finds it in what it logs; text of several lines is escaped there.
        type: str
      mode: {description: Its mode, type: str, default: "0644"}
  units: {description: Units that run with these files, type: list, elements: str, default: []}
  restart: {description: Restart units that run with older files, type: bool, default: true}
author: ["the clusterctl authors"]
"""

EXAMPLES = r"""
- name: Configure a daemon
  clusterctl.cluster.service_files:
    files:
      - {path: /etc/example.yml, content: "{{ lookup('ansible.builtin.template', 'example.yml.j2') }}"}
      - path: /etc/example.key
        secret_base64: "{{ lookup('ansible.builtin.file', 'example.key') | b64encode }}"
        mode: "0600"
    units: [example.service]
"""

RETURN = r"""
written: {description: Files that changed, returned: always, type: list}
started: {description: Units that were enabled or started or restarted, returned: always, type: list}
code:
  description: "Stable code of the failure: task.timed-out"
  returned: when the cause is known
  type: str
"""

UNIT_DIRECTORY = "/etc/systemd/system/"


def text_of(file: dict[str, Any]) -> str:
    """The file's text as it is to be, with a line's end at its end."""
    secret = file["secret_base64"]
    text = b64decode(secret).decode() if secret is not None else file["content"] or ""
    return text if text.endswith("\n") else f"{text}\n"


def differs(file: dict[str, Any]) -> bool:
    """Whether the file on disk is another, or of another mode."""
    path = Path(file["path"])
    if not path.is_file() or path.is_symlink():
        return True
    mode = stat.S_IMODE(path.stat().st_mode)
    return mode != int(file["mode"], 8) or path.read_text(encoding="utf-8") != text_of(file)


def difference(file: dict[str, Any]) -> dict[str, str]:
    """Before and after of one file; of a secret only that it changes."""
    path = Path(file["path"])
    header = {"before_header": str(path), "after_header": str(path)}
    if file["secret_base64"] is not None:
        return {**header, "before": "", "after": "(a secret)\n"}
    before = path.read_text(encoding="utf-8") if path.is_file() else ""
    return {**header, "before": mask_urls(before), "after": mask_urls(text_of(file))}


def lacking(module: AnsibleModule, unit: str, paths: list[str]) -> list[str]:
    """What systemctl must do so that the unit is enabled and runs with these files."""
    state = show(module, unit, "UnitFileState", "ActiveState")
    verbs = [] if state.get("UnitFileState") == "enabled" else ["enable"]
    pid = main_pid(module, unit)
    if state.get("ActiveState") != "active" or not pid:
        return [*verbs, "restart"]
    return [*verbs, "restart"] if newer(paths, started_at(pid)) else verbs


def started_by_package(module: AnsibleModule, unit: str, files: list[dict[str, Any]]) -> bool:
    """Whether a unit is neither there nor among our files: its package's installer will start it.

    Only in check mode: else the package is there by now. RPMs leave that to the administrator.
    """
    ours = any(file["path"] == f"{UNIT_DIRECTORY}{unit}" for file in files)
    if ours or has_rpm(Path("/")):
        return False
    return show(module, unit, "LoadState").get("LoadState") in (None, "not-found")


def main() -> None:
    """Ansible's entry."""
    module = AnsibleModule(
        argument_spec={
            "files": {
                "type": "list",
                "elements": "dict",
                "required": True,
                "options": {
                    "path": {"type": "path", "required": True},
                    "content": {"type": "str"},
                    "secret_base64": {"type": "str", "no_log": True},
                    "mode": {"type": "str", "default": "0644"},
                },
                "mutually_exclusive": [("content", "secret_base64")],
            },
            "units": {"type": "list", "elements": "str", "default": []},
            "restart": {"type": "bool", "default": True},
        },
        supports_check_mode=True,
    )
    files, units, restart = (module.params[name] for name in ("files", "units", "restart"))
    wrong = [file for file in files if differs(file)]
    written = [file["path"] for file in wrong]
    result: dict[str, Any] = {"written": written, "started": [], "diff": [difference(file) for file in wrong]}
    if module.check_mode:
        there = [unit for unit in units if not started_by_package(module, unit, files)]
        paths = [file["path"] for file in files] if restart else []
        idle = [unit for unit in there if (written and restart) or lacking(module, unit, paths)]
        module.exit_json(**{**result, "changed": bool(written or idle), "started": idle})
    for file in wrong:
        replace_file(Path(file["path"]), text_of(file), int(file["mode"], 8))
    if any(path.startswith(UNIT_DIRECTORY) for path in written):
        module.run_command(["systemctl", "daemon-reload"], check_rc=True)
    for unit in units:
        for verb in lacking(module, unit, [file["path"] for file in files] if restart else []):
            rc, out, err = run_bounded(["systemctl", verb, unit], 600)
            if rc != 0:
                why = (err or out).strip()
                module.fail_json(msg=f"`systemctl {verb} {unit}` failed: {why}", **late(rc), **result)
            result["started"] = sorted({*result["started"], unit})
    module.exit_json(**result, changed=bool(written or result["started"]))


if __name__ == "__main__":
    main()
