"""A bundle: a directory that carries images and files over an air gap, in parts that any medium holds.

`parts/HEX` are pieces of things, each named by its own digest; `bundle.json` says what they are pieces of.
It is written last: a bundle without it is not finished. The parts may lie on several media.
"""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Callable, Iterator, Sequence
from io import BufferedReader
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import IO, Annotated, Any, Literal

from pydantic import AfterValidator, Field, StringConstraints

from clustercheck.parse.plain_text import one_line, plain_text
from clusterctl.cluster import lock as lock_file
from clusterctl.cluster.bounded_file import UnusableFileError, describe_unusable, open_regular, read_bounded
from clusterctl.cluster.record import Record
from clusterctl.cluster.state_files import create_private
from clusterctl.errors import EXIT_CLUSTER_BAD, ClusterctlError
from clusterctl.registry.images.resolve import MAX_MANIFESTS
from clusterctl.registry.oci.answers import UnreadableError, read_document
from clusterctl.registry.oci.client import PIECE
from clusterctl.registry.oci.manifest import LARGEST, MAX_LAYERS

INDEX = "bundle.json"
PARTS = "parts"
PART_MODE = 0o644
SCHEMA: Literal[1] = 1

# An index says of a file about 300 bytes. What is larger or has more is neither made nor read.
MAX_INDEX_BYTES, MAX_INDEX_VALUES = 32 << 20, 1_500_000
MAX_FILES = MAX_DIRECTORIES = 100_000
MAX_IMAGES = 1000
# Of one thing: a blob of 1 TB in the smallest parts.
MAX_PARTS, MAX_ITEM_BYTES = 100_000, 1 << 50
# Things may share parts, as copies of a file do, but a small medium is not read for weeks.
MAX_REPEATS, MAX_REPEATED_BYTES = 16, 64 << 30
MAX_PATH, MAX_NAME_BYTES, MAX_DEPTH = 1024, 255, 64


def is_plain(text: str) -> bool:
    """Whether a name has nothing in it that acts on a terminal, or ends a line."""
    return plain_text(text) == text and not any(one in text for one in "\n\t")


def _plain(text: str) -> str:
    if not is_plain(text):
        raise ValueError("it has control characters")
    return text


Hex = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
Bytes = Annotated[int, Field(ge=0, le=MAX_ITEM_BYTES)]
Word = Annotated[str, StringConstraints(max_length=300), AfterValidator(_plain)]


class BundleRecord(Record, extra="ignore"):
    """A part of the index. Fields that are not known are passed over, at no cost however many they are."""


class BundlePart(BundleRecord):
    """A piece: the name of its file, which is its digest, and its size."""

    sha256: Hex
    size: Bytes


class Item(BundleRecord):
    """A thing that was cut into parts, with the digest of the whole."""

    sha256: Hex
    size: Bytes
    parts: Annotated[tuple[BundlePart, ...], Field(max_length=MAX_PARTS, fail_fast=True)]


class BundledManifest(BundleRecord):
    """A manifest of an image."""

    media_type: Word
    item: Item


class BundledImage(BundleRecord):
    """An image of the lock: its manifests, children first."""

    name: Word
    manifests: Annotated[tuple[BundledManifest, ...], Field(max_length=MAX_MANIFESTS, fail_fast=True)]


class BundledFile(BundleRecord):
    """A file of a tree, by its path below the directory that files are put into."""

    path: Annotated[str, StringConstraints(min_length=1, max_length=MAX_PATH), AfterValidator(_plain)]
    executable: bool = False
    item: Item


class Bundle(BundleRecord):
    """The whole index."""

    schema_version: Literal[1] = SCHEMA
    made: Word
    cluster: Word
    lock: Annotated[str, StringConstraints(max_length=lock_file.MAX_BYTES)]
    images: Annotated[tuple[BundledImage, ...], Field(max_length=MAX_IMAGES, fail_fast=True)] = ()
    blobs: Annotated[tuple[Item, ...], Field(max_length=MAX_IMAGES * MAX_LAYERS, fail_fast=True)] = ()
    files: Annotated[tuple[BundledFile, ...], Field(max_length=MAX_FILES, fail_fast=True)] = ()

    @property
    def items(self) -> Iterator[Item]:
        """Everything in it."""
        yield from (manifest.item for image in self.images for manifest in image.manifests)
        yield from self.blobs
        yield from (file.item for file in self.files)

    @property
    def parts(self) -> dict[str, BundlePart]:
        """Every part, once."""
        return {part.sha256: part for item in self.items for part in item.parts}

    @property
    def repeats_too_much(self) -> bool:
        """Whether its things are far larger together than the parts that they are made of."""
        carried = sum(part.size for part in self.parts.values())
        return sum(item.size for item in self.items) > MAX_REPEATS * carried + MAX_REPEATED_BYTES


