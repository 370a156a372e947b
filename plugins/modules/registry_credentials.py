#!/usr/bin/python
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see plugins/LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A password for a registry, kept on the controller, with its htpasswd line and its client's file."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import re
import secrets
from collections.abc import Callable
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule, missing_required_lib
from ansible_collections.clusterctl.cluster.plugins.module_utils.node_files import replace_file
from ansible_collections.clusterctl.cluster.plugins.module_utils.vaulted import Vault

try:
    import bcrypt

    HAS_BCRYPT = True
except ImportError:
    HAS_BCRYPT = False

DOCUMENTATION = r"""
module: registry_credentials
short_description: Keep a registry's password on the controller, with server's and client's files
description:
  - Runs on the controller. Writes NAME.password, NAME.htpasswd (bcrypt), NAME.auth.json (0600).
  - A password that is there is kept, so that an operator may set one by writing its file.
  - Where C(ANSIBLE_VAULT_PASSWORD_FILE) or C(ANSIBLE_VAULT_IDENTITY_LIST) is set, the files are encrypted by
    Ansible Vault, those that were written before, too. C(lookup('ansible.builtin.file')) reads either form.
  - Returns names of files only, never what is in them.
options:
  directory: {description: Where the files are, type: path, required: true}
  users:
    description: Users
    type: list
    elements: dict
    required: true
    suboptions:
      name: {description: Name of the files, type: str, required: true}
      user: {description: Name to log in with, type: str, required: true}
      servers: {description: Registries (host:port), type: list, elements: str, required: true}
      given:
        description: A file of mode 0600 whose password is taken, one that somebody else gave (a robot's)
        type: path
      robot:
        description: A robot of Harbor's in registry-robots.json of O(directory), to take user and password of
        type: str
author: ["the clusterctl authors"]
"""

EXAMPLES = r"""
- name: Make the pushing user's credentials
  clusterctl.cluster.registry_credentials:
    directory: "{{ inventory_dir }}/.clusterctl/secrets"
    users:
      - {name: registry-push, user: push, servers: ["127.0.0.1:501"]}
  delegate_to: localhost
  become: false
"""

RETURN = r"""
written: {description: Names of files that were missing or did not fit, returned: always, type: list}
"""


# Written by `clusterctl registry apply`: {"robots": {NAME: {"user", "secret", "set", ...}}}, mode 0600.
ROBOTS = "registry-robots.json"


def auth_json(user: str, password: str, servers: list[str]) -> str:
    """The client's file, as Docker and skopeo read it."""
    token = base64.b64encode(f"{user}:{password}".encode()).decode()
    return json.dumps({"auths": {server: {"auth": token} for server in servers}}, indent=2) + "\n"


def htpasswd_fits(line: str, user: str, password: str) -> bool:
    """Whether an htpasswd line lets `user` in with `password`."""
    name, _, hashed = line.strip().partition(":")
    return name == user and hashed.startswith("$2") and bcrypt.checkpw(password.encode(), hashed.encode())


def htpasswd_line(user: str, password: str) -> str:
    """A line for the server; each has a salt of its own."""
    return f"{user}:{bcrypt.hashpw(password.encode(), bcrypt.gensalt(rounds=10, prefix=b'2b')).decode()}\n"


def given_password(path: Path, vault: Vault) -> str:
    """The password that a file gives. Raises ValueError where others can read it, or nobody."""
    if not path.is_file():
        raise ValueError(f"{path} is not there; it is to hold the password")
    if path.stat().st_mode & 0o077:
        raise ValueError(f"{path} can be read by others: chmod 600 it, and have a new password made")
    password = vault.read(path).strip()
    if not password:
        raise ValueError(f"{path} is empty; it is to hold the password")
    return password


