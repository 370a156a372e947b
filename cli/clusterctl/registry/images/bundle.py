"""A bundle: a directory that carries images and files over an air gap, in parts that any medium holds.

`parts/HEX` are pieces of things, each named by its own digest; `bundle.json` says what they are pieces of.
It is written last: a bundle without it is not finished. The parts may lie on several media.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import IO, Annotated, Any, Literal

from pydantic import Field, StringConstraints, ValidationError

from clusterctl.cluster.record import Record
from clusterctl.errors import EXIT_CLUSTER_BAD, ClusterctlError
from clusterctl.registry.oci.client import PIECE

INDEX = "bundle.json"
PARTS = "parts"
SCHEMA: Literal[1] = 1

Hex = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]


class BundlePart(Record):
    """A piece: the name of its file, which is its digest, and its size."""

    sha256: Hex
    size: Annotated[int, Field(ge=0)]


class Item(Record):
    """A thing that was cut into parts, with the digest of the whole."""

    sha256: Hex
    size: Annotated[int, Field(ge=0)]
    parts: tuple[BundlePart, ...]


class BundledManifest(Record):
    """A manifest of an image."""

    media_type: str
    item: Item


class BundledImage(Record):
    """An image of the lock: its manifests, children first."""

    name: str
    manifests: tuple[BundledManifest, ...]


class BundledFile(Record):
    """A file of a tree, by its path below the directory that files are put into."""

    path: str
    executable: bool = False
    item: Item


class Bundle(Record):
    """The whole index."""

    schema_version: Literal[1] = SCHEMA
    made: str
    cluster: str
    lock: str
    images: tuple[BundledImage, ...] = ()
    blobs: tuple[Item, ...] = ()
    files: tuple[BundledFile, ...] = ()

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
            if file.is_file():
                try:
                    raw = file.read_bytes()
                    if sha256 and hashlib.sha256(raw).hexdigest() != sha256:
                        raise _changed(file, hashlib.sha256(raw).hexdigest())
                    require_trusted(raw, file)
                    return Bundle.model_validate_json(raw)
                except (OSError, ValidationError) as error:
                    raise _refusal(
                        f"its {INDEX} cannot be read: {str(error).splitlines()[0]}", file
                    ) from None
        raise _refusal(
            f"there is no {INDEX} in it: it was not finished, or is not all here", self._directories[0]
        )

    def path(self, part: BundlePart) -> Path | None:
        """Where a part lies, as far as its size tells."""
        for directory in self._directories:
            path = directory / PARTS / part.sha256
            if path.is_file() and path.stat().st_size == part.size:
                return path
        return None

    def require(self, bundle: Bundle) -> None:
        """See that every part is here, and that things are as large as their parts.

        Raises ClusterctlError (``images.bundle``) with those missing.
        """
        if any(item.size != sum(part.size for part in item.parts) for item in bundle.items):
            raise _refusal(f"its {INDEX} contradicts itself: a thing is not as large as its parts",
                           self._directories[0])  # fmt: skip
        missing = [part.sha256 for part in bundle.parts.values() if self.path(part) is None]
        if missing:
            some = ", ".join(missing[:3]) + (f" and {len(missing) - 3} more" if len(missing) > 3 else "")
            raise _refusal(
                f"{len(missing)} of its parts are missing, or truncated: {some}", self._directories[0] / PARTS
            )

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
                with path.open("rb") as stream:
                    while piece := stream.read(PIECE):
                        found.update(piece)
                        whole.update(piece)
                        yield piece
            except OSError as error:
                raise _damaged(path, str(error.strerror)) from None
            if found.hexdigest() != part.sha256:
                raise _damaged(path, "its bytes are not those that it was written with")
        if whole.hexdigest() != item.sha256:
            raise _refusal(f"the parts of {item.sha256} make up another thing than its {INDEX} says",
                           self._directories[0] / INDEX)  # fmt: skip

    def read(self, item: Item) -> bytes:
        """A small thing as a whole."""
        return b"".join(self.pieces(item))


def require_inside(path: str) -> PurePosixPath:
    """A file's path, if it stays below its directory. Raises ClusterctlError (``images.bundle``)."""
    found = PurePosixPath(path)
    if found.is_absolute() or ".." in found.parts or not found.parts or "\0" in path:
        raise _refusal("a file in it would be put elsewhere", Path(path))
    return found


def cut(source: Path, directory: Path, most: int) -> Item:
    """Cut a file into parts below ``directory``, each on the disk when this returns.

    One that is there already is replaced: only what was just written is known to be right. The source stays.
    """
    whole, size = hashlib.sha256(), 0
    parts: list[BundlePart] = []
    directory.mkdir(mode=0o755, parents=True, exist_ok=True)
    temporary = directory / f".{os.getpid()}.{hashlib.sha256(str(source).encode()).hexdigest()[:16]}"
    try:
        with source.open("rb") as stream:
            while True:
                part = _cut_one(stream, temporary, most, whole)
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
    with temporary.open("wb") as target:
        while size < most and (piece := stream.read(min(PIECE, most - size))):
            target.write(piece)
            found.update(piece)
            whole.update(piece)
            size += len(piece)
        target.flush()
        os.fsync(target.fileno())
    return BundlePart(sha256=found.hexdigest(), size=size)


def _refusal(because: str, where: Path) -> ClusterctlError:
    return ClusterctlError(
        f"the bundle cannot be used: {because}",
        code="images.bundle",
        where=str(where),
        hint="Name every directory it lies in; copy what is missing; or finish it where it is made.",
    )


def digest_of_index(directory: Path) -> str:
    """The SHA-256 of a finished bundle's index, which vouches for all of it."""
    return hashlib.sha256((directory / INDEX).read_bytes()).hexdigest()


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
        hint="Copy this one file again, then run the same command: what is there already is not sent again.",
        exit_code=EXIT_CLUSTER_BAD,
    )
