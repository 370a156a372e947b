"""A backup of Harbor in a directory that another user or machine may write: it goes where it was begun."""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, BinaryIO

import pytest
from ansible_collections.clusterctl.cluster.plugins.module_utils import harbor_copy, trusted_directory
from ansible_collections.clusterctl.cluster.plugins.module_utils import harbor_kept as kept
from ansible_collections.clusterctl.cluster.plugins.module_utils.node_files import open_below
from ansible_collections.clusterctl.cluster.plugins.modules import harbor_backup
from tests.support.played_module import PlayedModule

NOBODY = 65534
PR_SET_DUMPABLE = 4
LAYER = b"* * * * * root touch /planted\n"
BLOBS = "registry/docker/registry/v2/blobs/sha256"
DOCKER = """#!/bin/sh
echo "create table project ();"
echo "-- PostgreSQL database dump complete"
"""
# Another tree in the place of a backup that is being taken: files to write into, a link to root's directory.
EXCHANGE = """
for one in *.partial; do
    mv "$one" away && mkdir -p "$one/data/$1" && ln -s "$3" "$one/data/$1/$2" || exit 1
    for file in harbor.yml database.sql.gz files.jsonl manifest.json; do :>"$one/$file"; done
    chmod -R a+rwX "$one"
done
"""

pytestmark = pytest.mark.needs("root")


@dataclass(frozen=True)
class Site:
    """An installed Harbor, and a directory for backups that a group may write."""

    root: Path

    @property
    def backups(self) -> Path:
        return self.root / "backups"

    def take(self) -> dict[str, Any]:
        harbor = SimpleNamespace(read_only=lambda: False, set_read_only=lambda _: None)
        options = {
            "directory": str(self.root / "opt"),
            "data_dir": str(self.root / "data"),
            "backup_dir": str(self.backups),
            "database": "own",
            "storage": "filesystem",
            "keep": 0,
            "insist_s": 0,
        }
        return harbor_backup.take(PlayedModule(options), harbor)  # type: ignore[arg-type]


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    # Not below pytest's own directory, which only root may enter.
    root = Path(tempfile.mkdtemp())
    root.chmod(0o755)
    found, name = Site(root), hashlib.sha256(LAYER).hexdigest()
    files = {
        f"data/{BLOBS}/{name[:2]}/{name}/data": LAYER,
        "data/secret/keys/secretkey": b"0123456789abcdef",
        "opt/release/harbor.yml": b"harbor_admin_password: x\n",
        "opt/installed.json": json.dumps(
            {"version": "v2.15.2", "release": str(root / "opt/release"), "state": "installed"}
        ).encode(),
        "bin/docker": DOCKER.encode(),
    }
    for inside, content in files.items():
        (root / inside).parent.mkdir(parents=True, exist_ok=True)
        (root / inside).write_bytes(content)
    (root / "bin/docker").chmod(0o755)
    found.backups.mkdir()
    os.chown(found.backups, 0, NOBODY)
    found.backups.chmod(0o770)
    monkeypatch.setenv("PATH", f"{root}/bin:{os.environ['PATH']}")
    yield found
    shutil.rmtree(root)


@pytest.fixture
def remote(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another machine keeps all disks."""
    monkeypatch.setattr(trusted_directory, "is_remote", lambda _: True)


def test_a_directory_that_a_group_may_write_is_refused(site: Site) -> None:
    with pytest.raises(PermissionError, match="may be written by others than root"):
        site.take()
    assert not list(site.backups.iterdir())


@pytest.mark.usefixtures("remote")
@pytest.mark.parametrize("number", [1, 3], ids=["first-pass", "second-pass"])
def test_a_directory_that_is_exchanged_while_it_is_written_leads_nowhere(
    site: Site, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    roots = site.root / "cron.d"
    roots.mkdir()
    name = hashlib.sha256(LAYER).hexdigest()
    calls = []

    def exchanging(root: Path, inside: str) -> BinaryIO:
        calls.append(inside)
        if len(calls) == number:
            words = ["/bin/sh", "-c", EXCHANGE, "sh", f"{BLOBS}/{name[:2]}", name, str(roots)]
            subprocess.run(words, cwd=site.backups, user=NOBODY, group=NOBODY, extra_groups=[], check=True)
        return open_below(root, inside)

    monkeypatch.setattr(harbor_copy, "open_below", exchanging)
    with pytest.raises(harbor_backup.BackupError, match="was exchanged for another one"):
        site.take()
    assert len(calls) >= number
    assert not list(roots.iterdir())
    (planted,) = (one for one in site.backups.iterdir() if one.name != "away")
    assert not any(one.stat().st_size for one in planted.rglob("*") if one.is_file())
    assert kept.wrong(site.backups / "away") == []


@contextmanager
def squashed() -> Iterator[None]:
    """Root's files are another's, and root may what that one may, as where a server squashes root."""
    libc = ctypes.CDLL(None)
    libc.setfsgid(NOBODY)
    libc.setfsuid(NOBODY)
    try:
        yield
    finally:
        libc.setfsuid(0)
        libc.setfsgid(0)
        libc.prctl(PR_SET_DUMPABLE, 1, 0, 0, 0)


@pytest.mark.usefixtures("remote")
def test_backups_go_to_a_server_that_squashes_root(site: Site) -> None:
    for place in (site.backups, site.root / "opt"):
        os.chown(place, NOBODY, NOBODY)
    with squashed():
        first = Path(site.take()["backup"])
        second = first.rename(first.with_name("20200101T000000Z"))
        third = Path(site.take()["backup"])
        assert kept.wrong(third) == []
    name = hashlib.sha256(LAYER).hexdigest()
    blob = f"data/{BLOBS}/{name[:2]}/{name}/data"
    assert {one.stat().st_uid for one in (third, *third.rglob("*"))} == {NOBODY}
    assert (third / blob).samefile(second / blob)
    with kept.chosen_backup(site.backups, "") as (name, place):
        assert name == third.name
        assert place.samefile(third)
