"""A backup of Harbor put back: whole, on an empty host, as writable as before, whatever cuts it off."""

from __future__ import annotations

import gzip
import json
import shutil
from types import SimpleNamespace

import pytest
from ansible_collections.clusterctl.cluster.plugins.module_utils import harbor_kept as kept
from ansible_collections.clusterctl.cluster.plugins.modules import harbor_restore

from .harbor_player import Played


def emptied(harbor: Played) -> None:
    """The host as a new one, with the backups alone."""
    shutil.rmtree(harbor.data)
    (harbor.root / "opt/installed.json").unlink()
    (harbor.root / "asked").unlink(missing_ok=True)


def test_a_backup_comes_back_whole_on_an_empty_host(harbor: Played) -> None:
    before = {
        str(p.relative_to(harbor.data)): (p.read_bytes(), p.stat().st_mode)
        for p in kept.files_of(harbor.data)
    }
    harbor.taken()
    emptied(harbor)
    assert harbor.restore("data")["changed"] is True
    after = {
        str(p.relative_to(harbor.data)): (p.read_bytes(), p.stat().st_mode)
        for p in kept.files_of(harbor.data)
    }
    assert after == before
    assert harbor.restore("data")["changed"] is False
    assert harbor.restore("database")["changed"] is True
    loaded = (harbor.root / "database.sql.loaded").read_text(encoding="utf-8")
    assert loaded.startswith("BEGIN;\ncreate table project ();")
    assert harbor.did() == ["load", "prepare", "up log postgresql redis", "psql"], "the database alone"
    assert harbor.restore("database")["changed"] is False
    assert harbor.restore("finished")["changed"] is True
    assert not (harbor.root / "opt/restore.json").exists()


def test_a_database_that_finds_no_log_collector_yet_is_started_again(harbor: Played) -> None:
    harbor.taken()
    emptied(harbor)
    harbor.restore("data")
    (harbor.root / "asked.deaf").touch()
    assert harbor.restore("database")["changed"] is True
    up = "up log postgresql redis"
    assert harbor.did() == ["load", "prepare", up, up, "psql"]


def test_parts_that_are_pulled_have_the_installers_time_and_a_message_that_names_them(harbor: Played) -> None:
    harbor.taken()
    emptied(harbor)
    harbor.restore("data")
    for images in (harbor.root / "opt/release").glob("harbor*.tar.gz"):
        images.unlink()
    (harbor.root / "asked.slow").touch()
    late = harbor.restore("database", timeout_s=1)["msg"]
    assert "Harbor's database does not start: docker-compose did not end within 1 s" in late
    assert "images may still be being pulled" in late
    assert "The next restore continues from there" in late
    (harbor.root / "asked.slow").unlink()
    assert harbor.restore("database")["changed"] is True
    assert "load" not in harbor.did(), "an online installer has no images in it"


@pytest.mark.parametrize("before", [False, True])
def test_a_restored_harbor_is_as_writable_as_it_was_before_its_backup(harbor: Played, before: bool) -> None:
    harbor.read_only = before
    harbor.taken()
    emptied(harbor)
    harbor.restore("data")
    harbor.restore("database")
    harbor.read_only = True  # the dump was taken of a read-only Harbor
    harbor.history.clear()
    assert harbor.restore("finished")["changed"] is True
    assert harbor.history == [before]


def test_nothing_else_is_done_with_a_harbor_that_is_half_restored(harbor: Played) -> None:
    record = (harbor.root / "opt/installed.json").read_text(encoding="utf-8")
    harbor.taken()
    emptied(harbor)
    harbor.restore("data")
    harbor.restore("database")
    (harbor.root / "opt/installed.json").write_text(record, encoding="utf-8")
    looked = {"directory": str(harbor.root / "opt"), "data_dir": str(harbor.data), "version": "v2.15.2",
              "ports": {}, "min_free_gb": 0}  # fmt: skip
    told = "`clusterctl registry restore` completes it"
    assert told in harbor.backup()["msg"]
    assert told in harbor.backup(check=True)["msg"]
    assert told in harbor.module("harbor_preflight", looked, check=False)["msg"]
    assert told in harbor.module("harbor_preflight", {**looked, "upgrade": True}, check=False)["msg"]
    assert "failed" not in harbor.module("harbor_preflight", {**looked, "restoring": True}, check=False)
    harbor.refuses = True
    assert "The next restore continues from there" in harbor.restore("finished")["msg"]
    harbor.refuses = False
    harbor.restore("finished")
    assert "failed" not in harbor.module("harbor_preflight", looked, check=False)


def test_a_restore_may_meet_its_own_data_and_database_before_anything_is_installed(harbor: Played) -> None:
    harbor.taken()
    emptied(harbor)
    harbor.restore("data")
    (harbor.data / "database/pg15").mkdir(parents=True)
    looked = {"directory": str(harbor.root / "opt"), "data_dir": str(harbor.data), "version": "v2.15.2",
              "ports": {}, "min_free_gb": 10**9, "restoring": True}  # fmt: skip
    assert "failed" not in harbor.module("harbor_preflight", looked, check=False)


def test_a_host_that_is_not_empty_is_refused(harbor: Played) -> None:
    harbor.taken()
    assert "Harbor v2.15.2 is installed here" in harbor.restore("data")["msg"]
    (harbor.root / "opt/installed.json").unlink()
    assert "is not empty" in harbor.restore("data")["msg"]
    answer = harbor.restore("data", check=True)
    assert "is not empty" in answer["msg"]
    assert "Nothing was touched" in answer["msg"]


