"""A backup of Harbor is whole, verified and short of read-only; what was changed since is found."""

from __future__ import annotations

import gzip
import json
import shutil
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest
from ansible_collections.clusterctl.cluster.plugins.module_utils import harbor_kept as kept

from .harbor_player import HOSTNAME, PLUGINS, START, Played


def test_a_backup_has_images_secrets_and_database_and_is_roots_alone(harbor: Played) -> None:
    backup = harbor.taken()
    assert harbor.history == [True, False]
    assert stat.S_IMODE(backup.stat().st_mode) == 0o700
    assert (backup / "data/secret/keys/secretkey").read_text(encoding="utf-8") == "0123456789abcdef"
    assert b"create table project" in gzip.decompress((backup / kept.DUMP).read_bytes())
    assert kept.wrong(backup) == []
    manifest = kept.read_manifest(backup)
    assert (manifest["version"], manifest["files"]) == ("v2.15.2", 2)
    assert not list(harbor.backups.glob("*.partial"))


def test_a_layer_that_an_earlier_backup_has_is_not_copied_again(harbor: Played, tmp_path: Path) -> None:
    first = harbor.taken()
    harbor.blob(b"another layer")
    time.sleep(1.1)  # a backup is named by its second
    second = harbor.taken()
    inside = [path.relative_to(second) for path in second.rglob("data") if path.is_file()]
    shared = [path for path in inside if (first / path).is_file()]
    assert (len(inside), len(shared)) == (2, 1)
    assert (first / shared[0]).samefile(second / shared[0])
    shutil.rmtree(first)
    assert kept.wrong(second) == []


@pytest.mark.parametrize("name", [kept.DUMP, kept.FILES, "data/secret/keys/secretkey", kept.MANIFEST, "blob"])
@pytest.mark.parametrize("how", ["changed", "gone"])
def test_whatever_was_changed_since_is_found(harbor: Played, name: str, how: str) -> None:
    backup = harbor.taken()
    blobs = [path for path in (backup / "data/registry").rglob("data") if path.is_file()]
    path = blobs[0] if name == "blob" else backup / name
    if how == "gone":
        path.unlink()
    elif name == kept.MANIFEST:
        path.write_text("{}", encoding="utf-8")
    else:
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(bytes(content))
    assert kept.wrong(backup)
    answer = harbor.backup(state="verified", name=backup.name)
    assert answer["failed"]
    assert "could not be verified" in answer["msg"]


def test_a_whole_backup_is_verified_without_asking_harbor(harbor: Played) -> None:
    backup = harbor.taken()
    harbor.history.clear()
    answer = harbor.backup(state="verified", port=1)
    assert answer["backup"] == str(backup)
    assert answer["changed"] is False
    assert harbor.history == []


def test_harbor_is_writable_again_where_the_dump_fails_and_no_backup_is_left(harbor: Played) -> None:
    (harbor.root / "asked.cut").touch()
    answer = harbor.backup()
    assert "the database's dump was interrupted" in answer["msg"]
    assert "STILL READ-ONLY" not in answer["msg"]
    assert harbor.history == [True, False]
    assert kept.backups(harbor.backups) == []


def test_a_harbor_that_was_read_only_before_stays_so(harbor: Played) -> None:
    harbor.read_only = True
    harbor.taken()
    assert harbor.history == [True, True]


def test_where_harbor_does_not_become_writable_it_is_said_loudly_and_mended_later(harbor: Played) -> None:
    harbor.refuses = True
    answer = harbor.backup()
    assert "503 the database is starting" in answer["msg"]
    assert "HARBOR IS STILL READ-ONLY" in answer["msg"]
    harbor.refuses = False
    assert harbor.backup(state="writable")["changed"] is True
    assert harbor.read_only is False
    assert harbor.backup(state="writable")["changed"] is False


def read_only_in_a_dump(harbor: Played) -> subprocess.Popen[str]:
    """A backup whose dump takes long, just when Harbor has become read-only."""
    docker = harbor.root / "bin/docker"
    docker.write_text("#!/bin/sh\nexec sleep 60\n", encoding="utf-8")
    told = {
        "hostname": HOSTNAME,
        "port": harbor.port,
        "authority": str(harbor.root / "ca.crt"),
        "password": "Pw",
    }
    process = subprocess.Popen(
        [sys.executable, "-c", START, str(PLUGINS / "modules/harbor_backup.py"), str(harbor.root / "locks")],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        env={"PATH": f"{harbor.root}/bin:/usr/bin:/bin"}, start_new_session=True,
    )  # fmt: skip
    assert process.stdin is not None
    process.stdin.write(json.dumps({"ANSIBLE_MODULE_ARGS": {**harbor.params(), **told}}))
    process.stdin.close()
    deadline = time.monotonic() + 30
    while not harbor.read_only and time.monotonic() < deadline:
        time.sleep(0.05)
    assert harbor.read_only is True
    return process


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGHUP])
def test_a_backup_that_is_ended_makes_harbor_writable_at_once(harbor: Played, how: signal.Signals) -> None:
    process = read_only_in_a_dump(harbor)
    process.send_signal(how)
    process.send_signal(how)
    assert process.stdout is not None
    said = process.stdout.read()
    process.wait(timeout=30)
    assert f"Harbor's backup could not be taken: it was ended by {how.name}." in json.loads(said)["msg"]
    assert harbor.history == [True, False]
    assert not (harbor.root / "opt/read-only.json").exists()


