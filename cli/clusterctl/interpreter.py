"""How clusterctl starts Python and Ansible on this machine: never with code from the caller's directory.

`python -m` and `python -c` put the current directory first on the module path, where another user may have
planted a module; so does an entry of PYTHONPATH.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from clusterctl.content import collections_path

# What unlocks the operator's own vaulted settings; nothing else of ANSIBLE_* is respected.
KEPT_VARIABLES = (
    "ANSIBLE_VAULT_PASSWORD_FILE", "ANSIBLE_VAULT_IDENTITY_LIST", "ANSIBLE_VAULT_IDENTITY",
    "ANSIBLE_VAULT_ENCRYPT_IDENTITY",
)  # fmt: skip
# Those that name files.
VAULT_SOURCES = ("ANSIBLE_VAULT_PASSWORD_FILE", "ANSIBLE_VAULT_IDENTITY_LIST")
# No program of ours may be asked for a password on a screen that nobody watches.
DROPPED = frozenset({"SSH_ASKPASS", "SSH_ASKPASS_REQUIRE", "PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP"})


def python_command(*arguments: str) -> list[str]:
    """This Python, with the current directory off its module path."""
    return [sys.executable, "-P", *arguments]


def ignored_variables(environment: Mapping[str, str]) -> list[str]:
    """The operator's ANSIBLE_* variables that are not passed on."""
    return sorted(key for key in environment if key.startswith("ANSIBLE_") and key not in KEPT_VARIABLES)


def python_environment(environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """Environment for a Python of ours, and for every Python that it starts."""
    given = dict(os.environ if environment is None else environment)
    dropped = DROPPED | set(ignored_variables(given))
    # Ansible would take an empty one for the current directory.
    unset = {name for name in KEPT_VARIABLES if not given.get(name, "").strip()}
    kept = {key: value for key, value in given.items() if key not in dropped | unset}
    for name in VAULT_SOURCES:  # what is started may run in another directory
        if name in kept:
            kept[name] = ",".join(map(_absolute, kept[name].split(",")))
    return {**kept, "PYTHONSAFEPATH": "1"}


def ansible_environment(content: Path, environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """Environment for any Ansible program with the settings of the content at ``content``."""
    return {
        **python_environment(environment),
        "LC_ALL": "C.UTF-8",  # Ansible refuses one that is no UTF-8, or not installed
        "ANSIBLE_CONFIG": str(content / "ansible.cfg"),
        "ANSIBLE_COLLECTIONS_PATH": str(collections_path()),
        "ANSIBLE_NOCOLOR": "1",
    }


def _absolute(source: str) -> str:
    """A vault's password file, or ``identity@file``, from the caller's directory."""
    identity, at, file = source.rpartition("@")
    try:
        path = Path(file.strip()).expanduser()
        return f"{identity}{at}{path.absolute()}" if path.exists() else source
    except (OSError, RuntimeError, ValueError):  # no such user, too long: Ansible says that it is not there
        return source