def robot_of(file: Path, name: str, vault: Vault) -> tuple[str, str]:
    """User and password of a robot that `clusterctl registry apply` has made.

    Raises ValueError for one that is not in its file, or that Harbor has not been told of.
    """
    cure = "clusterctl registry apply"
    if not file.is_file():
        raise ValueError(f"{file} is not there: {cure} makes the robots, and this file")
    if file.stat().st_mode & 0o077:
        raise ValueError(f"{file} can be read by others: chmod 600 it, then clusterctl registry rotate")
    robots = json.loads(vault.read(file)).get("robots", {})
    robot = robots.get(name) or {}
    if not robot:
        there = ", ".join(sorted(robots)) or "none"
        raise ValueError(f"{file} knows no robot {name} (there are: {there}); declare it, and {cure}")
    if not robot.get("set") or not robot.get("user"):
        raise ValueError(f"Harbor does not have the secret of the robot {name} yet: {cure}")
    if not robot.get("secret"):
        raise ValueError(
            f"the secret of the robot {name} is kept by registry_robots_secret_command; "
            "name a file with it in registry_client_password_file"
        )
    return str(robot["user"]), str(robot["secret"])


def new_password() -> str:
    """One that Harbor takes too, which asks for a capital, a small letter and a digit."""
    while True:
        password = secrets.token_urlsafe(24)
        if all(re.search(kind, password) for kind in ("[A-Z]", "[a-z]", "[0-9]")):
            return password


def ensure(
    directory: Path,
    name: str,
    user: str,
    servers: list[str],
    *,
    put: Callable[[Path, str], None],
    vault: Vault,
    given: str | None = None,
    robot: str | None = None,
) -> list[Path]:
    """Files that were missing, did not fit or were not encrypted, each handed to `put` with its new content.

    Raises ValueError where the password is given and cannot be used.
    """
    changed = []
    password_file, htpasswd, auth = (
        directory / f"{name}.{end}" for end in ("password", "htpasswd", "auth.json")
    )
    password = _kept(password_file, vault).strip()
    wanted_password = password
    if robot:
        user, wanted_password = robot_of(directory / ROBOTS, robot, vault)
    elif given:
        wanted_password = given_password(Path(given), vault)
    if password != wanted_password or (password and vault.lacks(password_file)):
        password = wanted_password
        put(password_file, password + "\n")
        changed.append(password_file)
    if not password:
        password = new_password()
        put(password_file, password + "\n")
        changed.append(password_file)
    if vault.lacks(htpasswd) or not htpasswd_fits(_kept(htpasswd, vault), user, password):
        put(htpasswd, htpasswd_line(user, password))
        changed.append(htpasswd)
    wanted = auth_json(user, password, servers)
    if vault.lacks(auth) or _kept(auth, vault) != wanted:
        put(auth, wanted)
        changed.append(auth)
    return changed


def _kept(path: Path, vault: Vault) -> str:
    return vault.read(path) if path.is_file() else ""


def write_private(path: Path, content: str, vault: Vault) -> None:
    """Replace a file that nobody else can read, not even while it is written."""
    replace_file(path, vault.encrypt(content), 0o600)


def main() -> None:
    """Ansible's entry."""
    module = AnsibleModule(
        argument_spec={
            "directory": {"type": "path", "required": True},
            "users": {
                "type": "list",
                "elements": "dict",
                "required": True,
                "options": {
                    "name": {"type": "str", "required": True},
                    "user": {"type": "str", "required": True},
                    "servers": {"type": "list", "elements": "str", "required": True},
                    "given": {"type": "path"},
                    "robot": {"type": "str"},
                },
            },
        },
        supports_check_mode=True,
    )
    if not HAS_BCRYPT:
        module.fail_json(msg=missing_required_lib("bcrypt"))
    directory, users, vault = Path(module.params["directory"]), module.params["users"], Vault()

    def put(path: Path, text: str) -> None:
        if not module.check_mode:
            write_private(path, text, vault)

    def ensure_all() -> list[Path]:
        return [path for user in users for path in ensure(directory, **user, put=put, vault=vault)]

    try:
        if module.check_mode:
            changed = ensure_all()
        else:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            with os.fdopen(os.open(directory / ".lock", flags, 0o600), "w") as stream:
                fcntl.flock(stream, fcntl.LOCK_EX)
                changed = ensure_all()
    except ValueError as error:
        module.fail_json(msg=f"{error}.")
    module.exit_json(changed=bool(changed), written=[path.name for path in changed])


if __name__ == "__main__":
    main()
