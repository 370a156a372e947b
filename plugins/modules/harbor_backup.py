#!/usr/bin/python
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see plugins/LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A backup of Harbor: read-only for as short as it can be, and writable again however it ends."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.clusterctl.cluster.plugins.module_utils import harbor_copy
from ansible_collections.clusterctl.cluster.plugins.module_utils import harbor_kept as kept
from ansible_collections.clusterctl.cluster.plugins.module_utils.bounded import alone
from ansible_collections.clusterctl.cluster.plugins.module_utils.harbor_api import Harbor, HarborError, insist
from ansible_collections.clusterctl.cluster.plugins.module_utils.harbor_dump import DumpError, dump
from ansible_collections.clusterctl.cluster.plugins.module_utils.harbor_host import (
    INSTALLED,
    UPGRADING,
    read_record,
    why_half_restored,
)
from ansible_collections.clusterctl.cluster.plugins.module_utils.node_files import (
    free_bytes,
    pinned,
    replace_file,
)
from ansible_collections.clusterctl.cluster.plugins.module_utils.trusted_directory import (
    new_directory,
    trusted_directory,
)

DOCUMENTATION = r"""
module: harbor_backup
short_description: Back Harbor up, verify a backup, or make Harbor writable again
description:
  - Everything is copied while Harbor is written to; then it is read-only while the database is dumped and
    what changed meanwhile is copied. It is made writable again however that ends.
  - A blob that an earlier backup has whole is linked to, where the file system can; the live one is read all
    the same, and told where it is damaged. A backup has its name only once it is whole and verified.
options:
  state:
    description: What to do; C(writable) ends a read-only mode that an earlier backup could not end
    type: str
    choices: [taken, verified, writable]
    default: taken
  directory: {description: Where releases are unpacked, type: path, required: true}
  data_dir: {description: Where Harbor keeps its data, type: path, required: true}
  backup_dir:
    description:
      - Where backups are. It and those above it must be root's, and no link or others' to write.
      - A mount of another machine's disk may belong to anybody, who can then read and change backups.
    type: path
    required: true
  name: {description: Backup to verify; empty means the newest, type: str, default: ""}
  keep: {description: Backups that are kept; 0 keeps all, type: int, default: 0}
  database:
    description: Whether the database is Harbor's own; an external one is backed up by who runs it
    type: str
    choices: [own, external]
    default: own
  storage:
    description: What keeps images; what is not a file of this host is backed up by who runs it
    type: str
    default: filesystem
  hostname: {description: Harbor's name, type: str, required: true}
  port: {description: Port of its TLS, type: int, default: 443}
  authority: {description: Authority of its certificate, type: path, default: ""}
  password: {description: The administrator's password, type: str, default: ""}
  insist_s: {description: Seconds to keep trying to make Harbor writable again, type: float, default: 180}
author: ["the clusterctl authors"]
"""

EXAMPLES = r"""
- name: Back Harbor up
  clusterctl.cluster.harbor_backup:
    directory: /opt/harbor
    data_dir: /var/lib/clusterctl/harbor
    backup_dir: /var/backups/clusterctl/harbor
    hostname: registry01
    password: "{{ password }}"
"""

RETURN = r"""
backup: {description: Directory of the backup, returned: with a backup, type: str}
damaged: {description: Blobs that are damaged in Harbor, returned: with a backup, type: list}
code: {description: "Stable code of the failure: harbor.backup", returned: when the cause is known, type: str}
"""

READ_ONLY = "read-only.json"
LOCK_S = 5
# A host that shuts down, and a connection that is lost.
ENDS = (signal.SIGTERM, signal.SIGHUP)
GIGABYTE = 1e9
# A dump is about as large as its database, and gzip makes it smaller.
SPARE_BYTES = 1 << 30


class BackupError(Exception):
    """The backup could not be taken."""


@contextmanager
def read_only(harbor: Harbor, directory: str, insist_s: float) -> Iterator[bool]:
    """Nobody pushes meanwhile; gives what was before.

    That is written down first, for the case that we are killed.
    """
    before = harbor.read_only()
    mark = Path(directory) / READ_ONLY
    if mark.is_file():
        before = bool(json.loads(mark.read_text(encoding="utf-8"))["before"])
    replace_file(mark, json.dumps({"before": before}) + "\n", 0o600)
    try:
        harbor.set_read_only(True)
        yield before
    finally:
        writable(harbor, directory, insist_s)


