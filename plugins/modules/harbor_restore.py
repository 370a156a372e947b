#!/usr/bin/python
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see plugins/LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A backup of Harbor put back on an empty host: data before Harbor is installed, the database after."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from ansible.module_utils import harbor_kept as kept
from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.bounded import run_bounded
from ansible.module_utils.harbor_copy import put_back
from ansible.module_utils.harbor_dump import DumpError, load
from ansible.module_utils.harbor_host import compose, read_record
from ansible.module_utils.node_files import replace_file

DOCUMENTATION = r"""
module: harbor_restore
short_description: Put a backup of Harbor back on an empty host
description:
  - C(data) verifies the backup and writes images and secrets; it refuses a host with a Harbor or its data.
  - C(database) is for after the installation; it stops what writes, loads the dump, and starts all again.
  - One that was cut off goes on where it was.
options:
  state: {description: Which half, type: str, choices: [data, database], required: true}
  directory: {description: Where releases are unpacked, type: path, required: true}
  release: {description: Directory of the release, type: path, required: true}
  version: {description: Release that is declared, type: str, required: true}
  data_dir: {description: Where Harbor keeps its data, type: path, required: true}
  backup_dir: {description: Where backups are, type: path, required: true}
  name: {description: The backup; empty means the newest, type: str, default: ""}
author: ["the clusterctl authors"]
"""

EXAMPLES = r"""
- name: Write images and secrets
  harbor_restore:
    state: data
    directory: /opt/harbor
    release: /opt/harbor/releases/v2.15.2/harbor
    version: v2.15.2
    data_dir: /var/lib/clusterctl/harbor
    backup_dir: /var/backups/clusterctl/harbor
"""

RETURN = r"""
backup: {description: Directory of the backup, returned: always, type: str}
"""

MARK = "restore.json"
ORDINARY_S = 300
GIGABYTE = 1e9
# What runs on while the dump is loaded; the others may hold connections to the database, or write.
STAY = ("log", "postgresql", "redis")


class RestoreError(Exception):
    """The backup cannot be put back here."""


def read_mark(directory: str) -> dict[str, Any]:
    """What a restore that was cut off has done; {} where there was none."""
    path = Path(directory) / MARK
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def write_mark(directory: str, **said: Any) -> None:
    """Write down how far it is."""
    replace_file(Path(directory) / MARK, json.dumps(said, sort_keys=True) + "\n", 0o600)


def choose(backup_dir: str, name: str) -> Path:
    """The backup that is meant. Raises RestoreError."""
    there = kept.backups(Path(backup_dir))
    chosen = [path for path in there if path.name == name] if name else there[-1:]
    if not chosen:
        names = ", ".join(path.name for path in there[-5:]) or "none"
        raise RestoreError(
            f"there is no backup {name or 'yet'} in {backup_dir} on this host; there are: {names}"
        )
    return chosen[0]


def require_empty(data_dir: Path, record: dict[str, Any]) -> None:
    """Refuse to write over anything. Raises RestoreError."""
    if record:
        raise RestoreError(f"Harbor {record.get('version')} is installed here; a restore wants an empty host")
    full = [name for name in ("database", *kept.KEPT) if any((data_dir / name).glob("*"))]
    if full:
        places = ", ".join(str(data_dir / name) for name in full)
        raise RestoreError(
            f"{places} is not empty; move it away, or set harbor_data_dir to another directory"
        )


def restore_data(options: dict[str, Any], backup: Path) -> bool:
    """Write images and secrets; whether anything was to be done. Raises RestoreError."""
    mark, data_dir = read_mark(options["directory"]), Path(options["data_dir"])
    if mark and mark["backup"] != backup.name:
        raise RestoreError(f"a restore of {mark['backup']} was begun here; end that one first (--backup)")
    if mark.get("phase") == "database":
        return False
    if not mark:
        require_empty(data_dir, read_record(options["directory"]))
    if found := kept.wrong(backup):
        raise RestoreError(f"{backup} is not what was written: {'; '.join(found[:3])}")
    version = kept.read_manifest(backup)["version"]
    if version != options["version"]:
        raise RestoreError(
            f"{backup.name} is of Harbor {version}, and harbor_version is {options['version']}: set it"
        )
    wanted = sum(one.size for one in kept.read_files(backup))
    data_dir.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(data_dir).free
    if not mark and free < wanted:
        raise RestoreError(
            f"{data_dir} has {free / GIGABYTE:.1f} GB free, and the backup wants {wanted / GIGABYTE:.1f}"
        )
    write_mark(options["directory"], backup=backup.name, phase="data")
    put_back(backup, data_dir)
    write_mark(options["directory"], backup=backup.name, phase="database")
    return True


def run(argv: list[str], what: str) -> str:
    """Run a program; its standard output. Raises RestoreError."""
    rc, out, err = run_bounded(argv, ORDINARY_S)
    if rc != 0:
        raise RestoreError(f"{what}: {' '.join((err or out).strip().splitlines()[-2:])}")
    return out


def others(release: str) -> list[str]:
    """Services that must not run meanwhile. Raises RestoreError."""
    there = run(compose(release, "config", "--services"), "Harbor's parts cannot be read").split()
    if "postgresql" not in there:
        raise RestoreError(f"{release}/docker-compose.yml has no database of Harbor's own")
    return [name for name in there if name not in STAY]


def restore_database(options: dict[str, Any], backup: Path) -> bool:
    """Load the dump into the Harbor that was installed. Raises RestoreError."""
    mark = read_mark(options["directory"])
    if mark.get("phase") != "database":
        raise RestoreError("images and secrets were not written yet")
    if kept.read_manifest(backup)["database"] == "own":
        release = options["release"]
        run(compose(release, "stop", *others(release)), "Harbor's parts do not stop")
        load(backup / kept.DUMP)
        run(compose(release, "up", "-d"), "Harbor's parts do not start")
    (Path(options["directory"]) / MARK).unlink()
    return True


def main() -> None:
    """Ansible's entry."""
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["data", "database"], "required": True},
            "directory": {"type": "path", "required": True},
            "release": {"type": "path", "required": True},
            "version": {"type": "str", "required": True},
            "data_dir": {"type": "path", "required": True},
            "backup_dir": {"type": "path", "required": True},
            "name": {"type": "str", "default": ""},
        },
        supports_check_mode=True,
    )
    options = module.params
    mark = read_mark(options["directory"])
    name = options["name"] or str(mark.get("backup", ""))
    half = restore_data if options["state"] == "data" else restore_database
    try:
        if module.check_mode:
            backup = choose(options["backup_dir"], name)
            if options["state"] == "data" and not mark:
                require_empty(Path(options["data_dir"]), read_record(options["directory"]))
            module.exit_json(changed=True, backup=str(backup))
        backup = choose(options["backup_dir"], name)
        changed = half(options, backup)
    except (RestoreError, DumpError, OSError, ValueError, EOFError) as error:
        module.fail_json(msg=f"Harbor's backup was not restored: {error}.")
    module.exit_json(
        changed=changed, backup=str(backup), clusterctl={"facts": {"backup": {"backup": str(backup)}}}
    )


if __name__ == "__main__":
    main()