def test_a_backup_of_another_release_or_a_damaged_one_is_refused(harbor: Played) -> None:
    backup = harbor.taken()
    emptied(harbor)
    assert (
        "is of Harbor v2.15.2, and harbor_version is v2.14.0"
        in harbor.restore("data", version="v2.14.0")["msg"]
    )
    assert "there is no backup 20200101T000000Z" in harbor.restore("data", name="20200101T000000Z")["msg"]
    assert "harbor_version is v2.14.0" in harbor.restore("data", version="v2.14.0", check=True)["msg"]
    (backup / kept.DUMP).write_bytes(b"")
    assert "differs from the written backup" in harbor.restore("data")["msg"]
    assert "differs from the written backup" in harbor.restore("data", check=True)["msg"]
    assert not harbor.data.exists()


@pytest.mark.parametrize("mode", [0o777, 0o1777])
def test_a_backup_in_a_directory_of_others_is_not_restored(harbor: Played, mode: int) -> None:
    """Without a name the newest counts: the one of whoever chooses the last of all dates."""
    backup = harbor.taken()
    emptied(harbor)
    harbor.backups.chmod(mode)
    for answer in (
        harbor.restore("data"), harbor.restore("data", check=True), harbor.restore("data", name=backup.name),
        harbor.backup(state="verified"),
    ):  # fmt: skip
        assert f"{harbor.backups} may be written by others than root" in answer["msg"]
    assert not harbor.data.exists()


def test_a_backup_that_others_can_change_is_not_restored(harbor: Played) -> None:
    backup = harbor.taken()
    emptied(harbor)
    backup.chmod(0o770)
    why = f"{backup} may be written by others than root, who decides what is restored from it"
    assert why in harbor.restore("data")["msg"]
    assert why in harbor.backup(state="verified")["msg"]
    elsewhere = backup.rename(harbor.root / backup.name)
    backup.symlink_to(elsewhere)
    assert "there is no backup yet" in harbor.restore("data")["msg"]
    assert not harbor.data.exists()


def test_a_dump_that_was_changed_since_the_images_came_is_not_loaded(harbor: Played) -> None:
    backup = harbor.taken()
    emptied(harbor)
    harbor.restore("data")
    (backup / kept.DUMP).write_bytes(b"")
    assert f"{kept.DUMP} is gone or was changed" in harbor.restore("database")["msg"]
    assert harbor.did() == []


@pytest.mark.parametrize("part", [f"{kept.DATA}/secret", kept.DUMP])
def test_a_backup_of_which_others_can_change_a_part_is_not_restored(harbor: Played, part: str) -> None:
    backup = harbor.taken()
    emptied(harbor)
    (backup / part).chmod(0o770)
    why = f"{backup / part} may be written by others than root, who decides what is restored from it"
    assert why in harbor.restore("data")["msg"]
    assert why in harbor.backup(state="verified")["msg"]
    assert not harbor.data.exists()


@pytest.mark.parametrize("earlier_release", [False, True])
def test_only_the_dump_of_the_backup_whose_images_came_is_loaded(
    harbor: Played, earlier_release: bool
) -> None:
    backup = harbor.taken()
    emptied(harbor)
    harbor.restore("data")
    if earlier_release:
        mark = {"backup": backup.name, "phase": "database"}
        (harbor.root / "opt/restore.json").write_text(json.dumps(mark), encoding="utf-8")
    with gzip.open(backup / kept.DUMP, "wb") as stream:
        stream.write(b"drop table project;\n" + kept.DUMPED)
    kept.write_manifest(backup, kept.read_manifest(backup))
    answer = harbor.restore("database")
    if earlier_release:
        assert answer["changed"] is True
    else:
        assert "is not the backup whose images were restored: database.sql.gz" in answer["msg"]
        assert harbor.did() == []


def test_a_disk_that_is_too_small_for_a_backup_is_refused_in_check_mode_too(
    harbor: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    backup = harbor.taken()
    emptied(harbor)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=3))
    options = {**harbor.params(), "version": "v2.15.2", "name": backup.name}
    with pytest.raises(harbor_restore.RestoreError, match="the backup needs"):
        harbor_restore.restore_data(options, backup, check=True)
    assert not harbor.data.exists()


def test_a_restore_that_was_cut_off_goes_on(harbor: Played) -> None:
    backup = harbor.taken()
    emptied(harbor)
    (harbor.root / "opt/restore.json").write_text(
        json.dumps({"backup": backup.name, "phase": "data"}), encoding="utf-8"
    )
    (harbor.data / "registry").mkdir(parents=True)
    (harbor.data / "registry/.half.new").touch()
    assert harbor.restore("data")["changed"] is True
    (harbor.root / "asked.refuse").touch()
    assert "the database does not take the dump: ERROR: no" in harbor.restore("database")["msg"]
    (harbor.root / "asked.refuse").unlink()
    assert "the database was not loaded yet" in harbor.restore("finished")["msg"]
    assert harbor.restore("database")["changed"] is True
    assert harbor.restore("finished")["changed"] is True
    assert "images and secrets were not written yet" in harbor.restore("database")["msg"]