def ended_like_failed() -> None:
    """Have what ends us make Harbor writable first, as a failure does; asked twice, it is the same once."""

    def end(number: int, _frame: Any) -> None:
        for one in ENDS:
            signal.signal(one, signal.SIG_IGN)
        raise BackupError(f"it was ended by {signal.Signals(number).name}")

    for one in ENDS:
        signal.signal(one, end)


def writable(harbor: Harbor, directory: str, insist_s: float) -> bool:
    """Put back what was before a backup; whether there was anything to put back.

    Raises HarborError where Harbor refuses that for ``insist_s`` seconds.
    """
    mark = Path(directory) / READ_ONLY
    if not mark.is_file():
        return False
    before = bool(json.loads(mark.read_text(encoding="utf-8"))["before"])
    insist(lambda: harbor.set_read_only(before), insist_s)
    mark.unlink()
    return True


def require_room(data: Path, directory: Path, before: Path | None) -> None:
    """Refuse to start what would not fit. Raises BackupError."""
    linked = before if before and harbor_copy.can_link(directory) else None
    earlier = kept.read_files(linked) if linked else ()
    known = {one.path: one.size for one in earlier if kept.BLOB.search(f"/{one.path}")}
    wanted = SPARE_BYTES
    for path in kept.files_of(data):
        size, inside = path.stat().st_size, str(path.relative_to(data))
        wanted += 0 if known.get(inside) == size else size
    free = free_bytes(directory)
    if free < wanted:
        raise BackupError(
            f"harbor_backup_dir has {free / GIGABYTE:.1f} GB free, and the backup needs "
            f"{wanted / GIGABYTE:.1f}: free space, or set it to another disk"
        )


def new_name() -> str:
    """A backup that is taken now goes by this."""
    return datetime.now(timezone.utc).strftime("%Y%m%dT%H%M%SZ")


def require_newest(name: str, earlier: list[Path]) -> None:
    """Refuse a backup that would not be the newest: it would be removed first, and an older one restored.

    Raises BackupError.
    """
    if earlier and earlier[-1].name >= name:
        raise BackupError(
            f"the backup {earlier[-1].name} in harbor_backup_dir is not older than this host's clock "
            f"({name}): correct the clock, or, if it is right now, rename that backup to when it was taken, "
            "or remove it"
        )


def linkable(module: AnsibleModule, name: str, backup: Path) -> Path | None:
    """An earlier backup, whose layers are linked to; none where its list cannot be read."""
    try:
        for _ in kept.read_files(backup):
            pass
    except (OSError, ValueError) as error:
        module.warn(f"the list of the backup {name} cannot be read, and nothing of it is shared: {error}")
        return None
    return backup


def require_installed(directory: str) -> dict[str, Any]:
    """What is installed. Raises BackupError where nothing is, or half of it."""
    if why := why_half_restored(directory):
        raise BackupError(why)
    record = read_record(directory)
    if record.get("state") not in (INSTALLED, UPGRADING):
        raise BackupError("no Harbor of ours is installed here, or its installation did not complete")
    return record


def take(module: AnsibleModule, harbor: Harbor) -> dict[str, Any]:
    """Take a backup and verify it. Raises BackupError, DumpError, HarborError or OSError.

    Another machine may keep the directory of backups, and exchange what is in it meanwhile.
    """
    options = module.params
    require_installed(options["directory"])
    with ExitStack() as opened:
        directory = opened.enter_context(trusted_directory(Path(options["backup_dir"]), make=True))
        kept.prune(directory, 0)
        earlier = kept.backups(directory)
        name = new_name()
        require_newest(name, earlier)
        before = None
        if earlier:
            before = linkable(module, earlier[-1].name, opened.enter_context(pinned(earlier[-1])))
        require_room(Path(options["data_dir"]), directory, before)
        backup = directory / f"{name}{kept.PARTIAL}"
        place = opened.enter_context(new_directory(backup))
        answer, copied = write_backup(options, harbor, name, place, before)
        if found := kept.wrong(place):
            raise BackupError(f"verification failed: {'; '.join(found[:3])}")
        require_same(backup, place)
        backup.rename(directory / name)
        require_same(directory / name, place)
        removed = kept.prune(directory, options["keep"])
    return {**answer, "backup": str(Path(options["backup_dir"]) / name),
            "damaged": harbor_copy.damaged(copied), "removed": removed}  # fmt: skip


def require_same(path: Path, place: Path) -> None:
    """Raises BackupError where what has this name is not the backup that was written."""
    if not os.path.samestat(path.lstat(), place.stat()):
        raise BackupError(f"{path.name} was exchanged for another one while the backup was taken")


