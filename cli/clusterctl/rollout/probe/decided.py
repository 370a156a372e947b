"""A digest of everything on the controller that decides what an apply asks of hosts."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from clusterctl.cluster.directory import ClusterDirectory
from clusterctl.cluster.inventory import Host, Inventory
from clusterctl.content import content_root
from clusterctl.rollout.probe.calls import CannotAskError
from clusterctl.rollout.probe.steady import is_steady

CONTENT = ("playbooks", "roles", "plugins", "cli/clusterctl/cluster/compat", "../cluster/compat")
SUFFIXES = frozenset({".yml", ".yaml", ".py", ".j2", ".cfg"})
# What the roles read on the controller besides the settings.
OF_THE_CLUSTER = ("ca", "secrets")
# The transport of the look knows ssh and sudo; whatever else is declared is left to Ansible.
ELSEWISE = {
    "ansible_connection": ("ssh", "smart"),
    "ansible_become_method": ("sudo",),
    "ansible_become": (True,),
}
ELSEWHERE = re.compile(r"_controller_dir$|^ansible_become_(exe|flags|user|password|pass)$|^ansible_password$")


def inputs(inventory: Inventory, extra_vars: Mapping[str, Any]) -> str:
    """The digest of program, roles, settings of all hosts, where those lie, lock and flags."""
    directory = inventory.directory
    settings = {host.name: [host.groups, host.variables] for host in inventory.hosts}
    lock = directory.root / "clusterctl.lock"
    parts = [
        *code_version(),
        str(directory.root),
        json.dumps([settings, dict(extra_vars)], sort_keys=True, default=str),
        lock.read_text(encoding="utf-8") if lock.is_file() else "",
    ]
    return _digest(parts)


def with_secrets(digest: str, directory: ClusterDirectory) -> str:
    """``digest`` with the certificates and passwords that the cluster's directory keeps for the roles."""
    files = [
        path
        for name in OF_THE_CLUSTER
        for path in sorted((directory.state / name).glob("*"))
        if path.is_file() and not path.name.startswith(("passwords.", "."))
    ]
    return _digest([digest, *(f"{path.name} {_digest_of_file(path)}" for path in files)])


@cache
def code_version() -> tuple[str, ...]:
    """The program's and Ansible's version, and a digest of all that Ansible runs of ours."""
    root = content_root()
    files = [root / "ansible.cfg", *_files(root, CONTENT)]
    content = _digest(f"{path} {_digest_of_file(path)}" for path in files)
    return version("clusterctl"), version("ansible-core"), content


def require_clear(host: Host, inventory: Inventory) -> None:
    """Refuse a host of which no digest covers what decides, or which no look reaches.

    Its settings may ask for those of any other host (``hostvars``). Raises CannotAskError.
    """
    for name, value in host.variables.items():
        if ELSEWHERE.search(name) or (name in ELSEWISE and value not in ELSEWISE[name]):
            raise CannotAskError(f"{name} is declared")
    settings = frozenset(name for other in inventory.hosts for name in other.variables)
    for other in (host, *inventory.hosts):
        for name, value in other.variables.items():
            if not is_steady(value, settings):
                whose = "" if other.name == host.name else f" of {other.name}"
                raise CannotAskError(f"{name}{whose} may be another each time")


def _files(root: Path, rooms: Iterable[str]) -> list[Path]:
    return sorted(
        path
        for room in rooms
        for path in (root / room).rglob("*")
        if path.suffix in SUFFIXES and path.is_file()
    )


def _digest(parts: Iterable[str]) -> str:
    return hashlib.sha256("\0".join(parts).encode(errors="surrogateescape")).hexdigest()


def _digest_of_file(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
