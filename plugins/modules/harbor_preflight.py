#!/usr/bin/python
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see plugins/LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A host before Harbor touches it: ports, disk, and whoever was here before us."""

from __future__ import annotations

import json
import pwd
from contextlib import suppress
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.clusterctl.cluster.plugins.module_utils.bounded import run_bounded
from ansible_collections.clusterctl.cluster.plugins.module_utils.harbor_host import (
    UPGRADING,
    holders,
    listeners,
    published,
    read_record,
    release_directory,
    runs,
    why_half_restored,
    why_not,
)
from ansible_collections.clusterctl.cluster.plugins.module_utils.node_files import free_bytes
from ansible_collections.clusterctl.cluster.plugins.module_utils.trusted_directory import trusted_directory

DOCUMENTATION = r"""
module: harbor_preflight
short_description: Refuse a host that Harbor cannot be installed on, before anything is touched
description:
  - Looks at ports, free space, an earlier installation and a Harbor of somebody else. Changes nothing.
options:
  directory: {description: Where releases are unpacked, type: path, required: true}
  data_dir: {description: Where Harbor keeps its data, type: path, required: true}
  version: {description: Release that is declared, type: str, required: true}
  ports: {description: What wants which port, type: dict, required: true}
  min_free_gb: {description: Free space that a first installation wants, type: float, default: 20}
  upgrade: {description: Whether this may be a step from another release, type: bool, default: false}
  restoring: {description: Whether this is a part of a restore, type: bool, default: false}
author: ["the clusterctl authors"]
"""

EXAMPLES = r"""
- name: Look at the host
  clusterctl.cluster.harbor_preflight:
    directory: /opt/harbor
    data_dir: /var/lib/clusterctl/harbor
    version: v2.15.2
    ports: {https: 443}
"""

RETURN = r"""
installed: {description: Release that is here; empty where none is, returned: always, type: str}
goes_on: {description: Whether an interrupted upgrade needs no new backup, returned: always, type: bool}
free_gb: {description: Free space where the data are to be, returned: always, type: float}
code:
  description: "Stable code of the failure: harbor.refused"
  returned: when the cause is known
  type: str
"""

GIGABYTE = 1e9
# Containers' ports are held by Docker's own program: whose they are, Docker says.
OF_DOCKER = ("docker-proxy", "dockerd", "rootlessport")
LOOK_S = 30
# Whom Harbor's containers give its files to: its own programs with the key of TLS; PostgreSQL and Redis.
OWNERS = (10000, 999)
# An empty shell is /bin/sh [passwd(5)].
NO_LOGIN = ("nologin", "false", "sync")


def taken(wanted: dict[str, int], held: dict[int, str]) -> list[str]:
    """Findings about ports: `held` names who listens that is not our Harbor, by port."""
    return [
        f"port {port} ({what}) is held by {held[port]}: stop it, or set another port"
        for what, port in sorted(wanted.items())
        if port in held
    ]


def others(listening: dict[int, str], directory: str, *, begun: bool) -> dict[int, str]:
    """Who listens that is not our Harbor, by port, of the inodes: a container, or a program's name.

    Docker is asked first: a search among all open files of all users may end before it finds anything.
    """
    containers = published() if listening else []
    found, unknown = {}, {}
    for port, inode in listening.items():
        publish = [(name, where) for name, where, ports in containers or [] if port in ports]
        names = [name for name, where in publish if not is_below(where, directory)]
        if names:
            found[port] = f"container {', '.join(names)}"
        elif not publish:
            unknown[port] = inode
    programs = holders(unknown.values())
    for port, inode in unknown.items():
        program = programs.get(inode) or "somebody"
        # Nothing is stopped or started where Docker does not answer: then the record's word is enough.
        if not (begun and containers is None and program in OF_DOCKER):
            found[port] = program
    return found


def is_below(where: str, directory: str) -> bool:
    """Whether a Compose project's directory is that of a release of ours."""
    return where.startswith(f"{directory.rstrip('/')}/")


def twice(wanted: dict[str, int]) -> list[str]:
    """Findings about ports that two parts want."""
    ports = list(wanted.values())
    double = sorted({port for port in ports if ports.count(port) > 1})
    return [f"port {port} is wanted twice: give each part a port of its own" for port in double]


def of_record(record: dict[str, Any], version: str, *, upgrade: bool, running: bool) -> list[str]:
    """Findings about what is installed."""
    if record.get("state") == "unreadable":
        return ["installed.json cannot be read: write {} into it if no Harbor is here"]
    why = why_not(record, version, upgrade=upgrade, running=running)
    return [f"Harbor {record.get('version')} is here, and {version} is declared: {why}"] if why else []


def goes_on(record: dict[str, Any], version: str, *, running: bool) -> bool:
    """Whether an interrupted upgrade to this release stopped the one before: its backup still counts."""
    return record.get("state") == UPGRADING and record.get("to") == version and not running


