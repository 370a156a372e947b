"""Bundles that others may have made: indexes, paths and parts with traps are refused, and read to a bound."""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from clusterctl.cluster import lock as lock_file
from clusterctl.cluster.lock import LockedBlob, LockedImage
from clusterctl.errors import ClusterctlError
from clusterctl.registry.images import apt_tree, bundle, bundling, resolve, trees
from clusterctl.registry.images.bundle import INDEX, PARTS, Bundle, Item, Media
from clusterctl.registry.images.bundling import Bundler, BundleRecipe
from clusterctl.registry.images.trees import Tree
from clusterctl.registry.images.unbundling import BundleOrigin, check, put_files
from clusterctl.registry.oci.manifest import LARGEST, OCI_MANIFEST, digest_of


def item(content: bytes) -> dict[str, Any]:
    digest = hashlib.sha256(content).hexdigest()
    return {"sha256": digest, "size": len(content), "parts": [{"sha256": digest, "size": len(content)}]}


def index(**more: Any) -> dict[str, Any]:
    return {"schema_version": 1, "made": "today", "cluster": "lab", "lock": "", **more}


def made(directory: Path, *files: tuple[str, bytes], **more: Any) -> Media:
    """A bundle of these files."""
    parts = directory / PARTS
    parts.mkdir(parents=True, exist_ok=True)
    for _, content in files:
        (parts / hashlib.sha256(content).hexdigest()).write_bytes(content)
    entries = [{"path": path, "item": item(content)} for path, content in files]
    (directory / INDEX).write_text(json.dumps(index(**{"files": entries, **more})))
    return Media([directory])


def image_manifest(layer: str) -> bytes:
    """Of one layer."""
    config = {"digest": digest_of(b"config"), "size": 6}
    layers = [{"digest": f"sha256:{layer}", "size": 1}]
    return json.dumps({"mediaType": OCI_MANIFEST, "config": config, "layers": layers}).encode()


def refusal(call: Any) -> ClusterctlError:
    with pytest.raises(ClusterctlError) as refused:
        call()
    assert refused.value.what.isprintable()
    assert refused.value.where.isprintable()
    return refused.value


@pytest.mark.parametrize("kind", ["fifo", "endless", "directory", "large"])
def test_an_index_that_is_no_ordinary_file_is_refused_at_once(kind: str, tmp_path: Path):
    file = tmp_path / INDEX
    if kind == "fifo":
        os.mkfifo(file)
    elif kind == "endless":
        file.symlink_to("/dev/zero")
    elif kind == "directory":
        file.mkdir()
    else:
        with file.open("wb") as stream:
            stream.truncate(bundle.MAX_INDEX_BYTES + 1)
    assert refusal(Media([tmp_path]).index).code == "images.bundle"


@pytest.mark.parametrize(
    "raw",
    [
        b"[" * 100_000,
        b'{"images":[' + b"0," * 2_000_000 + b"0]}",
        b'{"images":[' + b"{}," * 1_000_000 + b"{}]}",
        json.dumps(index(made="x\x1b[31m")).encode(),
        json.dumps(index(cluster="x" * 400)).encode(),
        json.dumps(index(lock="x" * (17 << 20))).encode(),
        json.dumps(index(files=[{"path": "a\nb", "item": item(b"")}])).encode(),
        json.dumps(index(blobs=[{**item(b""), "size": 2**60}])).encode(),
        json.dumps(index(blobs=[{**item(b""), "sha256": "../../etc/passwd"}])).encode(),
        b"\xff\xfe",
        b'"\\ud800"',
    ],
)
def test_an_index_with_a_trap_is_refused(raw: bytes, tmp_path: Path):
    (tmp_path / INDEX).write_bytes(raw)
    error = refusal(Media([tmp_path]).index)
    assert error.code == "images.bundle"
    assert len(error.what) < 500


def test_fields_of_a_later_release_are_passed_over(tmp_path: Path):
    media = made(tmp_path, ("a", b"x"), signed_by="someone")
    assert [file.path for file in media.index().files] == ["a"]


