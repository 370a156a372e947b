#!/usr/bin/python
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see plugins/LICENSE)
"""Ansible module: the directory of the registry's images, which no other account can read or exchange."""

from __future__ import annotations

import os
import pwd
import stat
from contextlib import suppress
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.clusterctl.cluster.plugins.module_utils.trusted_directory import (
    is_remote,
    trusted_directory,
)

DOCUMENTATION = r"""
module: registry_data_directory
short_description: Provide the directory in which the embedded registry keeps images
description:
  - Makes it where it is missing, root's alone; the registry's unit gives it to its account.
  - Refuses one that another account made, may write, or can exchange; so with what is in its upper levels.
    Changes no owner and no mode. What another machine keeps (NFS and the like) is that machine's to guard.
  - Check mode is supported.
options:
  path: {description: The directory., type: path, required: true}
  owner: {description: Account of the registry., type: str, required: true}
author: [the clusterctl authors]
"""

EXAMPLES = r"""
- name: Provide the directory of images
  clusterctl.cluster.registry_data_directory:
    path: /var/lib/clusterctl/registry
    owner: docker-registry
"""

RETURN = r"""
code:
  description: "Stable code of the failure: registry.data-directory"
  returned: when the cause is known
  type: str
"""

# docker/registry/v2/repositories, and what is in it; below, honest registries have millions of files.
LEVELS = 5


def account(name: str) -> int:
    """An account's number; root's where there is no such account yet."""
    try:
        return pwd.getpwnam(name).pw_uid
    except KeyError:
        return 0


def provide(directory: Path, owner: int, *, make: bool) -> bool:
    """Whether it was missing; made then, if asked for. Raises PermissionError where it is not trusted."""
    missing = not directory.exists()
    if missing and not make:
        with suppress(FileNotFoundError), trusted_directory(directory, make=False, owner=owner, follow=True):
            pass
        return True
    with trusted_directory(directory, make=make, owner=owner, follow=True) as place:
        if not is_remote(place) and (found := find_foreign(place, {0, os.geteuid(), owner})):
            raise PermissionError(
                f"{directory / found} may be written by another account, which can read and exchange images"
            )
    return missing


def find_foreign(place: Path, owners: set[int]) -> str:
    """The first entry of another's, or that others may write, in the upper levels; empty where none is.

    Who made a directory further up can put whatever he likes further down.
    """
    for above, directories, files in os.walk(place):
        within = Path(above).relative_to(place)
        for name in sorted((*directories, *files)):
            with suppress(FileNotFoundError):  # the registry may be at work
                status = Path(above, name).lstat()
                is_open = status.st_mode & 0o022 and not stat.S_ISLNK(status.st_mode)
                if status.st_uid not in owners or is_open:
                    return str(within / name)
        if len(within.parts) + 2 > LEVELS:
            directories.clear()
    return ""


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
        path, owner = module.params["path"], module.params["owner"]
        module.fail_json(
            msg=f"{error}. See what lies there; what is to stay: `chown -R {owner}: {path}` and "
            f"`chmod -R go-w {path}`.",
            code="registry.data-directory",
        )
    module.exit_json(changed=changed)


if __name__ == "__main__":
    main()
