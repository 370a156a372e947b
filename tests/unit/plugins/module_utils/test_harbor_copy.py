"""What a backup reads of Harbor's files, and how often; what it links to; how long a dump may take."""

from __future__ import annotations

import errno
import gzip
import hashlib
import json
import os
import stat
import time
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from shutil import copyfileobj
from typing import BinaryIO

import pytest
from ansible_collections.clusterctl.cluster.plugins.module_utils import (
    harbor_certificate,
    harbor_copy,
    harbor_dump,
    node_files,
)
from ansible_collections.clusterctl.cluster.plugins.module_utils import harbor_kept as kept
from ansible_collections.clusterctl.cluster.plugins.module_utils.node_files import open_below, sha256_of

ELSEWHERE = [
    "../../cloud/per-boot/x", "/etc/cron.d/x", "registry/../../x", "registry", "other/x", "registry//x",
    "registry/./x", "", 3, "registry/x\0y",
]  # fmt: skip


class Volume:
    """A data volume with a few layers, and where its backups go."""

    def __init__(self, root: Path) -> None:
        self.root, self.data = root, root / "data"
        self.put("secret/keys/secretkey", b"0123456789abcdef")

    def put(self, inside: str, content: bytes) -> Path:
        path = self.data / inside
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        return path

    def blob(self, content: bytes) -> Path:
        name = hashlib.sha256(content).hexdigest()
        return self.put(f"registry/docker/registry/v2/blobs/sha256/{name[:2]}/{name}/data", content)

    def copy(self, name: str, before: Path | None = None) -> dict[str, harbor_copy.Copied]:
        copied = harbor_copy.copy_tree(self.data, self.root / name / kept.DATA, before)
        kept.write_files(self.root / name, [one.kept for one in copied.values()])
        return copied

    def place(self, name: str, path: Path) -> Path:
        """Where a file of the volume is in a backup."""
        return self.root / name / kept.DATA / path.relative_to(self.data)


