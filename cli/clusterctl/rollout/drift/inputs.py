"""A digest of everything on the controller that decides what an apply asks of hosts."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import clusterctl
from clusterctl.cluster import names
from clusterctl.cluster.directory import ClusterDirectory
from clusterctl.cluster.inventory import Host, Inventory
from clusterctl.content import content_root
from clusterctl.rollout.drift.deterministic import is_deterministic
from clusterctl.rollout.drift.named_files import digest_file, digest_named_files, find_unreadable_name

PACKAGES = ("clusterctl", "ansible-core", "jinja2")
CONTENT = ("playbooks", "roles", "plugins")
BYTECODE = "__pycache__"
# Ansible merges these over hosts.yml, and its listing loses the order of their keys.
VARIABLES = (names.GROUP_VARS, names.HOST_VARS)
# What the roles read on the controller besides the settings.
SECRETS = (names.AUTHORITY, names.SECRETS)
# The probe's transport is SSH and sudo; a host that declares anything else is left to Ansible.
CONNECTION = {
    "ansible_connection": ("ssh", "smart"),
    "ansible_become_method": ("sudo",),
    "ansible_become": (True,),
}
UNSUPPORTED = re.compile(
    r"_controller_dir$|^ansible_become_(exe|flags|user|password|pass)$|^ansible_password$"
)


def digest_inputs(inventory: Inventory, extra_vars: Mapping[str, Any]) -> str:
    """Returns the digest of program, roles, settings of all hosts, files that they name, lock and flags."""
    directory = inventory.directory
    settings = [[host.name, host.groups, host.variables] for host in inventory.hosts]
    groups = [host.context.get("groups") for host in inventory.hosts[:1]]
    parts = [
        *code_version(),
        str(directory.root),
        json.dumps([settings, dict(extra_vars)], sort_keys=True, default=str),
        json.dumps(groups),
        *_digests(_declaring_files(directory)),
        *digest_named_files(inventory),
    ]
    return _digest(parts)


def digest_with_secrets(inputs: str, directory: ClusterDirectory) -> str:
    """Returns ``inputs`` with the certificates and passwords that the cluster directory keeps for roles."""
    files = [
        path
        for name in SECRETS
        for path in sorted((directory.state / name).rglob("*"))
        if path.is_file() and not path.name.startswith(("passwords.", "."))
    ]
    return _digest([inputs, *_digests(files)])


@cache
def code_version() -> tuple[str, ...]:
    """Returns the versions of the programs, and a digest of every file that Ansible or a role may read."""
    root = content_root()
    compatibility = Path(clusterctl.__file__).parent / "cluster" / "compat"
    files = [
        path
        for directory in (*(root / name for name in CONTENT), compatibility)
        for path in sorted(directory.rglob("*"))
        if path.is_file() and BYTECODE not in path.parts
    ]
    content = _digest(_digests([root / "ansible.cfg", *files]))
    return (*map(version, PACKAGES), content)


def find_obstacles(hosts: Sequence[Host], inventory: Inventory) -> dict[str, str]:
    """Returns why hosts cannot be recorded: no digest covers what decides, or the probe cannot reach them.

    A role may ask for the settings of any host (``hostvars``), so one undecidable setting is every host's.
    """
    names = frozenset(name for other in inventory.hosts for name in other.variables)
    undecidable = {
        other.name: reason for other in inventory.hosts if (reason := _undecidable_setting(other, names))
    }
    obstacles = {}
    for host in hosts:
        reason = _unsupported_connection(host) or undecidable.get(host.name, "")
        for other in () if reason else list(undecidable)[:1]:
            reason = f"{other}: {undecidable[other]}"
        if reason:
            obstacles[host.name] = reason
    return obstacles


def _unsupported_connection(host: Host) -> str:
    for name, value in host.variables.items():
        if UNSUPPORTED.search(name) or (name in CONNECTION and value not in CONNECTION[name]):
            return f"{name} is declared"
    return ""


def _undecidable_setting(host: Host, names: frozenset[str]) -> str:
    for name, value in host.variables.items():
        if not is_deterministic(value, names):
            return f"{name} may have another value each time"
    unreadable = find_unreadable_name(host)
    return f"{unreadable} names a file that is known to Ansible only" if unreadable else ""


def _declaring_files(directory: ClusterDirectory) -> list[Path]:
    """Returns inventory and lock, as the operator wrote them."""
    found = [directory.hosts_file, directory.root / names.LOCK_FILE]
    for name in VARIABLES:
        found += sorted((directory.root / name).rglob("*"))
    return [path for path in found if path.is_file()]


def _digests(files: Iterable[Path]) -> Iterator[str]:
    return (f"{path} {digest_file(path)}" for path in files)


def _digest(parts: Iterable[str]) -> str:
    return hashlib.sha256("\0".join(parts).encode(errors="surrogateescape")).hexdigest()
