#!/usr/bin/python
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see plugins/LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Ansible module: take, free or show the lease by which one run at a time changes a node."""

from __future__ import annotations

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.clusterctl.cluster.plugins.module_utils.job_files import JOBS, running
from ansible_collections.clusterctl.cluster.plugins.module_utils.lease_file import (
    LEASE,
    StillAtWorkError,
    free,
    read,
    take,
)

DOCUMENTATION = r"""
module: node_lease
short_description: The lease by which one run at a time changes a node
description:
  - The lease is a file of root's alone that says which run of whom holds the node. It survives a reboot.
  - A lease is taken where there is none, and freed by who names its run and its nonce. It never runs out.
  - A node that somebody else holds is not a failure of the module; the holder is returned.
  - A node that nobody holds is not taken while a job that a run left still runs on it; the job is returned.
options:
  state: {description: What to do., type: str, choices: [taken, freed, shown], default: shown}
  lease: {description: "The lease: at least run and nonce.", type: dict, default: {}}
  path: {description: Where the lease lies., type: path, default: /root/.clusterctl/lease.json}
  jobs: {description: Where the files of asynchronous jobs are., type: path, default: /root/.clusterctl/async}
attributes: {check_mode: {support: full}}
author: [the clusterctl authors]
"""

EXAMPLES = r"""
- name: Take the node
  clusterctl.cluster.node_lease:
    state: taken
    lease: {run: 20260101T000000000-apply-1a2b, nonce: 5e3f, who: ops, where: controller}
"""

RETURN = r"""
taken: {description: Whether the node is the lease's now., type: bool, returned: always}
freed: {description: Whether the lease was on the node and is no more., type: bool, returned: always}
holder: {description: Whose lease is on the node afterwards., type: dict, returned: always}
jobs:
  description: Jobs that run on the node, where it was shown, or was not taken because of them.
  type: list
  elements: str
  returned: always
"""


def main() -> None:
    """Entry point."""
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["taken", "freed", "shown"], "default": "shown"},
            "lease": {"type": "dict", "default": {}},
            "path": {"type": "path", "default": LEASE},
            "jobs": {"type": "path", "default": JOBS},
        },
        supports_check_mode=True,
    )
    path, lease, directory = Path(module.params["path"]), module.params["lease"], Path(module.params["jobs"])
    wanted = "shown" if module.check_mode else module.params["state"]
    taken = freed = False
    jobs: list[str] = []
    try:
        if wanted == "taken":
            taken = take(path, lease, lambda: running(directory)) is None
        elif wanted == "freed":
            freed = free(path, lease)
        else:
            jobs = running(directory)
        holder = lease if taken else read(path)
    except StillAtWorkError as error:
        jobs, holder = error.jobs, None
    except OSError as error:
        module.fail_json(msg=f"the lease at {path} cannot be used: {error.strerror}")
    record = {"taken": taken, "freed": freed, "holder": holder, "jobs": jobs}
    module.exit_json(changed=taken or freed, clusterctl={"facts": {"lease": record}}, **record)


if __name__ == "__main__":
    main()
