#!/usr/bin/python
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see plugins/LICENSE)
"""Ansible module: who uses the GPUs of a node, asked just before something that would disturb them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.clusterctl.cluster.plugins.module_utils.gpu_busy import ask, busy_reasons

DOCUMENTATION = r"""
module: gpu_busy_facts
short_description: Who uses the GPUs of a node
description:
  - Looks for processes on the GPUs, containers that were given some, and Slurm jobs. Changes nothing.
  - Who does not answer in time counts as busy.
options:
  force_busy: {description: Continue although the node is busy., type: bool, default: false}
  holders_ignored:
    description: Names of what holds GPUs and is no job, besides those that are known; globs are allowed.
    type: list
    elements: str
    default: []
author: [the clusterctl authors]
"""

EXAMPLES = r"""
- name: Check whether a job has started
  clusterctl.cluster.gpu_busy_facts:
  register: jobs
"""

RETURN = r"""
busy: {description: Who uses the GPUs., type: list, returned: always}
left_alone: {description: Whether the node is to be left alone., type: bool, returned: always}
"""


def main() -> None:
    """Entry point."""
    arguments: dict[str, Any] = {
        "force_busy": {"type": "bool", "default": False},
        "holders_ignored": {"type": "list", "elements": "str", "default": []},
    }
    module = AnsibleModule(arguments, supports_check_mode=True)
    busy = busy_reasons(Path("/"), ask, module.params["holders_ignored"])
    left_alone = bool(busy) and not module.params["force_busy"]
    report = {"busy": "; ".join(busy)} if left_alone else {}
    module.exit_json(changed=False, busy=busy, left_alone=left_alone, clusterctl=report)


if __name__ == "__main__":
    main()