def test_a_backup_that_was_killed_leaves_what_the_next_one_mends(harbor: Played) -> None:
    docker = harbor.root / "bin/docker"
    whole = docker.read_text(encoding="utf-8")
    process = read_only_in_a_dump(harbor)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert harbor.read_only is True
    docker.write_text(whole, encoding="utf-8")
    harbor.taken()
    assert harbor.read_only is False, "what was before the one that was killed counts"
    assert not list(harbor.backups.glob("*.partial"))


def test_a_layer_that_was_damaged_before_is_named(harbor: Played) -> None:
    path = harbor.blob(b"a third layer")
    path.write_bytes(b"a third lAyer")
    answer = harbor.backup()
    assert answer["damaged"] == [f"sha256:{path.parent.name}"]


def test_harbor_becomes_writable_where_it_refuses_that_at_first(harbor: Played) -> None:
    harbor.refusals = 2
    answer = harbor.backup(insist_s=20)
    assert "failed" not in answer, answer["msg"]
    assert harbor.read_only is False


def test_a_dump_that_says_much_does_not_stand_still(harbor: Played) -> None:
    (harbor.root / "asked.loud").touch()
    harbor.taken()


def test_a_manifest_says_where_images_are_that_it_does_not_have(harbor: Played) -> None:
    answer = harbor.backup(storage="s3")
    assert answer["clusterctl"]["facts"]["backup"]["storage"] == "s3"
    verified = harbor.backup(state="verified")
    assert verified["clusterctl"]["facts"]["backup"]["storage"] == "s3"


def test_a_manifest_says_what_was_before_the_read_only_dump(harbor: Played) -> None:
    assert kept.read_manifest(harbor.taken())["read_only_before"] is False


def test_old_backups_go_after_a_new_one_was_verified(harbor: Played) -> None:
    first = harbor.taken()
    for name in ("20250101T000000Z", "20250102T000000Z", "20250103T000000Z"):
        shutil.copytree(first, harbor.backups / name)
    time.sleep(1.1)  # a backup is named by its second
    answer = harbor.backup(keep=2)
    assert len(kept.backups(harbor.backups)) == 2
    assert kept.backups(harbor.backups)[-1] == Path(answer["backup"])


@pytest.mark.parametrize("check", [False, True], ids=["take", "check"])
def test_a_backup_of_a_clock_that_was_ahead_is_named_before_another_one_is_taken(
    harbor: Played, check: bool
) -> None:
    ahead = harbor.taken().rename(harbor.backups / "20990101T000000Z")
    harbor.history.clear()
    answer = harbor.backup(check=check, keep=1)
    assert answer["code"] == "harbor.backup"
    assert "the backup 20990101T000000Z" in answer["msg"]
    assert kept.backups(harbor.backups) == [ahead]
    assert harbor.history == []


@pytest.mark.parametrize("rotted", [b"#", None], ids=["rotted", "gone"])
def test_an_earlier_backup_whose_list_cannot_be_read_keeps_no_further_one_from_being_taken(
    harbor: Played, rotted: bytes | None
) -> None:
    earlier = harbor.taken().rename(harbor.backups / "20250101T000000Z")
    if rotted is None:
        (earlier / kept.FILES).unlink()
    else:
        (earlier / kept.FILES).write_bytes(rotted + (earlier / kept.FILES).read_bytes())
    backup = harbor.taken()
    assert kept.wrong(backup) == []
    assert {path.stat().st_nlink for path in backup.rglob("data") if path.is_file()} == {1}


def test_a_disk_that_is_too_small_is_refused_before_harbor_is_read_only(
    harbor: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    huge = harbor.data / "registry/docker/registry/v2/blobs/sha256/aa/huge/data"
    huge.parent.mkdir(parents=True)
    with huge.open("wb") as stream:
        stream.truncate(shutil.disk_usage(harbor.root).free * 2)
    answer = harbor.backup()
    assert "GB free, and the backup needs" in answer["msg"]
    assert harbor.history == []


def test_nothing_is_written_into_a_directory_that_took_the_place_of_the_backup_meanwhile(
    harbor: Played, tmp_path: Path
) -> None:
    """Who may write the directory of backups waits for one, and puts its own in its place."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    docker = harbor.root / "bin/docker"
    docker.write_text(
        docker.read_text(encoding="utf-8").replace(
            "*pg_dump*)",
            f"*pg_dump*) set -- {harbor.backups}/*.partial; mv $1 {harbor.backups}/away; mkdir $1;"
            f" ln -s {elsewhere} $1/data; echo mine >$1/harbor.yml; chmod 666 $1/harbor.yml;",
        ),
        encoding="utf-8",
    )
    answer = harbor.backup()
    assert "was exchanged for another one" in answer["msg"]
    (partial,) = harbor.backups.glob("*.partial")
    assert (partial / "harbor.yml").read_text(encoding="utf-8") == "mine\n"
    assert sorted(path.name for path in partial.iterdir()) == ["data", "harbor.yml"]
    assert list(elsewhere.iterdir()) == []
    assert (harbor.backups / "away" / kept.DUMP).is_file()


def test_check_mode_takes_nothing(harbor: Played) -> None:
    assert harbor.backup(check=True)["changed"] is True
    assert not harbor.backups.exists()
    assert harbor.history == []


@pytest.mark.parametrize("check", [False, True], ids=["take", "check"])
def test_a_directory_that_others_could_exchange_is_refused_before_harbor_is_read_only(
    harbor: Played, check: bool
) -> None:
    harbor.backups.mkdir()
    harbor.backups.chmod(0o770)
    answer = harbor.backup(check=check)
    assert answer["code"] == "harbor.backup"
    assert f"{harbor.backups} may be written by others than root" in answer["msg"]
    assert "chmod go-w it, or name another directory" in answer["msg"]
    assert list(harbor.backups.iterdir()) == harbor.history == []
