#!/usr/bin/python
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see plugins/LICENSE)
"""Ansible module: the directory in which a service keeps its data, which no other account can exchange."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.clusterctl.cluster.plugins.module_utils.trusted_directory import (
    is_remote,
    trusted_directory,
)

DOCUMENTATION = r"""
module: data_directory
short_description: Provide the directory in which a service keeps its data
description:
  - Makes it where it is missing, root's alone; the service's unit gives it to its account.
  - Refuses one that another account made, may write, or can exchange; what is in it, too. Changes no owner
    and no mode. What another machine keeps (NFS and the like) is that machine's to guard.
  - Check mode is supported.
options:
  path: {description: The directory., type: path, required: true}
  owner: {description: Account of the service., type: str, required: true}
author: [the clusterctl authors]
"""

EXAMPLES = r"""
- name: Provide the directory of images
  clusterctl.cluster.data_directory:
    path: /var/lib/clusterctl/registry
    owner: docker-registry
"""

RETURN = r"""
code:
  description: "Stable code of the failure: registry.data-directory"
  returned: when the cause is known
  type: str
"""


def account(name: str) -> int:
    """An account's number; root's where there is no such account yet."""
    try:
        return pwd.getpwnam(name).pw_uid
    except KeyError:
        return 0


def provide(directory: Path, owner: int, *, make: bool) -> bool:
    """Whether it was missing; made then, if asked for. Raises PermissionError where it is not trusted."""
    missing = not os.path.lexists(directory)
    try:
        with trusted_directory(directory, make=make, owner=owner) as place:
            for entry in os.scandir(place):
                of = entry.stat(follow_symlinks=False).st_uid
                if of not in (0, os.geteuid(), owner) and not is_remote(place):
                    raise PermissionError(
                        f"{directory / entry.name} belongs to user {of}, who can read and exchange what the "
                        "service keeps there: move it away, or name another directory"
                    )
    except FileNotFoundError:
        missing = True
    return missing


def main() -> None:
    """Entry point."""
    module = AnsibleModule(
        {"path": {"type": "path", "required": True}, "owner": {"type": "str", "required": True}},
        supports_check_mode=True,
    )
    try:
        changed = provide(
            Path(module.params["path"]), account(module.params["owner"]), make=not module.check_mode
        )
    except OSError as error:
        module.fail_json(msg=f"{error}.", code="registry.data-directory")
    module.exit_json(changed=changed)


if __name__ == "__main__":
    main()