@pytest.fixture
def volume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Volume:
    monkeypatch.setattr(harbor_copy, "OWNER", (os.getuid(), os.getgid()))
    return Volume(tmp_path)


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the files whose content was read."""
    found: list[str] = []
    opened = Path.open

    def spy(self: Path, mode: str = "r", *more: object, **named: object) -> object:
        if mode == "rb":
            found.append(self.parent.name)
        return opened(self, mode, *more, **named)  # type: ignore[call-overload]

    def spy_below(root: Path, inside: str) -> BinaryIO:
        found.append(Path(inside).parent.name)
        return open_below(root, inside)

    monkeypatch.setattr(Path, "open", spy)
    monkeypatch.setattr(harbor_copy, "open_below", spy_below)
    return found


def test_the_second_pass_reads_only_what_changed_meanwhile(
    volume: Volume, read: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(harbor_copy, "UNSETTLED_NS", -1)
    volume.blob(b"one")
    tag = volume.put("registry/docker/registry/v2/repositories/a/_manifests/tags/t/current/link", b"old")
    gone = volume.put("registry/docker/registry/v2/repositories/a/_manifests/tags/u/current/link", b"x")
    target = volume.root / "b" / kept.DATA
    first = harbor_copy.copy_tree(volume.data, target, None)
    read.clear()
    tag.write_bytes(b"new")
    gone.unlink()
    new = volume.blob(b"two")
    second = harbor_copy.copy_tree(volume.data, target, None, first)
    assert sorted(read) == sorted([new.parent.name, "current"])
    for inside, one in second.items():
        assert sha256_of(target / inside) == one.kept.sha256 == sha256_of(volume.data / inside)
    assert not volume.place("b", gone).exists()


def test_what_changed_within_a_tick_of_the_clock_is_read_again(volume: Volume, read: list[str]) -> None:
    volume.blob(b"one")
    target = volume.root / "b" / kept.DATA
    first = harbor_copy.copy_tree(volume.data, target, None)
    read.clear()
    harbor_copy.copy_tree(volume.data, target, None, first)
    assert len(read) == 2


def test_what_vanishes_while_it_is_copied_is_no_failure(
    volume: Volume, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = volume.put("registry/docker/registry/v2/repositories/a/_manifests/tags/u/current/link", b"x")
    listed = [*kept.files_of(volume.data)]
    monkeypatch.setattr(harbor_copy, "files_of", lambda _: listed)
    gone.unlink()
    assert list(harbor_copy.copy_tree(volume.data, volume.root / "b", None)) == ["secret/keys/secretkey"]


def test_a_layer_that_rotted_in_harbor_is_told_and_the_good_one_is_kept(volume: Volume) -> None:
    layer = volume.blob(b"a layer")
    assert harbor_copy.damaged(volume.copy("first")) == []
    layer.write_bytes(b"a lAyer")
    copied = volume.copy("second", volume.root / "first")
    assert harbor_copy.damaged(copied) == [f"sha256:{layer.parent.name}"]
    assert volume.place("second", layer).read_bytes() == b"a layer"
    assert kept.damaged([one.kept for one in copied.values()]) == []


@pytest.mark.parametrize("rotten_is_recorded", [False, True])
def test_a_rotten_copy_of_an_earlier_backup_is_not_linked_to(
    volume: Volume, rotten_is_recorded: bool
) -> None:
    layer = volume.blob(b"a layer")
    if rotten_is_recorded:
        layer.write_bytes(b"a lAyer")
    volume.copy("first")
    layer.write_bytes(b"a layer")
    if not rotten_is_recorded:
        volume.place("first", layer).write_bytes(b"a lAyer")
    copied = volume.copy("second", volume.root / "first")
    assert volume.place("second", layer).read_bytes() == b"a layer"
    assert not volume.place("second", layer).samefile(volume.place("first", layer))
    assert harbor_copy.damaged(copied) == []


@pytest.mark.parametrize("why", [errno.EPERM, errno.EOPNOTSUPP, errno.EXDEV])
def test_where_files_cannot_be_linked_they_are_copied(
    volume: Volume, why: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(why, os.strerror(why))

    layer = volume.blob(b"a layer")
    volume.copy("first")
    assert harbor_copy.can_link(volume.root)
    monkeypatch.setattr(os, "link", refuse)
    assert not harbor_copy.can_link(volume.root)
    volume.copy("second", volume.root / "first")
    assert volume.place("second", layer).read_bytes() == b"a layer"
    assert not volume.place("second", layer).samefile(volume.place("first", layer))
    assert not list(volume.root.glob(".link*"))


def test_a_name_that_others_planted_is_not_written_through_where_links_are_tried(
    volume: Volume, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "urandom", bytes)
    victim = volume.root / "victim"
    (volume.root / f".link.{bytes(8).hex()}").symlink_to(victim)
    with pytest.raises(FileExistsError):
        harbor_copy.can_link(volume.root)
    assert not victim.exists()


@pytest.mark.parametrize("what", ["data", "layer"])
def test_no_link_of_an_earlier_backup_becomes_a_part_of_a_new_one(volume: Volume, what: str) -> None:
    layer = volume.blob(b"a layer")
    volume.copy("first")
    exchanged = volume.place("first", layer) if what == "layer" else volume.root / "first" / kept.DATA
    exchanged.rename(volume.root / "outside")
    exchanged.symlink_to(volume.root / "outside")
    volume.copy("second", volume.root / "first")
    there = volume.place("second", layer)
    assert (there.read_bytes(), there.is_symlink(), there.stat().st_nlink) == (b"a layer", False, 1)


# --- the database


def docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """A docker that does this."""
    program = tmp_path / "bin/docker"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")


def test_a_dump_that_stands_still_is_ended_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    docker(tmp_path, monkeypatch, "echo started; sleep 60")
    began = time.monotonic()
    with pytest.raises(harbor_dump.DumpError, match="was not dumped within"):
        harbor_dump.dump(tmp_path / "d.gz", 0.5)
    assert time.monotonic() - began < 20


def test_a_load_that_takes_nothing_is_ended_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    docker(tmp_path, monkeypatch, "sleep 60")
    with gzip.open(tmp_path / "d.gz", "wb") as stream:
        stream.write(os.urandom(1 << 20))
    began = time.monotonic()
    with pytest.raises(harbor_dump.DumpError, match="was not loaded within"):
        harbor_dump.load(tmp_path / "d.gz", 0.5)
    assert time.monotonic() - began < 20


def test_a_load_that_is_cut_off_has_committed_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    docker(tmp_path, monkeypatch, f"cat >{tmp_path}/came")
    packed = gzip.compress(b"insert;\n" * 1000)
    (tmp_path / "d.gz").write_bytes(packed)
    harbor_dump.load(tmp_path / "d.gz", 20)
    came = (tmp_path / "came").read_bytes()
    assert came.startswith(b"BEGIN;\n")
    assert came.endswith(b"COMMIT;\n")
    assert "-1" not in harbor_dump.LOAD
    (tmp_path / "d.gz").write_bytes(packed[: len(packed) // 2])
    (tmp_path / "came").write_bytes(b"")  # it may be ended before it has opened this
    with pytest.raises(EOFError):
        harbor_dump.load(tmp_path / "d.gz", 20)
    assert b"COMMIT" not in (tmp_path / "came").read_bytes()


def test_what_a_container_planted_is_not_written_through_when_files_come_back(volume: Volume) -> None:
    path = volume.put("secret/keys/secretkey", b"kept")
    volume.copy("backup")
    victim = volume.root / "victim"
    victim.write_bytes(b"the host's")
    path.unlink()
    path.with_name(".secretkey.new").symlink_to(victim)
    harbor_copy.put_back(volume.root / "backup", volume.data)
    assert (path.read_bytes(), victim.read_bytes()) == (b"kept", b"the host's")
    assert not path.is_symlink()


@pytest.mark.parametrize(
    "name", ["x" * 255, "\u00e4" * 127, ".x.new"], ids=["long", "long-in-bytes", "as-ours"]
)
def test_a_file_of_any_name_comes_back(volume: Volume, name: str) -> None:
    for each in ("x", name):
        volume.put(f"registry/{each}", each.encode())
    volume.copy("backup")
    harbor_copy.put_back(volume.root / "backup", volume.root / "new")
    there = {path.name: path.read_text(encoding="utf-8") for path in (volume.root / "new/registry").iterdir()}
    assert there == {"x": "x", name: name}


def test_copies_are_the_owner_s_alone_from_the_start(volume: Volume, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = volume.put("secret/keys/secretkey", b"kept")
    secret.chmod(0o644)
    modes: list[int] = []
    with monkeypatch.context() as patch:
        # What a reader sees before modes are set.
        patch.setattr(harbor_copy.os, "fchmod", lambda *_: None)
        volume.copy("backup")
    assert stat.S_IMODE(volume.place("backup", secret).stat().st_mode) == 0o600

    def spy(source: BinaryIO, target: BinaryIO, length: int) -> None:
        modes.append(stat.S_IMODE(os.fstat(target.fileno()).st_mode))
        copyfileobj(source, target, length)

    monkeypatch.setattr(harbor_copy.shutil, "copyfileobj", spy)
    harbor_copy.put_back(volume.root / "backup", volume.data)
    assert modes == [0o600]
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600


def test_a_directory_that_became_a_link_since_it_was_listed_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Harbor's containers may write there, and root reads."""
    data, roots = tmp_path / "data", tmp_path / "roots"
    (data / "registry").mkdir(parents=True)
    roots.mkdir()
    (roots / "shadow").write_text("secret")
    (data / "registry/below").symlink_to(roots)
    listed = [data / "registry/below/shadow"]
    monkeypatch.setattr(harbor_copy, "files_of", lambda _root: iter(listed))
    with pytest.raises(OSError, match=r"Not a directory|symbolic links"):
        harbor_copy.copy_tree(data, tmp_path / "backup", None)
    assert not list((tmp_path / "backup").rglob("shadow"))


