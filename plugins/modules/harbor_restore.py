#!/usr/bin/python
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see plugins/LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A backup of Harbor put back on an empty host: data and database before Harbor runs, writable at the end."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.clusterctl.cluster.plugins.module_utils import harbor_kept as kept
from ansible_collections.clusterctl.cluster.plugins.module_utils.bounded import TIMED_OUT, run_bounded
from ansible_collections.clusterctl.cluster.plugins.module_utils.harbor_api import Harbor, HarborError, insist
from ansible_collections.clusterctl.cluster.plugins.module_utils.harbor_copy import put_back
from ansible_collections.clusterctl.cluster.plugins.module_utils.harbor_dump import ASK, DumpError, load
from ansible_collections.clusterctl.cluster.plugins.module_utils.harbor_host import (
    PULLING,
    RESTORE,
    compose,
    read_record,
    read_restore,
)
from ansible_collections.clusterctl.cluster.plugins.module_utils.node_files import free_bytes, replace_file

DOCUMENTATION = r"""
module: harbor_restore
short_description: Put a backup of Harbor back on an empty host
description:
  - C(data) verifies the backup and writes images and secrets; it refuses a host with a Harbor or its data.
  - C(database) starts the release's database alone and loads the dump; nothing else of Harbor runs yet.
  - C(finished) is for after the installation; the dump is of a read-only Harbor, which it was not before.
  - An interrupted one resumes where it was, and until its end nothing else may be done with this Harbor.
options:
  state: {description: Which step, type: str, choices: [data, database, finished], required: true}
  directory: {description: Where releases are unpacked, type: path, required: true}
  release: {description: Directory of the release, type: path, required: true}
  version: {description: Release that is declared, type: str, required: true}
  data_dir: {description: Where Harbor keeps its data, type: path, required: true}
  backup_dir:
    description:
      - Where backups are. It, those above it and the backup must be root's, and no link or others' to write.
      - A mount of another machine's disk may belong to anybody, who can then change what is restored.
    type: path
    required: true
  name: {description: The backup; empty means the newest, type: str, default: ""}
  hostname: {description: Harbor's name, type: str, default: ""}
  port: {description: Port of its TLS, type: int, default: 443}
  authority: {description: Authority of its certificate, type: path, default: ""}
  password: {description: The administrator's password, type: str, default: ""}
  insist_s: {description: Seconds to keep trying to make Harbor writable, type: float, default: 180}
  timeout_s: {description: Seconds that images and `prepare` may take, type: int, default: 1800}
author: ["the clusterctl authors"]
"""

EXAMPLES = r"""
- name: Write images and secrets
  clusterctl.cluster.harbor_restore:
    state: data
    directory: /opt/harbor
    release: /opt/harbor/releases/v2.15.2/harbor
    version: v2.15.2
    data_dir: /var/lib/clusterctl/harbor
    backup_dir: /var/backups/clusterctl/harbor
"""

RETURN = r"""
backup: {description: Directory of the backup, returned: always, type: str}
code:
  description: "Stable code of the failure: harbor.restore"
  returned: when the cause is known
  type: str
"""

# How far it is: images are being written, the database is next, Harbor itself is next.
DATA, DATABASE, LOADED = "data", "database", "loaded"
ORDINARY_S = 300
GIGABYTE = 1e9
# What the database needs to run.
BASE = ("log", "postgresql", "redis")
# A new database answers, is started once more by its container, and answers then for good.
ANSWERS, ANSWER_EVERY_S = 3, 1.0


class RestoreError(Exception):
    """The backup cannot be put back here."""


def write_mark(directory: str, **answer: Any) -> None:
    """Write down how far it is."""
    replace_file(Path(directory) / RESTORE, json.dumps(answer, sort_keys=True) + "\n", 0o600)


def require_empty(data_dir: Path, record: dict[str, Any]) -> None:
    """Refuse to write over anything. Raises RestoreError."""
    if record:
        raise RestoreError(f"Harbor {record.get('version')} is installed here; a restore needs an empty host")
    full = [name for name in ("database", *kept.KEPT) if any((data_dir / name).glob("*"))]
    if full:
        places = ", ".join(str(data_dir / name) for name in full)
        raise RestoreError(
            f"{places} is not empty; move it away, or set harbor_data_dir to another directory"
        )


def judge(options: dict[str, Any], backup: Path, mark: dict[str, Any]) -> None:
    """Everything that would refuse this backup here; reads all of it. Raises RestoreError."""
    name = options["name"]
    if mark and mark["backup"] != name:
        raise RestoreError(f"a restore of {mark['backup']} was started here; end that one first (--backup)")
    data_dir = Path(options["data_dir"])
    if not mark:
        require_empty(data_dir, read_record(options["directory"]))
    version = kept.read_manifest(backup)["version"]
    if version != options["version"]:
        raise RestoreError(
            f"{name} is of Harbor {version}, and harbor_version is {options['version']}: set it"
        )
    if found := kept.wrong(backup):
        raise RestoreError(f"{name} differs from the written backup: {'; '.join(found[:3])}")
    wanted = sum(one.size for one in kept.read_files(backup))
    free = free_bytes(data_dir)
    if not mark and free < wanted:
        raise RestoreError(
            f"{data_dir} has {free / GIGABYTE:.1f} GB free, and the backup needs {wanted / GIGABYTE:.1f}"
        )