def write_backup(
    options: dict[str, Any], harbor: Harbor, name: str, place: Path, before: Path | None
) -> tuple[dict[str, Any], dict[str, harbor_copy.Copied]]:
    """Write all of a backup but its name; what is said of it, and its files. Raises as take does."""
    record, data = read_record(options["directory"]), Path(options["data_dir"])
    first = harbor_copy.copy_tree(data, place / kept.DATA, before)
    began = time.monotonic()
    with read_only(harbor, options["directory"], options["insist_s"]) as was_read_only:
        if options["database"] == "own":
            dump(place / kept.DUMP)
        copied = harbor_copy.copy_tree(data, place / kept.DATA, before, first)
    files = [one.kept for one in copied.values()]
    seconds = round(time.monotonic() - began, 1)
    kept.write_files(place, files)
    kept.write_file(place, "harbor.yml", [(Path(record["release"]) / "harbor.yml").read_bytes()])
    answer = {
        "version": record["version"],
        "created": name,
        "database": options["database"],
        "storage": options["storage"],
        "files": len(files),
        "bytes": sum(one.size for one in files),
        "read_only_s": seconds,
        # The dump was made of a read-only Harbor: whoever restores it needs what was before.
        "read_only_before": was_read_only,
    }
    kept.write_manifest(place, answer)
    return answer, copied


def verify(module: AnsibleModule) -> dict[str, Any]:
    """Read a whole backup again. Raises BackupError, OSError or ValueError."""
    directory = Path(module.params["backup_dir"])
    with kept.chosen_backup(directory, module.params["name"]) as (name, place):
        if found := kept.wrong(place):
            more = f", and {len(found) - 3} more" if len(found) > 3 else ""
            told = f"{'; '.join(found[:3])}{more}"
            raise BackupError(f"{directory / name} differs from the written backup: {told}")
        manifest = kept.read_manifest(place)
        keys = ("version", "created", "database", "storage", "files", "bytes")
        record = {key: manifest[key] for key in keys if key in manifest}
        damaged = kept.damaged(kept.read_files(place))
    return {**record, "backup": str(directory / name), "damaged": damaged}


def main() -> None:
    """Ansible's entry."""
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["taken", "verified", "writable"], "default": "taken"},
            "directory": {"type": "path", "required": True},
            "data_dir": {"type": "path", "required": True},
            "backup_dir": {"type": "path", "required": True},
            "name": {"type": "str", "default": ""},
            "keep": {"type": "int", "default": 0},
            "database": {"type": "str", "choices": ["own", "external"], "default": "own"},
            "storage": {"type": "str", "default": "filesystem"},
            "hostname": {"type": "str", "required": True},
            "port": {"type": "int", "default": 443},
            "authority": {"type": "path", "default": ""},
            "password": {"type": "str", "default": "", "no_log": True},
            "insist_s": {"type": "float", "default": 180.0},
        },
        supports_check_mode=True,
    )
    options, state = module.params, module.params["state"]
    harbor = Harbor(options["hostname"], options["port"], options["authority"], "admin", options["password"])
    try:
        if module.check_mode and state == "taken":
            require_installed(options["directory"])
            # What refuses it, does so in check mode too.
            with (
                suppress(FileNotFoundError),
                trusted_directory(Path(options["backup_dir"]), make=False) as directory,
            ):
                require_newest(new_name(), kept.backups(directory))
        if module.check_mode and state != "verified":
            pending = (Path(options["directory"]) / READ_ONLY).is_file()
            module.exit_json(changed=state == "taken" or pending)
        ended_like_failed()
        with alone("harbor-backup", LOCK_S):
            if state == "writable":
                module.exit_json(changed=writable(harbor, options["directory"], options["insist_s"]))
            answer = take(module, harbor) if state == "taken" else verify(module)
    except (BackupError, DumpError, HarborError, OSError, ValueError) as error:
        still = (Path(options["directory"]) / READ_ONLY).is_file()
        after = " HARBOR IS STILL READ-ONLY: the next apply or backup ends that." if still else ""
        verb = "verified" if state == "verified" else "ended" if state == "writable" else "taken"
        module.fail_json(msg=f"Harbor's backup could not be {verb}: {error}.{after}", code="harbor.backup")
    module.exit_json(
        changed=state == "taken",
        backup=answer["backup"],
        damaged=answer["damaged"],
        clusterctl={"facts": {"backup": answer}},
    )


if __name__ == "__main__":
    main()
