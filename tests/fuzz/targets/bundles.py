"""What is on media, in archives and in apt's output: read, or refused; nothing is written elsewhere."""

from __future__ import annotations

import io
import os
import tarfile
import tempfile
from hashlib import sha256
from pathlib import Path
from typing import Any

from tests.fuzz.refusals import explained, require_sentences, seeds
from tests.fuzz.target import Target
from tests.fuzz.targets.registries import CONFIG, IMAGE, digest_of, dumped

from clusterctl.cluster import lock as lock_file
from clusterctl.registry.images import apt_tree, saved
from clusterctl.registry.images.bundle import INDEX, PARTS, Item, Media
from clusterctl.registry.images.unbundling import check, put_files
from clusterctl.registry.oci import manifest


def item_of(content: bytes) -> dict[str, Any]:
    digest = sha256(content).hexdigest()
    return {"sha256": digest, "size": len(content), "parts": [{"sha256": digest, "size": len(content)}]}


def bundle_of(*files: tuple[str, bytes]) -> bytes:
    entry = {"media_type": manifest.OCI_MANIFEST, "item": item_of(IMAGE)}
    images = [{"name": "one", "manifests": [entry]}]
    carried = [{"path": path, "executable": True, "item": item_of(content)} for path, content in files]
    blobs = [item_of(CONFIG), item_of(b"layer")]
    lock = "schema: 1\nimages:\n- {name: one}\n"
    return dumped(
        {"schema_version": 1, "made": "2026-01-01T00:00:00Z", "cluster": "lab", "lock": lock,
         "images": images, "blobs": blobs, "files": carried}
    )  # fmt: skip


FILES = (("wheels/a.whl", b"one"), ("packages/a.example/pool/b.deb", b"two"), ("wheels/empty", b""))


def run_bundle_index(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        parts = root / "medium" / PARTS
        parts.mkdir(parents=True)
        (root / "target").mkdir()
        for content in (IMAGE, CONFIG, b"layer", *(content for _, content in FILES)):
            (parts / sha256(content).hexdigest()).write_bytes(content)
        (root / "medium" / INDEX).write_bytes(data)
        media = Media([root / "medium"])

        def load() -> None:
            found = media.index()
            require_sentences(found.made, found.cluster)
            explained(lambda: lock_file.parse(found.lock, Path("the bundle's lock")))
            media.require(found)
            for one in found.items:
                check(media, one)
            put_files(media, found, root / "target")

        explained(load)
        assert sorted(path.name for path in root.iterdir()) == ["medium", "target"]
        assert not any(path.is_symlink() for path in (root / "target").rglob("*"))


def run_bundle_part(data: bytes) -> None:
    good = b"a part of something"
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        (directory / PARTS).mkdir()
        (directory / PARTS / sha256(good).hexdigest()).write_bytes(data)
        error = explained(lambda: check(Media([directory]), Item.model_validate(item_of(good))))
        assert (error is None) is (data == good)


def archive() -> bytes:
    """An image as `docker save` writes it."""
    out = io.BytesIO()
    layer = b"layer" * 100
    config = dumped({"rootfs": {"diff_ids": [digest_of(layer)]}})
    described = dumped([{"Config": "config.json", "Layers": ["1/layer.tar"]}])
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path, content in (("config.json", config), ("1/layer.tar", layer), ("manifest.json", described)):
            member = tarfile.TarInfo(path)
            member.size, member.pax_headers = len(content), {"comment": "ä" * 200}
            tar.addfile(member, io.BytesIO(content))
        link = tarfile.TarInfo("2/layer.tar")
        link.type, link.linkname = tarfile.SYMTYPE, "../1/layer.tar"
        tar.addfile(link)
    return out.getvalue()


def run_archive(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as name:
        place = Path(name) / "place"
        place.mkdir()
        explained(lambda: saved.read(io.BytesIO(data), place, {}))
        assert os.listdir(name) == ["place"]  # noqa: PTH208 - names alone
        assert all(path.is_file() and not path.is_symlink() for path in place.iterdir())


def run_apt(data: bytes) -> None:
    text = data.decode(errors="replace")
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        lists = root / "lists"
        lists.mkdir()
        for file in (
            "a.example_debian_dists_bookworm_InRelease",
            "a.example_debian_dists_bookworm_main_Packages",
        ):
            (lists / file).touch()
        (root / "Packages").touch()
        text = text.replace("LISTS", str(lists))

        def read() -> None:
            addresses = [uri for uri, _ in apt_tree.listed_packages(text)]
            for uri, file in apt_tree.listed_indexes(text, lists):
                assert file.resolve().parent == lists.resolve()
                addresses.append(uri)
            for uri in addresses:
                placed = (root / "tree" / apt_tree.place_of(uri)).resolve()
                assert placed.is_relative_to((root / "tree").resolve())

        explained(read)


APT = [
    b"Reading package lists...\n"
    b"'https://a.example/debian/pool/main/b/b_1%2bdeb_amd64.deb' b_1+deb_amd64.deb 7 SHA256:x\n",
    b"http://a.example/debian/dists/bookworm/main/Packages\tmain/Packages\t"
    b"LISTS/a.example_debian_dists_bookworm_main_Packages\n",
]


TARGETS: dict[str, Target] = {
    target.name: target
    for target in (
        Target("bundle-index", seeds(bundle_of(*FILES), bundle_of()), run_bundle_index),
        Target("bundle-part", seeds(b"a part of something"), run_bundle_part),
        Target("saved-archive", lambda: [archive()], run_archive),
        Target("apt-output", seeds(*APT), run_apt),
    )
}
