"""A bundle is made on a medium that others had: what they left there is not believed, run or written to."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import struct
import threading
from collections.abc import Iterator
from io import BufferedReader
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest

from clusterctl.cluster.lock import Lock, LockedBlob, LockedImage, text_of
from clusterctl.errors import ClusterctlError
from clusterctl.registry.images import apt_tree, bundle, bundling
from clusterctl.registry.images.bundle import INDEX, PARTS, Item, Media
from clusterctl.registry.images.bundle_signature import require_signing_key
from clusterctl.registry.images.bundling import (
    INCOMING,
    NOTE,
    Bundler,
    BundleRecipe,
    MadeBundle,
    _sought_file,
)
from clusterctl.registry.images.outcome import TransferState
from clusterctl.registry.images.spool import JOURNAL, LOCK, Spool
from clusterctl.registry.images.trees import Tree
from clusterctl.registry.images.unbundling import check, put_files
from clusterctl.registry.oci import manifest
from clusterctl.registry.oci.errors import RegistryError
from clusterctl.registry.oci.manifest import Blob
from clusterctl.registry.oci.rate import Pace
from clusterctl.registry.oci.retry import RetryPolicy

NOBODY = 65534
# Locks, as another user, what of these paths it may open.
CONFIG, LAYER = b"{}", b"the layer of an image"


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def described(content: bytes, claimed: bytes | None = None) -> str:
    """A note that says that ``claimed`` (the same) is a part with this content."""
    part = {"sha256": sha256(content), "size": len(content)}
    whole = content if claimed is None else claimed
    return json.dumps({"sha256": sha256(whole), "size": len(whole), "parts": [part]})


# Of the registry below and its repository.
GIVER = "source/t/one"


class Source:
    """A registry with one image."""

    endpoint = SimpleNamespace(host="source")
    retry = RetryPolicy(attempts=1)
    pace = Pace()

    def __init__(self) -> None:
        self.blobs = {manifest.digest_of(one): one for one in (CONFIG, LAYER)}
        said = {
            "schemaVersion": 2, "mediaType": manifest.OCI_MANIFEST,
            "config": {"mediaType": "c", "digest": manifest.digest_of(CONFIG), "size": len(CONFIG)},
            "layers": [{"mediaType": "l", "digest": manifest.digest_of(LAYER), "size": len(LAYER)}],
        }  # fmt: skip
        self.top = manifest.read(json.dumps(said).encode(), manifest.OCI_MANIFEST, "test")
        self.asked: list[str] = []
        blobs = [LockedBlob(digest=name, size=len(content)) for name, content in self.blobs.items()]
        self.image = LockedImage(
            name="one", source="docker.io/t/one:1", target="t/one", digest=self.top.digest,
            manifest=self.top.digest, platforms=("linux/amd64",), config=blobs[0], layers=(blobs[1],),
        )  # fmt: skip

    def manifest(self, _repository: str, digest: str) -> manifest.Manifest:
        assert digest == self.top.digest
        return self.top

    def blob(self, _repository: str, digest: str, offset: int = 0) -> Source:
        self.asked.append(digest)
        self._coming = offset, iter([self.blobs[digest][offset:]])
        return self

    def __enter__(self):
        return self._coming

    def __exit__(self, *_: object) -> None:
        pass


@pytest.fixture
def source() -> Source:
    return Source()


def make(directory: Path, source: Source, *trees: Tree) -> MadeBundle:
    bundler = Bundler(directory, lambda _: source, threading.Event(), 1)  # type: ignore[arg-type, return-value]
    with bundler.held():
        return bundler.make(
            BundleRecipe("lab", text_of(Lock(images=(source.image,))), [source.image], trees, 1 << 20)
        )


def refusal(directory: Path, source: Source) -> ClusterctlError:
    with pytest.raises(ClusterctlError) as refused:
        make(directory, source)
    assert source.asked == []
    return refused.value


@pytest.mark.parametrize("digest", ["the layer's", "another"])
def test_a_note_that_names_one_part_again_and_again_is_not_read(
    digest: str, source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[Item] = []
    monkeypatch.setattr(bundling, "check", lambda _media, item, _stop: read.append(item))
    part = {"sha256": sha256(b"x"), "size": 1}
    whole = sha256(LAYER) if digest == "the layer's" else sha256(b"x" * 99_000)
    note = {"sha256": whole, "size": 99_000, "parts": [part] * 99_000}
    (tmp_path / PARTS).mkdir()
    (tmp_path / PARTS / part["sha256"]).write_bytes(b"x")
    (tmp_path / INCOMING).mkdir(mode=0o700)
    (tmp_path / INCOMING / f"{sha256(LAYER)}{NOTE}").write_text(json.dumps(note))
    made = make(tmp_path, source)
    assert [one.state for one in made.outcomes] == [TransferState.COPIED]
    assert read == []


def test_of_an_index_that_lay_there_only_what_is_wanted_is_noted(
    source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(tmp_path, source)
    index = json.loads((tmp_path / INDEX).read_text())
    others = [{"sha256": sha256(b"%d" % n), "size": 0, "parts": []} for n in range(50)]
    index["blobs"] += others
    (tmp_path / INDEX).write_text(json.dumps(index))
    noted: list[str] = []
    replace = bundling.replace_file
    monkeypatch.setattr(bundling, "replace_file", lambda path, *more, **named: (
        noted.append(path.name), replace(path, *more, **named)))  # fmt: skip
    make(tmp_path, source)
    assert not any(name.startswith(other["sha256"]) for name in noted for other in others)
    assert any(name.startswith(sha256(LAYER)) for name in noted)


def test_a_thing_is_not_read_on_when_all_is_to_end(tmp_path: Path) -> None:
    (tmp_path / PARTS).mkdir()
    (tmp_path / PARTS / sha256(LAYER)).write_bytes(LAYER)
    item, stop = Item.model_validate_json(described(LAYER)), threading.Event()
    assert check(Media([tmp_path]), item, stop) is None
    stop.set()
    assert (ended := check(Media([tmp_path]), item, stop)) is not None
    assert ended.code == "images.stopped"


@pytest.mark.parametrize("becomes", ["gone", "without its directory", "a link to itself", "a directory"])
def test_a_file_that_goes_away_while_registries_are_asked_is_refused(
    becomes: str, source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "tree" / "inner" / "a.whl"
    file.parent.mkdir(parents=True)
    file.write_bytes(b"wheel")
    usual = source.manifest

    def manifest_of(*words: str) -> manifest.Manifest:
        file.unlink()
        if becomes == "without its directory":
            file.parent.rmdir()
        elif becomes == "a link to itself":
            file.symlink_to(file)
        elif becomes == "a directory":
            file.mkdir()
        return usual(*words)

    monkeypatch.setattr(source, "manifest", manifest_of)
    with pytest.raises(ClusterctlError, match="what --include names cannot go along") as refused:
        make(tmp_path / "usb", source, Tree("t", tmp_path / "tree"))
    assert (refused.value.code, refused.value.where) == ("images.bundle-tree", str(file))
    assert source.asked == []


def test_links_of_a_tree_that_is_exchanged_meanwhile_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(_: Path) -> NoReturn:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(tmp_path / "inner"))

    monkeypatch.setattr(os, "scandir", gone)
    with pytest.raises(ClusterctlError, match="it cannot be read: No such file or directory"):
        Tree("t", tmp_path).loops()


@pytest.mark.parametrize("claims", ["other bytes", "the file's own digest"])
def test_a_note_that_lay_there_brings_no_other_bytes_for_a_file(
    claims: str, source: Source, tmp_path: Path
) -> None:
    usb, tree = tmp_path / "usb", tmp_path / "inst"
    tree.mkdir()
    (tree / "harbor.tgz").write_bytes(b"the installer")
    evil = b"something else"
    (usb / PARTS).mkdir(parents=True)
    (usb / PARTS / sha256(evil)).write_bytes(evil)
    (usb / INCOMING).mkdir()
    note = described(evil, None if claims == "other bytes" else b"the installer")
    (usb / INCOMING / f"{_sought_file(tree / 'harbor.tgz').key}{NOTE}").write_text(note)
    made = make(usb, source, Tree("inst", tree))
    assert made.index is not None
    put_files(Media([usb]), made.index, tmp_path / "out")
    assert (tmp_path / "out/inst/harbor.tgz").read_bytes() == b"the installer"
    assert not (usb / PARTS / sha256(evil)).exists()


def test_an_index_that_lay_there_brings_no_other_bytes_for_a_blob(source: Source, tmp_path: Path) -> None:
    usb, evil = tmp_path / "usb", b"x" * len(LAYER)
    (usb / PARTS).mkdir(parents=True)
    (usb / PARTS / sha256(evil)).write_bytes(evil)
    blob = json.loads(described(evil, LAYER))
    said = {"schema_version": 1, "made": "x", "cluster": "x", "lock": "", "blobs": [blob]}
    (usb / INDEX).write_text(json.dumps(said))
    made = make(usb, source)
    assert manifest.digest_of(LAYER) in source.asked
    assert made.index is not None
    assert sha256(evil) not in made.index.parts


def test_what_is_whole_does_not_come_again_and_the_bytes_of_the_index_are_those_that_were_written(
    source: Source, tmp_path: Path
) -> None:
    usb, tree = tmp_path / "usb", tmp_path / "wheels"
    tree.mkdir()
    (tree / "wheel").write_bytes(b"a wheel")
    made = make(usb, source, Tree("wheels", tree))
    assert made.raw == (usb / INDEX).read_bytes()
    assert [one.state for one in made.outcomes] == [TransferState.COPIED]
    asked = len(source.asked)
    assert make(usb, source, Tree("wheels", tree)).index is not None
    assert len(source.asked) == asked == 2


@pytest.mark.parametrize("kind", ["symbolic", "hard"])
def test_nothing_is_written_through_a_link_that_lay_there(kind: str, source: Source, tmp_path: Path) -> None:
    usb = tmp_path / "usb"
    (usb / INCOMING).mkdir(parents=True)
    top, layer = Blob(source.top.digest, len(source.top.raw)), source.top.layers[0]
    spool = Spool(usb / INCOMING)
    names = [
        spool.whole(top, "").name, spool.part(layer, GIVER).name,
        spool.whole(source.top.blobs[0], GIVER).name, JOURNAL,
    ]  # fmt: skip
    for name in names:
        (tmp_path / name).write_text("mine")
        link = usb / INCOMING / name
        link.symlink_to(tmp_path / name) if kind == "symbolic" else link.hardlink_to(tmp_path / name)
    assert make(usb, source).index is not None
    assert [(tmp_path / name).read_text() for name in names] == ["mine"] * len(names)
    assert not [path for path in (usb / PARTS).iterdir() if path.is_symlink()]


def test_a_part_on_its_way_is_no_link_also_where_one_is_made_meanwhile(
    source: Source, tmp_path: Path
) -> None:
    spool, mine = Spool(tmp_path / "spool"), tmp_path / "mine"
    mine.write_text("mine")
    blob = source.top.layers[0]
    with spool.held():
        spool.part(blob, GIVER).symlink_to(mine)
        with pytest.raises((ClusterctlError, RegistryError)) as refused:
            spool.fetch(source, "t/one", blob)  # type: ignore[arg-type]
    assert refused.value.code == "cluster.state-not-writable"
    assert mine.read_text() == "mine"


def test_a_spool_that_others_could_exchange_is_refused(tmp_path: Path) -> None:
    place = tmp_path / "spool"
    place.mkdir()
    place.chmod(0o777)
    for spool in (Spool(place), Spool(place / "below")):
        with pytest.raises(ClusterctlError) as refused, spool.held():
            pass
        assert refused.value.code == "cluster.not-trusted"
    assert list(place.iterdir()) == []


@pytest.mark.parametrize("name", [INCOMING, PARTS])
def test_a_directory_of_a_bundle_that_is_a_link_is_refused(name: str, source: Source, tmp_path: Path) -> None:
    usb, outside = tmp_path / "usb", tmp_path / "outside"
    usb.mkdir()
    outside.mkdir()
    (usb / name).symlink_to(outside)
    error = refusal(usb, source)
    assert (error.code, error.where) == ("images.bundle", str(usb / name))
    assert list(outside.iterdir()) == []


@pytest.mark.parametrize("name", [INDEX, f"{INDEX}.sig"])
def test_a_directory_in_the_place_of_the_index_is_refused_before_anything_is_fetched(
    name: str, source: Source, tmp_path: Path
) -> None:
    (tmp_path / name).mkdir()
    error = refusal(tmp_path, source)
    assert (error.code, error.where) == ("images.bundle", str(tmp_path / name))
    (tmp_path / name).rmdir()
    (tmp_path / name).symlink_to(tmp_path)
    assert make(tmp_path, source).index is not None


def test_a_directory_that_takes_the_place_of_the_index_meanwhile_is_an_error_with_a_hint(
    source: Source, tmp_path: Path
) -> None:
    bundler = Bundler(tmp_path, lambda _: source, threading.Event(), 1)  # type: ignore[arg-type, return-value]
    with bundler.held():
        (tmp_path / INDEX).mkdir()
        with pytest.raises(ClusterctlError, match="an index cannot be kept: Is a directory"):
            bundler.make(BundleRecipe("lab", "", [source.image], (), 1 << 20))


@pytest.mark.parametrize("whose", ["another user's", "world-writable"])
@pytest.mark.parametrize("name", [".", INCOMING, PARTS])
def test_a_directory_that_others_can_write_is_refused(
    whose: str, name: str, source: Source, tmp_path: Path
) -> None:
    usb = tmp_path / "usb"
    (usb / name).mkdir(parents=True)
    if whose == "world-writable":
        (usb / name).chmod(0o777)
    elif os.geteuid() == 0:
        os.chown(usb / name, NOBODY, NOBODY)
    else:
        pytest.skip("only root can give a directory away")
    error = refusal(usb, source)
    assert (error.code, error.where) == ("cluster.not-trusted", str(usb / name))
    assert not (usb / INDEX).exists()


@pytest.mark.parametrize("is_made", [False, True])
def test_a_directory_that_others_can_exchange_is_refused(
    is_made: bool, source: Source, tmp_path: Path
) -> None:
    usb = tmp_path / "shared" / "usb"
    usb.mkdir(parents=True)
    if not is_made:
        usb.rmdir()
    usb.parent.chmod(0o777)
    error = refusal(usb, source)
    assert (error.code, error.where) == ("cluster.not-trusted", str(usb))
    assert f"the directory {usb.parent}, in which it is, is world-writable" in error.what
    usb.parent.chmod(0o1777)  # as /tmp
    assert make(usb, source).index is not None


def test_what_others_made_between_two_looks_is_refused(
    source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usb, mkdir = tmp_path / "usb", Path.mkdir

    def made_by_others(path: Path, *arguments: Any, **more: Any) -> None:
        mkdir(usb)
        usb.chmod(0o777)
        mkdir(path, *arguments, **more)

    monkeypatch.setattr(Path, "mkdir", made_by_others)
    assert refusal(usb, source).code == "cluster.not-trusted"


def test_a_second_command_touches_nothing_of_the_first(tmp_path: Path) -> None:
    """What it finds there may be gone the next moment."""
    first, inside = Spool(tmp_path / "spool"), tmp_path / "spool" / f"{'a' * 64}.5.part"
    with first.held():
        inside.symlink_to(tmp_path / "elsewhere")
        with pytest.raises(ClusterctlError) as refused, Spool(first.root).held():
            pass
        assert refused.value.code == "images.held"
        assert inside.is_symlink()
    with first.held():
        assert not inside.is_symlink()


def test_only_files_of_ours_are_swept(source: Source, tmp_path: Path) -> None:
    usb, spool = tmp_path / "usb", Spool(tmp_path / "spool")
    (usb / PARTS).mkdir(parents=True)
    (usb / PARTS / "id_ed25519").write_text("mine")
    (usb / PARTS / ("a" * 64)).write_text("of an earlier try")
    assert make(usb, source).index is not None
    assert (usb / PARTS / "id_ed25519").read_text() == "mine"
    assert not (usb / PARTS / ("a" * 64)).exists()
    with spool.held():
        (spool.root / "notes.txt").write_text("mine")
        (spool.root / f"{'a' * 64}.part").write_text("of an earlier try")
        (spool.root / f"{'b' * 64}.5.part").write_text("of an earlier version")
        wanted = Blob(f"sha256:{'b' * 64}", 5)
        for blob in (wanted, Blob(f"sha256:{'c' * 64}", 5)):
            spool.part(blob, GIVER).write_text("half")
        assert spool.sweep([wanted]) == 3
        kept = [spool.part(wanted, GIVER).name, LOCK, "notes.txt"]
        assert sorted(path.name for path in spool.root.iterdir()) == kept


def test_files_of_a_bundle_are_put_where_nobody_else_can_write(source: Source, tmp_path: Path) -> None:
    usb, out = tmp_path / "usb", tmp_path / "out"
    made = make(usb, source)
    assert made.index is not None
    out.mkdir()
    out.chmod(0o777)
    with pytest.raises(ClusterctlError, match="world-writable") as refused:
        put_files(Media([usb]), made.index, out)
    assert refused.value.code == "cluster.not-trusted"
    out.chmod(0o755)
    assert put_files(Media([usb]), made.index, out) == 0


def given_away(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if another user owned a path: tests run without root, too."""
    lstat = Path.lstat

    def pretended(found: Path) -> os.stat_result:
        state = lstat(found)
        return os.stat_result((*state[:4], NOBODY, *state[5:])) if found == path else state

    monkeypatch.setattr(Path, "lstat", pretended)


