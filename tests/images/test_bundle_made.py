"""What goes into a bundle, and what a bundle that is made again is worth."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.support.registries import Proxy, Running, bytes_of, put_image

from clusterctl.registry.images import apt_tree
from clusterctl.registry.images.trees import Tree

from .driving import MB, call, error, good, records, site


@pytest.fixture
def directory(tmp_path: Path, source: Running, before_source: Proxy) -> Path:
    """A cluster of one locked image."""
    put_image(source.host, "t/one", "1", [bytes_of(1, 3 * MB), bytes_of(2, MB // 2)])
    made = site(tmp_path, before_source.host, "one")
    good(call(made, "lock"))
    return made


def create(directory: Path, bundle: Path, *more: str):
    return call(directory, "images", "bundle", "create", str(bundle), "--part-size", "1", "--json", *more)


def names(root: Path) -> list[str]:
    return [name for name, _ in Tree("t", root).files()]


def test_linked_directories_go_along_and_one_that_leads_back_ends(tmp_path: Path) -> None:
    elsewhere, root = tmp_path / "elsewhere", tmp_path / "root"
    (elsewhere / "pool").mkdir(parents=True)
    (elsewhere / "pool/one.deb").write_text("deb")
    (root / "dists").mkdir(parents=True)
    (root / "pool").symlink_to(elsewhere / "pool")
    (root / "again").symlink_to(elsewhere / "pool")
    (root / "dists/Release").symlink_to(root / "pool/one.deb")
    (root / "dists/back").symlink_to(root)
    assert names(root) == ["t/again/one.deb", "t/dists/Release", "t/pool/one.deb"]
    assert Tree("t", root).loops() == [root / "dists/back"]
    assert Tree("t", elsewhere / "pool/one.deb").loops() == []


@pytest.mark.parametrize("what", ["nowhere", "itself", "a pipe"])
def test_what_cannot_go_along_is_refused_before_anything_is_written(
    what: str, directory: Path, tmp_path: Path, before_source: Proxy
) -> None:
    root, bundle = tmp_path / "srv", tmp_path / "usb"
    (root / "deep").mkdir(parents=True)
    bad = root / "deep/bad"
    if what == "a pipe":
        os.mkfifo(bad)
    else:
        bad.symlink_to("bad" if what == "itself" else "../gone")
    asked = len(before_source.seen)
    refused = error(create(directory, bundle, "--include", f"srv={root}"))
    assert (refused.code, refused.exit_code, refused.where) == ("images.bundle-tree", 2, str(bad))
    assert not bundle.exists()
    assert len(before_source.seen) == asked
    bad.unlink()
    good(create(directory, bundle, "--include", f"srv={root}"))


@pytest.mark.parametrize("finished", [True, False])
def test_a_part_that_was_damaged_where_the_bundle_is_made_is_made_again(
    finished: bool, directory: Path, tmp_path: Path, before_source: Proxy
) -> None:
    root, bundle = tmp_path / "srv", tmp_path / "usb"
    root.mkdir()
    (root / "wheel").write_bytes(bytes_of("wheel", 2 * MB))
    include = ("--include", f"wheels={root}")
    good(create(directory, bundle, *include))
    if not finished:
        unfinish(bundle)
    before = before_source.blob_bytes()
    for part in (bundle / "parts").iterdir():
        content = bytearray(part.read_bytes())
        content[len(content) // 2] ^= 1
        part.write_bytes(content)
    check = ("images", "bundle", "load", str(bundle), "--check", "--allow-unsigned")
    if finished:
        assert call(directory, *check).return_value == 1
    assert records(good(create(directory, bundle, *include)))[-1]["finished"] is True
    good(call(directory, *check))
    assert before_source.blob_bytes() > before
    # What is whole is read, and not asked for again.
    before = before_source.blob_bytes()
    good(create(directory, bundle, *include))
    assert before_source.blob_bytes() == before


def test_packages_come_together_apart_from_the_medium_and_are_removed_at_the_end(
    directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    works: list[Path] = []

    def tree(_: apt_tree.PackageRequest, work: Path) -> Path:
        works.append(work)
        (work / "tree").mkdir(parents=True, exist_ok=True)
        (work / "tree" / "one.deb").write_text("deb")
        return work / "tree"

    monkeypatch.setattr(apt_tree, "tree", tree)
    (tmp_path / "nodes.list").write_text("deb http://127.0.0.1:9 ./\n")
    packages = ("--apt-sources", str(tmp_path / "nodes.list"), "--package", "one")
    for name in ("usb", "other"):
        assert records(good(create(directory, tmp_path / name, *packages)))[-1]["files"] == 1
    assert len(set(works)) == 2
    for work in works:
        assert work.is_relative_to(directory / ".clusterctl")
        assert not work.exists()


def unfinish(bundle: Path) -> None:
    """As a kill before the last step leaves it: every part with its notes, and no index."""
    from clusterctl.cluster import lock
    from clusterctl.registry.images.bundle import INDEX, Bundle
    from clusterctl.registry.images.bundling import GIVEN, INCOMING, NOTE
    from clusterctl.registry.images.resolve import source_repository
    from clusterctl.registry.images.spool import Spool
    from clusterctl.registry.oci.manifest import Blob

    made = Bundle.model_validate_json((bundle / INDEX).read_bytes())
    givers = {source_repository(image) for image in lock.parse(made.lock, bundle / INDEX).images}
    spool = Spool(bundle / INCOMING)
    spool.root.mkdir()
    for item in made.blobs:
        (spool.root / f"{item.sha256}{NOTE}").write_text(item.model_dump_json())
        for giver in givers:
            name = spool.whole(Blob(f"sha256:{item.sha256}", item.size), giver).name
            (spool.root / f"{name}{GIVEN}").touch(mode=0o600)
    (bundle / INDEX).unlink()
