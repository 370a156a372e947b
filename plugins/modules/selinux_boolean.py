#!/usr/bin/python
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see plugins/LICENSE)
"""Ansible module: one boolean of SELinux's policy switched on, now and after a boot."""

from __future__ import annotations

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.clusterctl.cluster.plugins.module_utils.bounded import late, run_bounded
from ansible_collections.clusterctl.cluster.plugins.module_utils.gpu_node import read_text

DOCUMENTATION = r"""
module: selinux_boolean
short_description: Switch a boolean of SELinux's policy on
description:
  - Switches it on in the running policy and for later boots. Leaves SELinux's mode as it is.
  - Does nothing where the policy has no such boolean, or SELinux is off. Check mode is supported.
options:
  name: {description: Name of the boolean., type: str, required: true}
author: [the clusterctl authors]
"""

EXAMPLES = r"""
- name: Allow containers that SELinux confines to use devices
  clusterctl.cluster.selinux_boolean:
    name: container_use_devices
"""

RETURN = r"""
present: {description: Whether the policy has this boolean., type: bool, returned: always}
code:
  description: "Stable code of the failure: task.timed-out"
  returned: when the cause is known
  type: str
"""

ROOT = Path("/")
# setsebool -P builds the whole policy again.
LIMIT_S = 300


def is_on(root: Path, name: str) -> bool:
    """Whether the boolean is on now, and will be after a boot."""
    now = read_text(root / "sys/fs/selinux/booleans" / name).split()[:1] == ["1"]
    stores = (root / "var/lib/selinux").glob("*/active/booleans.local")
    return now and any(f"{name}=1" in read_text(store).replace(" ", "").splitlines() for store in stores)


def main() -> None:
    """Entry point."""
    module = AnsibleModule({"name": {"type": "str", "required": True}}, supports_check_mode=True)
    name = module.params["name"]
    present = (ROOT / "sys/fs/selinux/booleans" / name).exists()
    changed = present and not is_on(ROOT, name)
    if changed and not module.check_mode:
        code, output, error = run_bounded(["setsebool", "-P", name, "on"], LIMIT_S, {"LC_ALL": "C"})
        if code != 0:
            module.fail_json(
                msg=f"SELinux's boolean {name} cannot be switched on: {(error or output).strip()}. "
                f"Run `setsebool -P {name} on` on the host to see why.",
                **late(code),
            )
    module.exit_json(changed=changed, present=present)


if __name__ == "__main__":
    main()
