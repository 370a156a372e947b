"""Load a bundle: its images into a registry, its files into a directory."""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path, PurePosixPath

from clusterctl.cluster.bounded_file import open_without_links
from clusterctl.cluster.lock import LockedImage
from clusterctl.cluster.state_files import create_private
from clusterctl.cluster.trust import find_objection, require_trusted_place
from clusterctl.errors import ClusterctlError
from clusterctl.registry.images.bundle import Bundle, BundledFile, Item, Media, require_inside
from clusterctl.registry.images.mirror import BlobTransfer, BrokenOriginError
from clusterctl.registry.images.resolve import ImageTotals
from clusterctl.registry.images.spool import disk, require_room
from clusterctl.registry.oci import manifest
from clusterctl.registry.oci.errors import stopped
from clusterctl.registry.oci.exchange import Content
from clusterctl.registry.oci.manifest import Blob, Manifest

INSTEAD = "Name a directory of your own with --files"


class BundleOrigin:
    """An origin: the images of a bundle."""

    def __init__(self, media: Media, bundle: Bundle) -> None:
        self._media = media
        self._bundle = bundle
        self._blobs = {f"sha256:{item.sha256}": item for item in bundle.blobs}

    def manifests(self, image: LockedImage) -> list[Manifest]:
        """Read from the bundle. Raises ClusterctlError (``images.bundle-damaged``, ``images.manifest``)."""
        entry = next((one for one in self._bundle.images if one.name == image.name), None)
        found, totals = [], ImageTotals()
        for one in entry.manifests if entry else ():
            raw = self._media.read(one.item)
            found.append(manifest.read(raw, one.media_type, f"bundle: {image.name}"))
            if limit := totals.exceeded_with(found[-1]):
                raise _refusal(f"{image.name} has more than {limit}")
        if not found or found[-1].digest != image.digest:
            raise _lacks(image.name)
        manifest.require_held(found, f"bundle: {image.name}")
        return found

    def require_whole(self, image: LockedImage) -> None:
        """Refuse an image of which the bundle lacks a manifest or a blob; what blobs hold is not read.

        Raises ClusterctlError (``images.bundle``, ``images.bundle-damaged``, ``images.manifest``).
        """
        manifests = self.manifests(image)
        digests = {one.digest for one in manifests}
        named = {image.manifest, *(child.digest for one in manifests for child in one.children)}
        blobs = {(blob.digest, blob.size) for one in manifests for blob in one.blobs}
        blobs |= {(blob.digest, blob.size) for blob in (image.config, *image.layers)}
        if not named <= digests or not all(self._has(*blob) for blob in blobs):
            raise _lacks(image.name)

    def _has(self, digest: str, size: int) -> bool:
        item = self._blobs.get(digest)
        return item is not None and item.size == size

    def content(self, transfer: BlobTransfer) -> Content:
        """The blob's parts, one after the other."""
        return partial(self._pieces, transfer)

    def _pieces(self, transfer: BlobTransfer) -> Iterator[bytes]:
        if not self._has(transfer.blob.digest, transfer.blob.size):
            raise BrokenOriginError(_lacks(", ".join(image.image.name for image in transfer.of)))
        item = self._blobs[transfer.blob.digest]
        try:
            yield from self._media.pieces(item)
        except ClusterctlError as error:
            raise BrokenOriginError(error) from None
        transfer.of[0].moved += item.size

    def offers(self, image: LockedImage, blob: Blob) -> bool:
        """Whether the bundle has it, whose images each came from their own source."""
        return self._has(blob.digest, blob.size)

    def settled(self, transfer: BlobTransfer, *, keep: bool) -> None:
        """The bundle stays as it is."""


def put_files(media: Media, bundle: Bundle, directory: Path) -> int:
    """Have the bundle's files below ``directory``; how many were not there yet.

    Raises ClusterctlError (``images.bundle-damaged``, ``images.no-space``, ``cluster.not-trusted``).
    """
    with disk(directory, "a file"):
        directory = require_trusted_place(directory, INSTEAD, make=True)
        paths = {require_inside(file.path): file for file in bundle.files}
        places = {place: _make_place(directory, place) for place in {path.parent for path in paths}}
    targets = [(file, places[path.parent] / path.name) for path, file in paths.items()]
    missing = [(file, target) for file, target in targets if not _is_there(file, target)]
    require_room(directory, sum(file.item.size for file, _ in missing))
    for file, target in missing:
        with disk(directory):
            _put(media, file, target)
    return len(missing)


def require_own_directory(directory: Path) -> None:
    """Refuse a directory for a bundle's files that others could write: what is installed from there runs as
    root. One that is missing is checked when it is made. Raises ClusterctlError (``cluster.not-trusted``)."""
    with disk(directory, "a file"), contextlib.suppress(FileNotFoundError):
        require_trusted_place(directory, INSTEAD)


def _make_place(directory: Path, place: PurePosixPath) -> Path:
    """A directory below ``directory`` that nobody else can write, without links.

    Raises ClusterctlError (``images.bundle``) where a link leads out, and as require_trusted_place does.
    """
    with contextlib.suppress(FileNotFoundError):  # a link out, to what is not there
        found = require_trusted_place(directory / place, INSTEAD, root=directory, make=True)
        if found.is_relative_to(directory):
            return found
    raise ClusterctlError(
        "a file of the bundle would be put elsewhere: a link leads out of the directory",
        code="images.bundle",
        where=str(directory / place),
        hint="Remove the link, or name another directory with --files.",
    )


def _put(media: Media, file: BundledFile, target: Path) -> None:
    temporary = target.with_name(f".{secrets.token_hex(8)}.part")
    try:
        with create_private(temporary) as stream:
            for piece in media.pieces(file.item):
                stream.write(piece)
            os.fchmod(stream.fileno(), 0o755 if file.executable else 0o644)  # it is verified
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


def _is_there(file: BundledFile, target: Path) -> bool:
    if target.is_symlink() or not target.is_file() or target.stat().st_size != file.item.size:
        return False
    if find_objection(target):  # who wrote it can change it again
        return False
    return digest_of_file(target) == file.item.sha256


def digest_of_file(path: Path) -> str:
    """The SHA-256 of a file's bytes. Raises OSError and UnusableFileError as open_without_links does."""
    with open_without_links(path) as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def check(media: Media, item: Item, stop: threading.Event | None = None) -> ClusterctlError | None:
    """Read all of a thing: what is wrong with it, or None; ``stop`` ends that, as something wrong."""
    try:
        for _ in media.pieces(item):
            if stop is not None and stop.is_set():
                return stopped()
    except ClusterctlError as error:
        return error
    return None


def _lacks(name: str) -> ClusterctlError:
    return _refusal(f"the bundle does not hold all of {name} as its lock says")


def _refusal(because: str) -> ClusterctlError:
    return ClusterctlError(
        because,
        code="images.bundle",
        hint="Make it again where the sources are reached: clusterctl images bundle create",
    )