def restore_data(options: dict[str, Any], backup: Path, *, check: bool) -> bool:
    """Write images and secrets; whether anything was to be done. Raises RestoreError."""
    mark, name = read_restore(options["directory"]), options["name"]
    if mark.get("backup") == name and mark["phase"] in (DATABASE, LOADED):
        return False
    judge(options, backup, mark)
    if not check:
        # The dump is loaded by a later call, or run: it must be the one that belongs to this data.
        sha256 = kept.read_manifest(backup)["database_sha256"]
        write_mark(options["directory"], backup=name, phase=DATA)
        put_back(backup, Path(options["data_dir"]))
        write_mark(options["directory"], backup=name, phase=DATABASE, database_sha256=sha256)
    return True


def run(argv: list[str], what: str, seconds: float = ORDINARY_S) -> str:
    """Run a program; its standard output. Raises RestoreError."""
    rc, out, err = run_bounded(argv, seconds)
    if rc != 0:
        raise RestoreError(f"{what}: {last_words(rc, out, err)}")
    return out


def last_words(rc: int, out: str, err: str) -> str:
    """What a program said at its end."""
    message = " ".join((err or out).strip().splitlines()[-2:])
    return f"{message} ({PULLING})" if rc == TIMED_OUT else message


def start_database(options: dict[str, Any]) -> None:
    """Have the release's database run, and nothing that writes into it. Raises RestoreError."""
    release, seconds = options["release"], options["timeout_s"]
    for images in sorted(Path(release).glob("harbor*.tar.gz")):
        run(["docker", "load", "-i", str(images)], "Harbor's images do not load", seconds)
    run([f"{release}/prepare"], "Harbor's settings cannot be prepared", seconds)
    there = run(compose(release, "config", "--services"), "Harbor's parts cannot be read").split()
    if "postgresql" not in there:
        raise RestoreError(f"{release}/docker-compose.yml has no database of Harbor's own")
    wanted = [name for name in BASE if name in there]
    # Docker does not start what finds no log collector yet.
    wait_for(compose(release, "up", "-d", *wanted), 1, "Harbor's database does not start", seconds)
    wait_for(ASK, ANSWERS, "Harbor's database does not answer")


def wait_for(argv: list[str], times: int, what: str, seconds: float = ORDINARY_S) -> None:
    """Run a program until it succeeded so many times in a row. Raises RestoreError after ``seconds``."""
    good, deadline = 0, time.monotonic() + seconds
    while True:
        rc, out, err = run_bounded(argv, seconds)
        good = good + 1 if rc == 0 else 0
        if good == times:
            return
        if rc != 0 and time.monotonic() > deadline:
            raise RestoreError(f"{what}: {last_words(rc, out, err)}")
        time.sleep(ANSWER_EVERY_S)  # neither Docker nor the database tells when it answers for good


def restore_database(options: dict[str, Any], backup: Path, *, check: bool) -> bool:
    """Load the dump before Harbor runs; whether it was to be done. Raises RestoreError or DumpError."""
    mark = read_restore(options["directory"])
    phase = mark.get("phase")
    if phase == LOADED:
        return False
    if check:
        return True
    if phase != DATABASE:
        raise RestoreError("images and secrets were not written yet")
    manifest = kept.read_manifest(backup)
    if manifest["database"] == "own":
        # It was verified a while ago: Docker and the installer were provided since. A restore that an
        # earlier release began wrote no SHA-256 down.
        sha256 = mark.get("database_sha256", manifest["database_sha256"])
        for why in kept.wrong_dump(backup, sha256):
            raise RestoreError(f"{options['name']} is not the backup whose images were restored: {why}")
        start_database(options)
        load(backup / kept.DUMP)
    write_mark(options["directory"], backup=options["name"], phase=LOADED)
    return True


def finish(options: dict[str, Any], backup: Path, *, check: bool) -> bool:
    """Have pushes allowed as before the backup, and the restore at its end. Raises HarborError."""
    phase = read_restore(options["directory"]).get("phase")
    if check:
        return True
    if phase != LOADED:
        raise RestoreError("the database was not loaded yet")
    before = bool(kept.read_manifest(backup).get("read_only_before"))
    harbor = Harbor(options["hostname"], options["port"], options["authority"], "admin", options["password"])
    insist(lambda: harbor.set_read_only(before), options["insist_s"])
    (Path(options["directory"]) / RESTORE).unlink()
    return True


STEPS = {"data": restore_data, "database": restore_database, "finished": finish}


def main() -> None:
    """Ansible's entry."""
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": list(STEPS), "required": True},
            "directory": {"type": "path", "required": True},
            "release": {"type": "path", "required": True},
            "version": {"type": "str", "required": True},
            "data_dir": {"type": "path", "required": True},
            "backup_dir": {"type": "path", "required": True},
            "name": {"type": "str", "default": ""},
            "hostname": {"type": "str", "default": ""},
            "port": {"type": "int", "default": 443},
            "authority": {"type": "path", "default": ""},
            "password": {"type": "str", "default": "", "no_log": True},
            "insist_s": {"type": "float", "default": 180.0},
            "timeout_s": {"type": "int", "default": 1800},
        },
        supports_check_mode=True,
    )
    options = module.params
    try:
        wanted = options["name"] or str(read_restore(options["directory"]).get("backup", ""))
        with kept.chosen_backup(Path(options["backup_dir"]), wanted) as (name, place):
            changed = STEPS[options["state"]]({**options, "name": name}, place, check=module.check_mode)
    except (RestoreError, DumpError, HarborError, OSError, ValueError, EOFError) as error:
        begun = (Path(options["directory"]) / RESTORE).is_file()
        rest = "The next restore continues from there" if begun else "Nothing was touched"
        module.fail_json(msg=f"Harbor's backup was not restored: {error}. {rest}.", code="harbor.restore")
    backup = str(Path(options["backup_dir"], name))
    module.exit_json(changed=changed, backup=backup, clusterctl={"facts": {"backup": {"backup": backup}}})


if __name__ == "__main__":
    main()