def moved(record: dict[str, Any], data_dir: str) -> list[str]:
    """Findings about data that are somewhere else: an empty Harbor would come up next to them."""
    before = str(record.get("data_dir", data_dir))
    if before.rstrip("/") == data_dir.rstrip("/"):
        return []
    return [
        f"Harbor's data are in {before}, and harbor_data_dir is {data_dir}: set it back, or back up, empty "
        "the host and restore (`clusterctl registry backup`, `restore`)"
    ]


def foreign_containers(directory: str) -> list[str]:
    """Findings about containers of a Harbor that is not ours."""
    rc, out, _ = run_bounded(
        ["docker", "inspect", "--format", "{{json .Config.Labels}}", "harbor-core"], LOOK_S
    )
    if rc != 0:
        return []
    label = "com.docker.compose.project.working_dir"
    where = str((json.loads(out or "{}") or {}).get(label, "somewhere else"))
    if is_below(where, directory):
        return []
    return [
        f"a Harbor that is not ours runs from {where}: take it down (its data stay), or name another host"
    ]


def exchangeable(*directories: Path) -> list[str]:
    """Findings about directories that another than root may write or exchange: root runs what lies there."""
    found = []
    for directory in directories:
        try:
            with suppress(FileNotFoundError), trusted_directory(directory, make=False, follow=True):
                pass
        except OSError as error:
            found.append(str(error))
    return list(dict.fromkeys(found))


def orphans(data_dir: str) -> list[str]:
    """Findings about data where nothing is installed."""
    if not any(Path(data_dir, "database").glob("*")):
        return []
    return [
        f"{data_dir}/database holds a Harbor's data of an unknown release: restore a backup into an empty "
        "directory (`clusterctl registry restore`), or set harbor_data_dir to another one"
    ]


def owners_who_log_in() -> list[str]:
    """Warnings about accounts that Harbor's files belong to on this host."""
    found = []
    for uid in OWNERS:
        try:
            account = pwd.getpwuid(uid)
        except KeyError:
            continue
        if Path(account.pw_shell).name not in NO_LOGIN:
            found.append(
                f"{account.pw_name} of this host has the user id {uid}, which owns Harbor's files and keys, "
                "and can log in: give that account another id, or take Harbor to a host without it"
            )
    return found


def what_is_left(record: dict[str, Any], half: str, *, upgrade: bool, restoring: bool) -> str:
    """What a refusal leaves: a restore has written before, and an upgrade may have taken its backup."""
    if half and restoring:
        return "what the restore has written so far is left as it is"
    return "Harbor is left as it is" if record and upgrade else "nothing was touched"


def main() -> None:
    """Ansible's entry."""
    module = AnsibleModule(
        argument_spec={
            "directory": {"type": "path", "required": True},
            "data_dir": {"type": "path", "required": True},
            "version": {"type": "str", "required": True},
            "ports": {"type": "dict", "required": True},
            "min_free_gb": {"type": "float", "default": 20.0},
            "upgrade": {"type": "bool", "default": False},
            "restoring": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    options = module.params
    record = read_record(options["directory"])
    wanted = {what: int(port) for what, port in options["ports"].items()}
    tables = [path.read_text() for path in map(Path, ("/proc/net/tcp", "/proc/net/tcp6")) if path.exists()]
    listening = listeners(tables)
    listening = {port: inode for port, inode in listening.items() if port in wanted.values()}
    free = free_bytes(Path(options["data_dir"])) / GIGABYTE
    running = runs()
    half = why_half_restored(options["directory"])
    # A restore has written data, and may have started the database, before anything is installed.
    begun = bool(record or (half and options["restoring"]))
    release = release_directory(options["directory"], options["version"])
    errors = [
        *exchangeable(Path(options["directory"]), release, Path(options["data_dir"])),
        *([half] if half and not options["restoring"] else []),
        *of_record(record, options["version"], upgrade=options["upgrade"], running=running),
        *moved(record, options["data_dir"]),
        *twice(wanted),
        *taken(wanted, others(listening, options["directory"], begun=begun)),
        *foreign_containers(options["directory"]),
        *([] if begun else orphans(options["data_dir"])),
    ]
    if not begun and free < options["min_free_gb"]:
        errors.append(
            f"{options['data_dir']} has {free:.1f} GB free, and {options['min_free_gb']:g} are wanted: "
            "free space, or set harbor_data_dir or harbor_min_free_gb"
        )
    if errors:
        left = what_is_left(record, half, upgrade=options["upgrade"], restoring=options["restoring"])
        why = f"Harbor cannot be installed here, and {left}. {'. '.join(errors)}."
        module.fail_json(msg=why, code="harbor.refused")
    for warning in owners_who_log_in():
        module.warn(f"{warning}.")
    module.exit_json(
        changed=False,
        installed=str(record.get("version", "")),
        goes_on=goes_on(record, options["version"], running=running),
        free_gb=round(free, 1),
    )


if __name__ == "__main__":
    main()