@pytest.mark.parametrize("name", [".", "secret", "secret/keys"])
def test_nothing_is_written_through_a_link_in_the_place_of_a_directory_of_a_backup(
    volume: Volume, name: str
) -> None:
    """Others may write where backups lie, as who has the disk that is mounted there."""
    target, elsewhere = volume.root / "backup" / kept.DATA, volume.root / "elsewhere"
    elsewhere.mkdir()
    link = target / name
    link.parent.mkdir(parents=True)
    link.symlink_to(elsewhere)
    with pytest.raises(OSError, match=r"Not a directory|symbolic links"):
        harbor_copy.copy_tree(volume.data, target, None)
    assert list(elsewhere.iterdir()) == []


def test_a_link_in_the_place_of_a_file_of_a_backup_is_replaced(volume: Volume) -> None:
    victim, root = volume.root / "victim", volume.root / "backup"
    victim.write_text("the host's")
    names = [f"{kept.DATA}/{kept.KEY_FILE}", kept.FILES, kept.MANIFEST]
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).symlink_to(victim)
    volume.copy("backup")
    kept.write_manifest(root, {"database": "none"})
    assert victim.read_text() == "the host's"
    assert not [name for name in names if (root / name).is_symlink()]


def altered(volume: Volume, **more: object) -> Path:
    """A backup whose list says something else of its first file, as who can write there can make it."""
    volume.copy("backup")
    backup = volume.root / "backup"
    (one,) = kept.read_files(backup)
    (backup / kept.FILES).write_text(json.dumps({**asdict(one), **more}) + "\n", encoding="utf-8")
    return backup