class Media:
    """The directories that a bundle lies in: one, or as many as it took."""

    def __init__(self, directories: Sequence[Path]) -> None:
        self._directories = tuple(directories)

    def index(
        self, sha256: str = "", require_trusted: Callable[[bytes, Path], object] = lambda *_: None
    ) -> Bundle:
        """Read what it holds; with ``sha256`` only that very index, told to us another way than the medium.

        ``require_trusted`` gets its bytes before anything is made of them, and raises where it refuses them.
        Raises ClusterctlError (``images.bundle``, ``images.bundle-changed``).
        """
        for directory in self._directories:
            file = directory / INDEX
            try:
                if not file.exists():
                    continue
                raw = read_bounded(file, MAX_INDEX_BYTES)
                if sha256 and (found := hashlib.sha256(raw).hexdigest()) != sha256:
                    raise _changed(file, found)
                require_trusted(raw, file)
                return read_document(Bundle.model_validate_json, raw, MAX_INDEX_VALUES)
            except (OSError, UnusableFileError, UnreadableError) as error:
                raise _refusal(f"its {INDEX} cannot be read: {one_line(str(error))}", file) from None
        raise _refusal(
            f"there is no {INDEX} in it: it was not finished, or is not all here", self._directories[0]
        )

    def path(self, part: BundlePart) -> Path | None:
        """Where a part lies, as far as its size tells; if none is seen, one that may not be looked at: who
        reads it says why."""
        hidden = None
        for directory in self._directories:
            path = directory / PARTS / part.sha256
            try:
                if path.is_file() and path.stat().st_size == part.size:
                    return path
            except OSError:
                hidden = hidden or path
        return hidden

    def require(self, bundle: Bundle) -> None:
        """See that every part is here, and that things are as large as their parts, and files lie apart.

        Raises ClusterctlError (``images.bundle``) with those missing.
        """
        _require_apart([require_inside(file.path) for file in bundle.files])
        if any(item.size != sum(part.size for part in item.parts) for item in bundle.items):
            raise _refusal(f"its {INDEX} contradicts itself: a thing is not as large as its parts",
                           self._directories[0])  # fmt: skip
        missing = [part.sha256 for part in bundle.parts.values() if self.path(part) is None]
        if missing:
            some = ", ".join(missing[:3]) + (f" and {len(missing) - 3} more" if len(missing) > 3 else "")
            raise _refusal(
                f"{len(missing)} of its parts are missing, or truncated: {some}", self._directories[0] / PARTS
            )
        if bundle.repeats_too_much:
            raise _refusal(f"its {INDEX} repeats the same parts too often", self._directories[0])

    def pieces(self, item: Item) -> Iterator[bytes]:
        """The bytes of a thing; each part is verified as it is read, and at the end the whole.

        Raises ClusterctlError (``images.bundle-damaged``) that names the part.
        """
        whole = hashlib.sha256()
        for part in item.parts:
            path = self.path(part)
            if path is None:
                raise _damaged(self._directories[0] / PARTS / part.sha256, "it is missing")
            found = hashlib.sha256()
            try:
                with open_regular(path) as stream:
                    size = 0
                    while piece := stream.read(PIECE):
                        size += len(piece)
                        if size > part.size:
                            raise _damaged(path, f"it has more than {part.size} bytes")
                        found.update(piece)
                        whole.update(piece)
                        yield piece
            except (OSError, UnusableFileError) as error:
                raise _damaged(path, describe_unusable(error)) from None
            if found.hexdigest() != part.sha256:
                raise _damaged(path, "its bytes are not those that it was written with")
        if whole.hexdigest() != item.sha256:
            raise _refusal(f"the parts of {item.sha256} make up another thing than its {INDEX} says",
                           self._directories[0] / INDEX)  # fmt: skip

    def read(self, item: Item) -> bytes:
        """A manifest as a whole. Raises ClusterctlError (``images.bundle``) where it is too large."""
        if item.size > LARGEST:
            raise _refusal(f"a manifest in it has {item.size} bytes", self._directories[0] / INDEX)
        return b"".join(self.pieces(item))