def test_a_bundle_is_made_by_the_way_that_was_checked(
    source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("good", "victim/usb/incoming"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "victim/usb/bundle.json").write_text("mine")
    way = tmp_path / "way"
    way.symlink_to("good")
    bundler = Bundler(way / "usb", lambda _: source, threading.Event(), 1)  # type: ignore[arg-type, return-value]
    with bundler.held():
        way.unlink()
        way.symlink_to("victim")
        bundler.make(BundleRecipe("lab", "", [source.image], (), 1 << 20))
    assert bundler.directory == tmp_path / "good/usb"
    assert (tmp_path / "good/usb" / INDEX).exists()
    assert (tmp_path / "victim/usb/bundle.json").read_text() == "mine"
    assert (tmp_path / "victim/usb/incoming").is_dir()
    given_away(way, monkeypatch)
    source.asked.clear()
    assert f"it leads to {way}, which belongs to " in refusal(way / "usb", source).what


@pytest.mark.parametrize("whose", ["another user's", "world-writable"])
def test_files_are_put_into_no_directory_of_others_below(
    whose: str, source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree, out = tmp_path / "tree", tmp_path / "out"
    (tree / "deep").mkdir(parents=True)
    (tree / "deep/one").write_text("one")
    made = make(tmp_path / "usb", source, Tree("sub", tree))
    assert made.index is not None
    (out / "sub").mkdir(parents=True)
    if whose == "world-writable":
        (out / "sub").chmod(0o777)
    else:
        given_away(out / "sub", monkeypatch)
    with pytest.raises(ClusterctlError) as refused:
        put_files(Media([tmp_path / "usb"]), made.index, out)
    assert refused.value.code == "cluster.not-trusted"
    assert str(out / "sub") in refused.value.what
    assert list((out / "sub").iterdir()) == []


def test_a_file_that_others_can_write_is_put_again_and_one_of_ours_is_not(
    source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree, out = tmp_path / "tree", tmp_path / "out"
    tree.mkdir()
    (tree / "one").write_text("one")
    made = make(tmp_path / "usb", source, Tree("sub", tree))
    assert made.index is not None
    media, file = Media([tmp_path / "usb"]), out / "sub/one"
    assert [put_files(media, made.index, out) for _ in range(2)] == [1, 0]
    file.chmod(0o666)
    assert put_files(media, made.index, out) == 1
    assert file.stat().st_mode & 0o777 == 0o644
    with monkeypatch.context() as patched:
        given_away(file, patched)
        assert put_files(media, made.index, out) == 1


def test_a_directory_that_others_made_meanwhile_gets_no_files(
    source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, out, mkdir = make(tmp_path / "usb", source), tmp_path / "out", Path.mkdir
    assert made.index is not None

    def made_by_others(path: Path, *arguments: Any, **more: Any) -> None:
        mkdir(out)
        out.chmod(0o777)
        mkdir(path, *arguments, **more)

    monkeypatch.setattr(Path, "mkdir", made_by_others)
    with pytest.raises(ClusterctlError, match="is world-writable") as refused:
        put_files(Media([tmp_path / "usb"]), made.index, out)
    assert refused.value.code == "cluster.not-trusted"


def test_settings_of_apt_that_lay_there_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program, work = tmp_path / "bin" / "apt-get", tmp_path / "work"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\nexit 0\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent))
    (tmp_path / "nodes.list").write_text("deb [signed-by=/k] http://127.0.0.1:9 ./\n")
    (work / "nothing").mkdir(parents=True)
    (work / "nothing" / "00evil.conf").write_text('APT::Update::Pre-Invoke {"touch pwned";};\n')
    apt_tree.tree(apt_tree.PackageRequest(tmp_path / "nodes.list", ("driver",)), work)
    assert list((work / "nothing").iterdir()) == []


def test_packages_that_need_one_place_are_refused(tmp_path: Path) -> None:
    files = [tmp_path / "one", tmp_path / "two"]
    for file in files:
        file.write_text("the same")
    for first, second in (("pool", "pool/b.deb"), ("Packages/a.deb", "Packages"), ("a.deb", "a.deb")):
        with pytest.raises(ClusterctlError) as refused:
            named = [(f"http://host/{name}", file) for name, file in zip((first, second), files, strict=True)]
            apt_tree.places_of(named[:1], named[1:])
        assert refused.value.code == "images.packages"
    # Two indexes with the same bytes are one file under their digest.
    both = [("http://host/x/Packages", files[0]), ("http://host/x/Sources", files[1])]
    assert len(apt_tree.places_of([], both)) == 3


def others_have_an_access_list(directory: Path) -> None:
    """What is made in it lets another user write, whatever the umask, as `setfacl -d -m u:65534:rwx` does."""
    none = 0xFFFFFFFF
    entries = [(1, 7, none), (2, 7, NOBODY), (4, 5, none), (0x10, 7, none), (0x20, 5, none)]
    packed = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)
    try:
        os.setxattr(directory, "system.posix_acl_default", packed)
    except OSError as error:
        pytest.skip(f"no access lists here: {error.strerror}")


@pytest.fixture
def open_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.usefixtures("open_umask")
@pytest.mark.parametrize("access_list", [False, True])
def test_what_is_put_can_be_opened_by_nobody_else_before_it_is_verified(
    access_list: bool, source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree, out = tmp_path / "tree", tmp_path / "out"
    tree.mkdir(0o755)
    (tree / "install.sh").write_text("echo good")
    (tree / "install.sh").chmod(0o755)
    made = make(tmp_path / "usb", source, Tree("sub", tree))
    assert made.index is not None
    out.mkdir(0o755)
    if access_list:
        others_have_an_access_list(out)
    modes, pieces = [], Media.pieces

    def watched(media: Media, item: Item) -> Iterator[bytes]:
        for piece in pieces(media, item):
            yield piece
            modes.extend(path.stat().st_mode & 0o777 for path in (out / "sub").iterdir())

    monkeypatch.setattr(Media, "pieces", watched)
    put_files(Media([tmp_path / "usb"]), made.index, out)
    assert modes == [0o600]
    assert (out / "sub/install.sh").stat().st_mode & 0o777 == 0o755


@pytest.mark.usefixtures("open_umask")
@pytest.mark.parametrize("part_size", [4, 1 << 20])
def test_parts_of_a_bundle_can_be_written_by_nobody_else_from_the_first_byte_on(
    part_size: int, source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usb, tree, modes, fsync = tmp_path / "usb", tmp_path / "tree", [], os.fsync
    tree.mkdir(0o755)
    (tree / "one").write_text("one of the files")
    usb.mkdir(0o755)
    others_have_an_access_list(usb)
    passing = Spool._coming

    def watched(spool: Spool, *arguments: Any) -> Iterator[bytes]:
        for piece in passing(spool, *arguments):
            modes.extend(path.stat().st_mode & 0o077 for path in spool.root.glob("*.part"))
            yield piece

    monkeypatch.setattr(Spool, "_coming", watched)
    monkeypatch.setattr(os, "fsync", lambda one: (modes.append(os.fstat(one).st_mode & 0o022), fsync(one)))
    bundler = Bundler(usb, lambda _: source, threading.Event(), 1)  # type: ignore[arg-type, return-value]
    with bundler.held():
        made = bundler.make(BundleRecipe("lab", "", [source.image], [Tree("sub", tree)], part_size))
    assert made.index is not None
    assert set(modes) == {0}
    assert {path.stat().st_mode & 0o777 for path in (usb / PARTS).iterdir()} == {0o644}
    assert (usb / PARTS).stat().st_mode & 0o022 == 0


def test_what_others_can_write_of_a_blob_on_its_way_or_a_part_is_made_again(
    source: Source, tmp_path: Path
) -> None:
    usb = tmp_path / "usb"
    (usb / INCOMING).mkdir(parents=True)
    part = Spool(usb / INCOMING).part(source.top.layers[0], GIVER)
    part.write_bytes(LAYER[:4])
    part.chmod(0o666)
    descriptor = os.open(part, os.O_RDWR)  # of the other user
    assert make(usb, source).index is not None
    finished = usb / PARTS / sha256(LAYER)
    os.pwrite(descriptor, b"evil", 0)
    os.close(descriptor)
    assert finished.read_bytes() == LAYER
    finished.chmod(0o666)
    before = finished.stat().st_ino
    assert make(usb, source).index is not None
    assert (finished.stat().st_ino != before, finished.stat().st_mode & 0o777) == (True, 0o644)


def test_what_may_not_be_looked_at_on_a_medium_is_named(
    source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usb, stat_of = tmp_path / "usb", Path.stat
    made = make(usb, source)
    assert made.index is not None
    part = next(iter(made.index.parts))
    hidden = [usb / PARTS / part]

    def forbidden(path: Path, **more: Any) -> os.stat_result:
        if path in hidden:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return stat_of(path, **more)

    def refused_open(path: Path) -> BufferedReader:
        forbidden(path)
        return path.open("rb")

    monkeypatch.setattr(Path, "stat", forbidden)
    monkeypatch.setattr(bundle, "open_regular", refused_open)
    media = Media([usb])
    media.require(made.index)
    errors = [error for item in made.index.items if (error := check(media, item))]
    assert {(error.code, error.where) for error in errors} == {
        ("images.bundle-damaged", str(usb / PARTS / part))
    }
    assert "Permission denied" in errors[0].what
    hidden[:] = [usb / INDEX]
    with pytest.raises(ClusterctlError, match="Permission denied") as refused:
        media.index()
    assert refused.value.code == "images.bundle"
    hidden[:] = [tmp_path / "key"]
    with pytest.raises(ClusterctlError, match="Permission denied") as refused:
        require_signing_key(tmp_path / "key")
    assert refused.value.code == "images.bundle-sign"