@pytest.mark.parametrize("path", ELSEWHERE)
def test_no_path_of_a_backups_list_leads_out_of_the_data_volume(volume: Volume, path: object) -> None:
    backup = altered(volume, path=path)
    with pytest.raises(ValueError, match="no path of Harbor's data volume"):
        harbor_copy.put_back(backup, volume.data)
    kept.write_manifest(backup, {"database": "none"})
    assert "cannot be read" in " ".join(kept.wrong(backup))


@pytest.mark.parametrize(
    "more", [{"uid": "0"}, {"gid": -1}, {"mode": None}, {"size": True}, {"uid": 1 << 32}], ids=str
)
def test_an_owner_or_mode_that_is_none_is_refused(volume: Volume, more: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="that no file has"):
        list(kept.read_files(altered(volume, **more)))


def test_a_list_of_another_form_is_refused(volume: Volume) -> None:
    with pytest.raises(ValueError, match="of another form"):
        list(kept.read_files(altered(volume, more=1)))


def test_a_list_with_a_line_longer_than_any_path_is_refused(volume: Volume) -> None:
    backup = altered(volume)
    with (backup / kept.FILES).open("ab") as stream:
        stream.write(b"[" + b"[]," * kept.MAX_LINE_BYTES + b"[]]\n")
    with pytest.raises(ValueError, match="a line of more than"):
        list(kept.read_files(backup))


def test_a_list_is_read_as_it_is_used(volume: Volume) -> None:
    backup = altered(volume)
    with (backup / kept.FILES).open("ab") as stream:
        stream.write(b"{}\n")
    assert next(kept.read_files(backup)).path == kept.KEY_FILE