@pytest.mark.parametrize(
    "paths",
    [
        ["/etc/passwd"], ["../x"], ["a/../../x"], [".."], ["."], ["a\0b"], ["x" * 300], ["ä" * 200],
        ["/".join("d" * 70)], ["a" * 2000],
        ["same", "same"], ["same", "./same"], ["a", "a/b"], ["a/b/c", "a"],
    ],
)  # fmt: skip
def test_paths_that_lead_elsewhere_or_together_are_refused(paths: list[str], tmp_path: Path):
    media = made(tmp_path / "bundle", *((path, b"x") for path in paths))
    target = tmp_path / "target"
    target.mkdir()

    def load() -> None:
        found = media.index()
        media.require(found)
        put_files(media, found, target)

    assert refusal(load).code == "images.bundle"
    assert list(target.iterdir()) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bundle", "target"]


def test_a_file_is_never_written_through_a_link_that_lay_there(tmp_path: Path):
    media, target, outside = (
        made(tmp_path / "bundle", ("a", b"new")),
        tmp_path / "target",
        tmp_path / "outside",
    )
    target.mkdir()
    outside.write_text("mine")
    (target / "a").symlink_to(outside)
    assert put_files(media, media.index(), target) == 1
    assert outside.read_text() == "mine"
    assert ((target / "a").is_symlink(), (target / "a").read_bytes()) == (False, b"new")


def test_no_name_of_a_file_is_taken_by_one_on_its_way(tmp_path: Path):
    once_temporary = f".{hashlib.sha256(b'a').hexdigest()[:16]}.part"
    media, target = made(tmp_path / "bundle", (once_temporary, b"other"), ("a", b"new")), tmp_path / "target"
    assert put_files(media, media.index(), target) == 2
    assert {path.name: path.read_bytes() for path in target.iterdir()} == {
        once_temporary: b"other", "a": b"new"
    }  # fmt: skip


def test_a_link_to_another_directory_is_not_followed(tmp_path: Path):
    media, target, outside = made(tmp_path / "bundle", ("x/a", b"new")), tmp_path / "to", tmp_path / "outside"
    outside.mkdir()
    target.mkdir()
    (target / "x").symlink_to(outside)
    error = refusal(lambda: put_files(media, media.index(), target))
    assert (error.code, error.where) == ("images.bundle", str(target / "x"))
    assert list(outside.iterdir()) == []
    # One that stays below is the operator's own way to lay it out.
    (target / "x").unlink()
    (target / "y").mkdir()
    (target / "x").symlink_to("y")
    assert put_files(media, media.index(), target) == 1
    assert (target / "y/a").read_bytes() == b"new"