def require_inside(path: str) -> PurePosixPath:
    """A file's path, if it stays below its directory. Raises ClusterctlError (``images.bundle``)."""
    found = PurePosixPath(path)
    if found.is_absolute() or ".." in found.parts or not found.parts or "\0" in path:
        raise _refusal("a file in it would be put elsewhere", Path(one_line(path)))
    if not is_portable(found):
        raise _refusal("a file in it has a path that is no path", Path(one_line(path)))
    return found


def is_portable(path: PurePosixPath) -> bool:
    """Whether each part of a path can be a file's name wherever a bundle is put."""
    names = path.parts
    is_short = len(str(path)) <= MAX_PATH and len(names) <= MAX_DEPTH
    return is_short and is_plain(str(path)) and all(len(os.fsencode(one)) <= MAX_NAME_BYTES for one in names)


def claimed_twice(paths: Sequence[PurePosixPath]) -> PurePosixPath | None:
    """A place that two files would be put to: twice a file, or a file where another needs a directory."""
    seen: set[PurePosixPath] = set()
    for path in paths:
        if path in seen:
            return path
        seen.add(path)
    return next((directory for directory in _directories(paths) if directory in seen), None)


def needs_too_many_directories(paths: Sequence[PurePosixPath]) -> bool:
    """Whether the files need more than MAX_DIRECTORIES."""
    return next(islice(_directories(paths), MAX_DIRECTORIES, None), None) is not None


def _directories(paths: Sequence[PurePosixPath]) -> Iterator[PurePosixPath]:
    """Each directory that the files need, once."""
    seen: set[PurePosixPath] = set()
    for path in paths:
        directory = path.parent
        while directory not in seen and directory.parts:
            seen.add(directory)
            yield directory
            directory = directory.parent


def _require_apart(paths: Sequence[PurePosixPath]) -> None:
    """Raises ClusterctlError (``images.bundle``) where files share a place, or need too many."""
    if needs_too_many_directories(paths):
        raise _refusal(f"its files need more than {MAX_DIRECTORIES} directories", Path(INDEX))
    if claimed_twice(paths) is not None:
        raise _refusal("two files in it would be put to the same place", Path(INDEX))


def cut(source: BufferedReader, directory: Path, most: int) -> Item:
    """Cut a file, as long as it is now, into parts below ``directory``, each on the disk when this returns.

    One that is there already is replaced: only what was just written is known to be right. The source stays.
    """
    left, whole, size = os.fstat(source.fileno()).st_size, hashlib.sha256(), 0
    parts: list[BundlePart] = []
    directory.mkdir(mode=0o755, parents=True, exist_ok=True)
    temporary = directory / f".{secrets.token_hex(8)}"
    try:
        while True:
            part = _cut_one(source, temporary, min(most, left - size), whole)
            if part.size == 0 and parts:
                break
            target = directory / part.sha256
            temporary.replace(target)
            parts.append(part)
            size += part.size
            if part.size < most:
                break
    finally:
        temporary.unlink(missing_ok=True)
    return Item(sha256=whole.hexdigest(), size=size, parts=tuple(parts))


def _cut_one(stream: IO[bytes], temporary: Path, most: int, whole: Any) -> BundlePart:
    found, size = hashlib.sha256(), 0
    with create_private(temporary) as target:
        while size < most and (piece := stream.read(min(PIECE, most - size))):
            target.write(piece)
            found.update(piece)
            whole.update(piece)
            size += len(piece)
        target.flush()
        os.fchmod(target.fileno(), PART_MODE)
        os.fsync(target.fileno())
    return BundlePart(sha256=found.hexdigest(), size=size)


def _refusal(because: str, where: Path) -> ClusterctlError:
    return ClusterctlError(
        f"the bundle cannot be used: {because}",
        code="images.bundle",
        where=str(where),
        hint="Name all its directories; copy missing files; or complete it where it is created.",
    )


def _changed(file: Path, found: str) -> ClusterctlError:
    return ClusterctlError(
        f"the bundle is not the one that was made: the SHA-256 of its {INDEX} is {found}",
        code="images.bundle-changed",
        where=str(file),
        hint="Compare with what `images bundle create` said; do not load it where they differ.",
        exit_code=EXIT_CLUSTER_BAD,
    )


def _damaged(path: Path, because: str) -> ClusterctlError:
    return ClusterctlError(
        f"a part of the bundle is damaged: {because}",
        code="images.bundle-damaged",
        where=str(path),
        hint="Copy this one file again, then run the same command: existing blobs are not sent again.",
        exit_code=EXIT_CLUSTER_BAD,
    )