@pytest.mark.parametrize("size", [16, kept.LEAST_SPARSE_BYTES], ids=["listed-small", "listed-whole"])
def test_a_file_of_a_backup_that_is_nearly_all_holes_is_not_read(
    volume: Volume, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    backup = altered(volume, size=size)
    os.truncate(backup / kept.DATA / kept.KEY_FILE, kept.LEAST_SPARSE_BYTES)
    kept.write_manifest(backup, {"database": "none", "version": "v2"})
    monkeypatch.setattr(kept, "sha256_of_stream", lambda _: pytest.fail("it is read"))
    assert kept.wrong(backup) == [f"{kept.KEY_FILE} was changed"]


def test_a_layer_of_an_earlier_backup_that_is_nearly_all_holes_is_not_read(
    volume: Volume, monkeypatch: pytest.MonkeyPatch
) -> None:
    layer = volume.blob(b"a layer")
    volume.copy("first")
    os.truncate(volume.place("first", layer), kept.LEAST_SPARSE_BYTES)
    monkeypatch.setattr(harbor_copy, "sha256_of_stream", lambda _: pytest.fail("it is read"))
    volume.copy("second", volume.root / "first")
    assert volume.place("second", layer).read_bytes() == b"a layer"


def test_a_dump_that_unpacks_without_end_is_not_a_whole_one(
    volume: Volume, monkeypatch: pytest.MonkeyPatch
) -> None:
    dump = volume.root / kept.DUMP
    with gzip.open(dump, "wb") as stream:
        stream.write(bytes(kept.CHUNK) + kept.DUMPED)
    assert kept.whole_dump(dump)
    monkeypatch.setattr(kept, "MAX_DUMP_BYTES", kept.CHUNK // 2)
    assert not kept.whole_dump(dump)


def test_nothing_comes_back_from_a_file_that_the_backup_links_to(volume: Volume) -> None:
    volume.copy("backup")
    content = volume.place("backup", volume.data / kept.KEY_FILE)
    content.unlink()
    content.symlink_to("/etc/hostname")
    with pytest.raises(OSError, match="symbolic links"):
        harbor_copy.put_back(volume.root / "backup", volume.root / "new")


def test_no_file_comes_back_as_a_program_that_runs_as_its_owner(volume: Volume) -> None:
    harbor_copy.put_back(altered(volume, mode=0o6755), volume.data)
    assert stat.S_IMODE((volume.data / kept.KEY_FILE).stat().st_mode) == 0o700


def test_what_comes_back_is_harbors_alone_whatever_owner_a_backup_says(
    volume: Volume, monkeypatch: pytest.MonkeyPatch
) -> None:
    owners: list[tuple[int, int]] = []
    backup = altered(volume, mode=0o666, uid=1234, gid=1234)
    monkeypatch.setattr(node_files.os, "fchown", lambda _, *owner: owners.append(owner))
    monkeypatch.setattr(harbor_copy, "OWNER", harbor_certificate.OWNER)
    harbor_copy.put_back(backup, volume.root / "new")
    assert owners == [harbor_certificate.OWNER] * 3  # two directories, and the file
    assert stat.S_IMODE((volume.root / "new" / kept.KEY_FILE).stat().st_mode) == 0o600


def test_nothing_comes_back_through_a_link_that_a_container_made(volume: Volume) -> None:
    volume.copy("backup")
    (volume.data / "secret").rename(volume.root / "elsewhere")
    link = volume.data / "secret"
    link.symlink_to(volume.root / "elsewhere")
    if os.getuid() == 0:
        os.chown(link, 10_000, 10_000, follow_symlinks=False)
    with pytest.raises(OSError, match=r"Not a directory|symbolic links"):
        harbor_copy.put_back(volume.root / "backup", volume.data)


def test_a_directory_that_becomes_a_link_meanwhile_is_not_written_through(
    volume: Volume, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever owns what is restored may exchange it while the rest is."""
    volume.copy("backup")
    outside = volume.root / "outside"
    outside.mkdir()
    (volume.root / "new").mkdir()

    def exchange(source: BinaryIO, target: BinaryIO, length: int) -> None:
        copyfileobj(source, target, length)
        keys = volume.root / "new/secret/keys"
        keys.rename(volume.root / "new/secret/old")
        keys.symlink_to(outside)

    monkeypatch.setattr(harbor_copy.shutil, "copyfileobj", exchange)
    harbor_copy.put_back(volume.root / "backup", volume.root / "new")
    assert not list(outside.iterdir())
    assert (volume.root / "new/secret/old/secretkey").read_bytes() == b"0123456789abcdef"


def test_owners_are_never_set_by_path(monkeypatch: pytest.MonkeyPatch, volume: Volume) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("by path")

    monkeypatch.setattr(os, "chown", refuse)
    volume.copy("backup")
    harbor_copy.put_back(volume.root / "backup", volume.root / "new")
    for name in ("tls.crt", "tls.key"):
        (volume.root / name).write_text(name)
    monkeypatch.setattr(harbor_certificate, "OWNER", (os.getuid(), os.getgid()))
    declared = harbor_certificate.Declared(volume.root / "tls.crt", volume.root / "tls.key", volume.data)
    outside = volume.root / "outside"
    outside.write_text("the host's")
    shown = volume.data / "secret/cert"
    shown.mkdir()
    (shown / "server.key").symlink_to(outside)
    os.mkfifo(shown / "server.crt")
    assert harbor_certificate.why_put(declared, "") == "it was renewed"
    harbor_certificate.put(declared)
    assert harbor_certificate.why_put(declared, "") == ""
    assert ((shown / "server.key").read_text(), outside.read_text()) == ("tls.key", "the host's")


def sealed(volume: Volume) -> Path:
    """A whole backup."""
    volume.copy("backup")
    backup = volume.root / "backup"
    with gzip.open(backup / kept.DUMP, "wb") as stream:
        stream.write(kept.DUMPED)
    kept.write_manifest(backup, {"version": "v2.15.2", "database": "own"})
    assert kept.wrong(backup) == []
    return backup


def rewritten(backup: Path, **more: object) -> None:
    manifest = json.loads((backup / kept.MANIFEST).read_text()) | more
    text = json.dumps({name: value for name, value in manifest.items() if value is not None})
    (backup / kept.MANIFEST).write_text(text)


def as_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def as_link(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


@pytest.mark.parametrize(
    "change",
    [
        lambda b: (b / kept.FILES).write_text("[" * 200_000),
        lambda b: (b / kept.MANIFEST).write_text("[" * 200_000),
        lambda b: (b / kept.MANIFEST).write_text(" " * (kept.MAX_MANIFEST_BYTES + 1)),
        *(partial(rewritten, **{name: None}) for name in kept.TEXTS),
        partial(rewritten, version=3),
        *(lambda b, n=name: as_pipe(b / n) for name in (kept.FILES, kept.MANIFEST, kept.DUMP)),
        *(lambda b, n=name: as_link(b / n) for name in (kept.FILES, kept.MANIFEST, kept.DUMP)),
        lambda b: as_pipe(b / kept.DATA / kept.KEY_FILE),
        lambda b: as_link(b / kept.DATA / kept.KEY_FILE),
    ],
)
def test_a_backup_of_any_form_is_told_to_be_wrong(volume: Volume, change: Callable[[Path], object]) -> None:
    """And no pipe keeps who verifies it waiting."""
    backup = sealed(volume)
    change(backup)
    assert kept.wrong(backup)


def test_a_dump_that_does_not_unpack_is_not_whole(volume: Volume) -> None:
    dump = sealed(volume) / kept.DUMP
    raw = bytearray(dump.read_bytes())
    raw[-40:-12] = bytes(byte ^ 0xFF for byte in raw[-40:-12])
    dump.write_bytes(raw)
    assert not kept.whole_dump(dump)


def test_directories_that_are_nested_too_deep_end_a_backup_with_an_error(volume: Volume) -> None:
    place = volume.data / "registry"
    place.mkdir()
    for _ in range(kept.MAX_DEPTH + 1):
        place /= "d"
        place.mkdir()
    with pytest.raises(OSError, match="nested more than"):
        list(kept.files_of(volume.data))


def test_a_repository_with_the_most_parts_that_a_name_can_have_is_backed_up(volume: Volume) -> None:
    """Who may push into one project of Harbor chooses the name."""
    name = "p" + "/a" * 127
    assert len(name) == 255
    tag = f"_manifests/tags/t/index/sha256/{'0' * 64}/link"
    link = volume.put(f"registry/docker/registry/v2/repositories/{name}/{tag}", b"link")
    volume.copy("b")
    assert volume.place("b", link).read_bytes() == b"link"
    harbor_copy.put_back(volume.root / "b", volume.root / "restored")
    assert (volume.root / "restored" / link.relative_to(volume.data)).read_bytes() == b"link"


def test_uploads_that_are_not_finished_are_not_backed_up(volume: Volume) -> None:
    """Who may push begins millions of them, each with three files."""
    repository = "registry/docker/registry/v2/repositories/a/b"
    link = volume.put(f"{repository}/_layers/sha256/{'0' * 64}/link", b"link")
    for name in ("data", "startedat", "hashstates/sha256/0"):
        volume.put(f"{repository}/_uploads/u/{name}", b"half")
    assert sorted(volume.copy("b")) == [str(link.relative_to(volume.data)), kept.KEY_FILE]


def test_what_comes_back_is_for_no_more_eyes_than_what_an_installation_makes(
    volume: Volume, tmp_path: Path
) -> None:
    layer = volume.blob(b"a layer of a private project")
    layer.chmod(0o644)
    (volume.data / kept.KEY_FILE).chmod(0o755)
    volume.copy("b")
    restored = tmp_path / "srv/harbor"
    harbor_copy.put_back(volume.root / "b", restored)
    assert stat.S_IMODE(restored.stat().st_mode) == 0o700
    assert stat.S_IMODE((restored / layer.relative_to(volume.data)).stat().st_mode) == 0o644
    assert stat.S_IMODE((restored / kept.KEY_FILE).stat().st_mode) == 0o700
    restored.chmod(0o777)
    with pytest.raises(PermissionError, match="may be written by others than root"):
        harbor_copy.put_back(volume.root / "b", restored)


def test_a_list_in_which_a_file_stands_twice_is_refused(volume: Volume) -> None:
    """Each time it would be read and written once more, and a list has millions of lines."""
    names = ("a/b/c", "a/b.c", "a/z", "a-b/c", "B/c", "é/~")
    for name in ("ca_download/ca.crt", *(f"registry/{one}" for one in names)):
        volume.put(name, b"x")
    copied = volume.copy("b")
    assert [one.path for one in kept.read_files(volume.root / "b")] == list(copied)
    files = [one.kept for one in copied.values()]
    for wrong in ([*files, files[-1]], [files[0], *files], [*files[1:], files[0]]):
        kept.write_files(volume.root / "b", wrong)
        with pytest.raises(ValueError, match="twice, or not in the order"):
            list(kept.read_files(volume.root / "b"))