@pytest.mark.parametrize("kind", ["fifo", "longer", "endless"])
def test_a_part_is_read_up_to_its_size_and_is_a_file(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    content = b"x" * 10
    media = made(tmp_path, ("a", content))
    part = tmp_path / PARTS / hashlib.sha256(content).hexdigest()
    part.unlink()
    if kind == "fifo":
        os.mkfifo(part)
    elif kind == "longer":
        part.write_bytes(content * 2)
    else:
        part.symlink_to("/dev/zero")
    # As if it had changed after its size was looked at.
    monkeypatch.setattr(Media, "path", lambda _, one: tmp_path / PARTS / one.sha256)
    error = check(media, Item.model_validate(item(content)))
    assert error is not None
    assert error.code == "images.bundle-damaged"


def test_a_manifest_that_is_too_large_is_not_read_into_memory(tmp_path: Path):
    media = made(tmp_path)
    large = Item.model_validate({"sha256": "a" * 64, "size": LARGEST + 1, "parts": []})
    assert refusal(lambda: media.read(large)).code == "images.bundle"


@pytest.mark.parametrize("limit", ["MAX_TOTAL_BYTES", "MAX_BLOBS"])
def test_an_image_whose_manifests_come_to_too_much_is_refused(
    limit: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    raws = [image_manifest(f"{number:064x}") for number in range(3)]
    entries = [{"media_type": OCI_MANIFEST, "item": item(raw)} for raw in raws]
    files = [(f"{number}", raw) for number, raw in enumerate(raws)]
    media = made(tmp_path, *files, images=[{"name": "x", "manifests": entries}])
    origin = BundleOrigin(media, media.index())
    config = LockedBlob(digest=digest_of(b"config"), size=6)
    top = digest_of(raws[-1])
    wanted = LockedImage(
        name="x",
        source="host/x:1",
        target="x",
        digest=top,
        manifest=top,
        platforms=(),
        config=config,
        layers=(),
    )
    most = {"MAX_TOTAL_BYTES": sum(map(len, raws)), "MAX_BLOBS": 6}[limit]
    monkeypatch.setattr(resolve, limit, most)
    assert len(origin.manifests(wanted)) == 3
    monkeypatch.setattr(resolve, limit, most - 1)
    assert refusal(lambda: origin.manifests(wanted)).code == "images.bundle"


def test_directories_without_number_are_neither_made_nor_promised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    media = made(tmp_path / "bundle", ("a/b/one", b"1"), ("a/b/two", b"2"), ("c/three", b"3"))
    (tmp_path / "tree" / "b").mkdir(parents=True)
    (tmp_path / "tree" / "b" / "file").touch()
    bundler = Bundler(tmp_path / "made", lambda _: pytest.fail("no image"), threading.Event(), 1)
    bundler.directory.mkdir()

    def make() -> None:
        with bundler.held():
            bundler.make(BundleRecipe("lab", "", [], (Tree("x/y", tmp_path / "tree"),), 1 << 20))

    monkeypatch.setattr(bundle, "MAX_DIRECTORIES", 3)  # a, a/b, c; and x, x/y, x/y/b
    media.require(media.index())
    make()
    monkeypatch.setattr(bundle, "MAX_DIRECTORIES", 2)
    assert refusal(lambda: media.require(media.index())).code == "images.bundle"
    assert refusal(make).code == "images.bundle-tree"


@pytest.mark.parametrize(
    "text", ["[" * 600, "a: " * 5000, "images: 2001-99-99", "? [1]\n: 2", "1: 2", "\x00", "&a [*a]"]
)
def test_a_lock_within_a_bundle_that_is_none_is_said(text: str):
    error = refusal(lambda: lock_file.parse(text, Path("the bundle's lock")))
    assert error.code == "images.lock-unreadable"


@pytest.mark.parametrize("kind", ["deep", "control", "many", "long"])
def test_what_no_bundle_could_hold_is_refused_where_it_is_made(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    if kind == "deep":
        tmp_path.joinpath(*["d"] * (bundle.MAX_DEPTH + 1)).mkdir(parents=True)
    elif kind == "control":
        (tmp_path / "a\x1b[31m").touch()
    elif kind == "many":
        monkeypatch.setattr(trees, "MAX_FILES", 2)
        for name in "abc":
            (tmp_path / name).touch()
    else:
        long = tmp_path.joinpath(*["d" * 200] * 6)
        long.mkdir(parents=True)
        (long / "file").touch()
    assert refusal(Tree("wheels", tmp_path).files).code == "images.bundle-tree"


def test_one_file_is_looked_at_as_those_of_a_directory_are(tmp_path: Path):
    good, bad = tmp_path / "good.whl", tmp_path / "a\x1b[31m"
    good.touch()
    bad.touch()
    assert Tree("wheels", good).files() == [("wheels/good.whl", good)]
    assert refusal(Tree("wheels", bad).files).code == "images.bundle-tree"


@pytest.mark.parametrize("clash", ["same", "file where a directory is"])
def test_trees_that_meet_are_refused_where_the_bundle_is_made(clash: str, tmp_path: Path):
    one, other = tmp_path / "one", tmp_path / "other"
    for directory in (one, other):
        directory.mkdir()
    (one / "a").touch()
    if clash == "same":
        (other / "a").touch()
    else:
        (other / "a").mkdir()
        (other / "a" / "b").touch()
    bundler = Bundler(tmp_path / "bundle", lambda _: pytest.fail("no image"), threading.Event(), 1)
    bundler.directory.mkdir()

    def make(*trees: Tree) -> None:
        with bundler.held():
            bundler.make(BundleRecipe("lab", "", [], trees, 1 << 20))

    error = refusal(lambda: make(Tree("x", one), Tree("x", other)))
    assert (error.code, error.where) == ("images.bundle-tree", "x/a")
    assert not (bundler.directory / INDEX).exists()
    # Named twice it goes along once, and can be loaded.
    make(Tree("x", one), Tree("x", one), Tree("y", other))
    media = Media([bundler.directory])
    media.require(media.index())
    assert len(media.index().files) == 2


@pytest.mark.parametrize(("times", "is_refused"), [(32, False), (33, True)])
def test_a_small_medium_is_not_read_for_weeks(times: int, is_refused: bool, tmp_path: Path):
    """By an index that names its parts again and again: 16 times what it holds, and 64 GiB more."""
    part = {"sha256": "a" * 64, "size": 4 << 30}
    whole = {"sha256": "b" * 64, "size": times * part["size"], "parts": [part] * times}
    media = made(tmp_path, files=[{"path": "x", "item": whole}])
    with (tmp_path / PARTS / part["sha256"]).open("wb") as stream:
        stream.truncate(part["size"])
    found = media.index()
    if is_refused:
        assert "repeats the same parts" in refusal(lambda: media.require(found)).what
    else:
        media.require(found)


def test_a_bundle_that_would_repeat_too_much_to_be_read_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    source = tmp_path / "source"
    source.mkdir()
    for number in range(20):
        (source / str(number)).write_text("the same")
    recipe = BundleRecipe("lab", "", [], [Tree("wheels", source)], 1 << 20)
    bundler = Bundler(tmp_path / "bundle", lambda _: pytest.fail("no image"), threading.Event(), 1)
    bundler.directory.mkdir()
    with bundler.held():
        monkeypatch.setattr(bundle, "MAX_REPEATED_BYTES", 0)
        assert "too often" in refusal(lambda: bundler.make(recipe)).what
        assert not (bundler.directory / INDEX).exists()
        monkeypatch.undo()
        assert bundler.make(recipe).outcomes == []


def test_an_index_that_would_be_too_large_to_be_read_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    source = tmp_path / "source"
    source.mkdir()
    for name in "abc":
        (source / name).write_text(name)
    recipe = BundleRecipe("lab", "", [], [Tree("wheels", source)], 1 << 20)
    bundler = Bundler(tmp_path / "bundle", lambda _: pytest.fail("no image"), threading.Event(), 1)
    bundler.directory.mkdir()
    with bundler.held():
        monkeypatch.setattr(bundling, "MAX_INDEX_BYTES", 100)
        assert refusal(lambda: bundler.make(recipe)).code == "images.bundle-tree"
        assert not (bundler.directory / INDEX).exists()
        monkeypatch.undo()
        monkeypatch.setattr(bundling, "MAX_PARTS", 2)
        (source / "d").write_bytes(b"x" * 30)
        assert "--part-size" in refusal(lambda: bundler.make(replace(recipe, part_size=10))).hint
        monkeypatch.undo()
        assert bundler.make(recipe).outcomes == []
    assert isinstance(Media([bundler.directory]).index(), Bundle)


def test_words_of_apt_lead_to_no_other_place(tmp_path: Path):
    lists = tmp_path / "lists"
    lists.mkdir()
    (tmp_path / "secret_Packages").write_text("x")
    (lists / "host_Packages").write_text("x")
    text = "'https://a/b.deb' ../../x_1_amd64.deb 7 SHA256:x\n"
    assert refusal(lambda: apt_tree.listed_packages(text)).code == "images.packages"
    good = "'https://a/pool/b%2b1.deb' b_1_amd64.deb 7 SHA256:x\nReading lists...\n"
    assert apt_tree.listed_packages(good) == [("https://a/pool/b%2b1.deb", "b_1_amd64.deb")]
    lines = [
        f"https://a/Packages\tPackages\t{tmp_path}/secret_Packages",
        f"https://a/Packages\tPackages\t{lists}/../secret_Packages",
        f"https://a/Packages\tPackages\t{lists}/host_Packages",
        "one word",
        "a\tb\tc\td",
    ]
    found = list(apt_tree.listed_indexes("\n".join(lines), lists))
    assert found == [("https://a/Packages", lists / "host_Packages")]


@pytest.mark.parametrize(
    "uri", ["https://[::1/x", "https://a/%2e%2e/%2e%2e/x", "https://a/%00", "https://a/b%1b[31m"]
)
def test_an_address_of_a_package_stays_below_its_host(uri: str):
    assert refusal(lambda: apt_tree.place_of(uri)).code in ("images.packages", "images.bundle")
    assert (
        str(apt_tree.place_of("https://a.example/debian/pool/b%2b1.deb")) == "a.example/debian/pool/b+1.deb"
    )


def make_of(directory: Path, *files: tuple[str, Path]) -> Bundler:
    """A bundle of files as a tree named them a moment ago."""

    class NamedEarlier(Tree):
        def files(self) -> list[tuple[str, Path]]:
            return list(files)

    bundler = Bundler(directory, lambda _: pytest.fail("no image"), threading.Event(), 1)
    directory.mkdir()
    with bundler.held():
        bundler.make(BundleRecipe("lab", "", [], [NamedEarlier("x", directory)], 1 << 20))
    return bundler


@pytest.mark.parametrize("leads_to", ["a file", "a directory"])
def test_a_link_of_another_user_does_not_go_along(
    leads_to: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Who owns a mirror would otherwise have the operator's own files carried to where he can read them."""
    secrets, mirror = tmp_path / "secrets", tmp_path / "mirror"
    for directory in (secrets, mirror):
        directory.mkdir()
    (secrets / "key").write_text("secret")
    link = mirror / "link"
    link.symlink_to(secrets if leads_to == "a directory" else secrets / "key")
    inner = "link/key" if leads_to == "a directory" else "link"
    assert Tree("m", mirror).files() == [(f"m/{inner}", secrets / "key")], "our own link is followed"
    made_by_another(monkeypatch, link)
    error = refusal(Tree("m", mirror).files)
    assert error.code == "images.bundle-tree"
    assert f"{link} is a link that another user made" in error.what
    assert "another user made" in refusal(Tree("m", link).files).what


def made_by_another(monkeypatch: pytest.MonkeyPatch, link: Path) -> None:
    """As if another user had made a link: tests run without root, too."""
    of_kernel = Path.lstat

    def lstat(path: Path) -> os.stat_result:
        found = of_kernel(path)
        return os.stat_result([*found[:4], 64001, *found[5:10]]) if path == link else found

    monkeypatch.setattr(Path, "lstat", lstat)


@pytest.mark.parametrize("exchanged", ["file for link", "directory for link", "file for FIFO"])
def test_what_is_exchanged_after_it_was_found_is_neither_followed_nor_waited_for(
    exchanged: str, tmp_path: Path
):
    secrets, mirror = tmp_path / "secrets", tmp_path / "mirror"
    for directory in (secrets, mirror):
        directory.mkdir()
        (directory / "file").write_text(directory.name)
    found = Tree("m", mirror).files()
    (mirror / "file").unlink()
    if exchanged == "directory for link":
        mirror.rmdir()
        mirror.symlink_to(secrets)
    elif exchanged == "file for link":
        (mirror / "file").symlink_to(secrets / "file")
    else:
        os.mkfifo(mirror / "file")
    bundle_directory = tmp_path / "bundle"
    assert refusal(lambda: make_of(bundle_directory, *found)).code == "images.bundle-tree"
    assert not (bundle_directory / INDEX).exists()


def test_a_file_that_grows_while_it_is_read_is_refused_and_does_not_fill_the_medium(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    source = tmp_path / "log"
    source.write_bytes(b"x" * 1000)
    of_piece = bundle._cut_one

    def growing(*arguments: Any) -> bundle.BundlePart:
        with source.open("ab") as stream:
            stream.write(b"y" * 5000)
        return of_piece(*arguments)

    monkeypatch.setattr(bundle, "_cut_one", growing)
    error = refusal(lambda: make_of(tmp_path / "bundle", ("x/log", source)))
    assert "changed while it was read" in error.what
    assert [each.stat().st_size for each in (tmp_path / "bundle" / bundle.PARTS).iterdir()] == [1000]


def test_of_a_directory_no_more_names_are_read_than_may_be_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Links to one file cost who owns the directory nothing."""
    (tmp_path / "below").mkdir()
    for number in range(20):
        (tmp_path / f"{number}").touch()
        (tmp_path / "below" / f"{number}").touch()
    read: list[str] = []
    scandir = os.scandir

    @contextmanager
    def counting(path: Path) -> Iterator[Iterator[os.DirEntry[str]]]:
        with scandir(path) as entries:
            yield (read.append(entry.name) or entry for entry in entries)

    monkeypatch.setattr(os, "scandir", counting)
    for most, files in ((10, 11), (30, 31)):
        read.clear()
        monkeypatch.setattr(trees, "MAX_ENTRIES", most)
        assert f"more than {most} files and directories" in refusal(Tree("m", tmp_path).files).what
        assert len(read) == files


def test_links_that_lead_to_the_same_again_and_again_come_to_an_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Twenty directories with two links each to the next one: a million ways, and no file."""
    for number in range(20):
        here = tmp_path / str(number)
        here.mkdir()
        for name in "ab":
            (here / name).symlink_to(tmp_path / str(number + 1))
    (tmp_path / "20").mkdir()
    monkeypatch.setattr(trees, "MAX_ENTRIES", 1000)
    assert "more than 1000 files and directories" in refusal(Tree("m", tmp_path / "0").files).what
