#!/usr/bin/python
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see plugins/LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What became of asynchronous jobs that an earlier run started on this host."""

from __future__ import annotations

import time
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.clusterctl.cluster.plugins.module_utils.job_files import look

DOCUMENTATION = r"""
module: async_jobs
short_description: Report, and wait for, asynchronous jobs of an earlier run
description:
  - Reads the result files that Ansible's asynchronous tasks leave, and looks whether their process lives.
  - Unlike M(ansible.builtin.async_status) it distinguishes a running job from one that a reboot ended.
  - Changes nothing.
options:
  ids: {description: Job ids that an earlier run journalled, type: list, elements: str, default: []}
  directory: {description: Where the result files are, type: path, required: true}
  wait_s: {description: Wait so long for running jobs to end, type: float, default: 0}
attributes: {check_mode: {support: full}}
author: [clusterctl]
"""

EXAMPLES = r"""
- name: Ask what became of a job
  clusterctl.cluster.async_jobs:
    ids: [j123456789012.4711]
    directory: /root/.clusterctl/async
"""

RETURN = r"""
jobs:
  description: Each named job, and each other one that still runs, with its state
  returned: always
  type: list
  elements: dict
  sample: [{id: j123456789012.4711, state: finished, failed: false, changed: true, msg: "", code: "", rc: 0}]
"""

LOOK_AGAIN_S = 0.5


def main() -> None:
    """Entry of the module."""
    module = AnsibleModule(
        argument_spec={
            "ids": {"type": "list", "elements": "str", "default": []},
            "directory": {"type": "path", "required": True},
            "wait_s": {"type": "float", "default": 0},
        },
        supports_check_mode=True,
    )
    directory = Path(module.params["directory"])
    deadline = time.monotonic() + module.params["wait_s"]
    jobs = look(module.params["ids"], directory)
    while any(job["state"] == "running" for job in jobs) and time.monotonic() < deadline:
        time.sleep(LOOK_AGAIN_S)
        jobs = look(module.params["ids"], directory)
    module.exit_json(changed=False, jobs=jobs, clusterctl={"facts": {"jobs": jobs}})


if __name__ == "__main__":
    main()
