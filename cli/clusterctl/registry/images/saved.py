"""An image as `docker save` writes it: read as it comes, and of its layers only those kept that are new."""

from __future__ import annotations

import gzip
import hashlib
import json
import posixpath
import shutil
import tarfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Annotated, Any

from pydantic import Field, TypeAdapter

from clustercheck.parse.plain_text import one_line
from clusterctl.errors import EXIT_CLUSTER_BAD, ClusterctlError
from clusterctl.registry.oci.answers import (
    MAX_LAYER_BYTES,
    RegistryAnswer,
    UnreadableError,
    read_document,
    read_exact,
)
from clusterctl.registry.oci.client import PIECE
from clusterctl.registry.oci.configuration import ImageConfiguration
from clusterctl.registry.oci.manifest import MAX_LAYERS, Blob

GZIP = b"\x1f\x8b"
# Descriptions are smaller than this; a small layer is kept next to them.
SMALL = 1 << 22
MAX_MEMBERS = 10_000
# What the tar format lets one member say of itself (long names, PAX fields); read into memory as a whole.
MAX_HEADER_BYTES = 1 << 20
# Of a path on Linux.
MAX_NAME = 4096
HEADER_TYPES = (
    tarfile.XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.SOLARIS_XHDTYPE,
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
)
LEVEL = 6


@dataclass(frozen=True)
class NewLayer:
    """A layer that the base does not have, packed as registries keep it."""

    blob: Blob
    path: Path

    def pieces(self) -> Iterator[bytes]:
        """Its bytes."""
        with self.path.open("rb") as stream:
            while piece := stream.read(PIECE):
                yield piece


@dataclass(frozen=True)
class SavedImage:
    """A saved image: its configuration byte for byte, and its layers: a new one, or the number of the base's.

    A step that changes nothing, or the same as an earlier one, gives a layer that the base has.
    """

    config: bytes
    diff_ids: tuple[str, ...]
    layers: tuple[NewLayer | int, ...]

    @property
    def new(self) -> tuple[NewLayer, ...]:
        """Those that the base does not have."""
        return tuple(one for one in self.layers if isinstance(one, NewLayer))


class _Member(tarfile.TarInfo):
    """A member whose headers are no larger than they need be."""

    @classmethod
    def frombuf(cls, *words: Any, **more: Any) -> _Member:
        found = super().frombuf(*words, **more)
        # What a global header says is kept for all members that follow; no engine writes one.
        if found.type in (tarfile.GNUTYPE_SPARSE, tarfile.XGLTYPE) or (
            found.type in HEADER_TYPES and found.size > MAX_HEADER_BYTES
        ):
            raise ValueError(f"a member of type {found.type!r} with {found.size} bytes")
        return found

    def _proc_gnusparse_10(self, *_: Any) -> None:
        """tarfile would read the map of a sparse member, which has no bound, before it returns the member."""
        raise ValueError("a member is sparse")

    _proc_gnusparse_00 = _proc_gnusparse_01 = _proc_gnusparse_10


class _SavedManifest(RegistryAnswer):
    """The one entry of an archive's manifest.json."""

    Config: str
    Layers: Annotated[tuple[str, ...], Field(max_length=MAX_LAYERS, fail_fast=True)]


_MANIFESTS = TypeAdapter(tuple[_SavedManifest])


def numbers_of(diff_ids: Sequence[str], base: dict[str, Any]) -> dict[str, int]:
    """Which layer of the base has a digest, unpacked or packed, by its configuration and its manifest."""
    pairs = zip(diff_ids, (one["digest"] for one in base["layers"]), strict=False)
    return {digest: number for number, pair in enumerate(pairs) for digest in pair}


def read(stream: IO[bytes], place: Path, known: Mapping[str, int]) -> SavedImage:
    """Read all of an archive. ``known``: the numbers of the base's layers (see `numbers_of`).

    Raises ClusterctlError (``images.build-archive``) where it is not what an engine writes.
    """
    found: dict[str, Path] = {}
    links: dict[str, str] = {}
    try:
        with tarfile.open(fileobj=stream, mode="r|", tarinfo=_Member) as archive:
            for number, member in enumerate(archive):
                _require_few(number, member)
                member.pax_headers = {}  # the archive keeps its members
                name = posixpath.normpath(member.name)
                if member.issym() or member.islnk():
                    base = posixpath.dirname(name) if member.issym() else ""
                    links[name] = posixpath.normpath(posixpath.join(base, member.linkname))
                elif member.isreg():
                    if name.startswith("blobs/sha256/") and f"sha256:{posixpath.basename(name)}" in known:
                        continue
                    content = archive.extractfile(member)
                    path = place / f"member-{number}"
                    digest = _spooled(content, path)  # type: ignore[arg-type] # a regular member has content
                    if digest in known:
                        path.unlink()
                    else:
                        found[name] = path
        return _image(found, links, place, known)
    except UnreadableError as error:
        raise _unreadable(str(error)) from None
    except (
        tarfile.TarError, OSError, EOFError, ValueError, KeyError, OverflowError, RecursionError, zlib.error
    ) as error:  # fmt: skip
        raise _unreadable(f"{type(error).__name__}: {error}") from None


def _require_few(number: int, member: tarfile.TarInfo) -> None:
    """Raises ValueError where an archive has too many members, or one that is too large."""
    if number >= MAX_MEMBERS:
        raise ValueError(f"it has more than {MAX_MEMBERS} members")
    if member.issparse():
        raise ValueError("a member is sparse")
    if len(member.name) + len(member.linkname) > MAX_NAME:
        raise ValueError(f"a member's name has more than {MAX_NAME} characters")
    if member.size > MAX_LAYER_BYTES:
        raise ValueError(f"a member has {member.size} bytes")


def _unreadable(because: str) -> ClusterctlError:
    return ClusterctlError(
        f"what the engine saved cannot be read: {one_line(because)}",
        code="images.build-archive",
        where="docker save",
        hint="Is its disk full? Run the same command again.",
        exit_code=EXIT_CLUSTER_BAD,
    )


def _spooled(content: IO[bytes], path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("wb") as stream:
        while piece := content.read(PIECE):
            digest.update(piece)
            stream.write(piece)
    return f"sha256:{digest.hexdigest()}"


def _image(
    found: dict[str, Path], links: dict[str, str], place: Path, known: Mapping[str, int]
) -> SavedImage:
    (output,) = read_document(_MANIFESTS.validate_json, _small(found["manifest.json"]))
    config = _small(found[posixpath.normpath(output.Config)])
    diff_ids = read_exact(ImageConfiguration, config).diff_ids
    names = [links.get(name, name) for name in map(posixpath.normpath, output.Layers)]
    if len(names) != len(diff_ids):
        raise ValueError(f"{len(names)} layers, and {len(diff_ids)} are described")
    layers = tuple(
        known[diff_id] if diff_id in known else _packed(found[name], place / f"layer-{number}", diff_id)
        for number, (name, diff_id) in enumerate(zip(names, diff_ids, strict=True))
    )
    return SavedImage(config, diff_ids, layers)


def _small(path: Path) -> bytes:
    if path.stat().st_size > SMALL:
        raise ValueError("a description that is too large to be one")
    return path.read_bytes()


def _packed(path: Path, target: Path, diff_id: str) -> NewLayer:
    """The layer as gzip, the same bytes each time; one that is packed already stays as it is."""
    with path.open("rb") as source:
        packed = source.read(2) == GZIP
    if packed:
        shutil.copyfile(path, target)
    else:
        with path.open("rb") as source, target.open("wb") as raw, gzip.GzipFile(
            filename="", mode="wb", compresslevel=LEVEL, fileobj=raw, mtime=0
        ) as stream:  # fmt: skip
            shutil.copyfileobj(source, stream, PIECE)
    with gzip.open(target) if packed else path.open("rb") as content:
        unpacked = _digest_of(content)
    if unpacked != diff_id:
        raise ValueError(f"the layer {diff_id} has other bytes")
    with target.open("rb") as stream_of_target:
        digest = hashlib.file_digest(stream_of_target, "sha256").hexdigest()
    return NewLayer(Blob(f"sha256:{digest}", target.stat().st_size), target)


def _digest_of(content: IO[bytes] | gzip.GzipFile) -> str:
    """Of bytes that may be packed: no further than a layer can be long."""
    digest, size = hashlib.sha256(), 0
    while piece := content.read(PIECE):
        digest.update(piece)
        size += len(piece)
        if size > MAX_LAYER_BYTES:
            raise ValueError(f"a layer has more than {MAX_LAYER_BYTES} bytes, unpacked")
    return f"sha256:{digest.hexdigest()}"


def manifest_of(image: SavedImage, base: dict[str, Any]) -> bytes:
    """The manifest: the base's layers as the base's manifest has them, and the new ones."""
    oci = "oci" in base["mediaType"]
    packed = (
        "application/vnd.oci.image.layer.v1.tar+gzip" if oci
        else "application/vnd.docker.image.rootfs.diff.tar.gzip"
    )  # fmt: skip
    configuration = (
        "application/vnd.oci.image.config.v1+json" if oci
        else "application/vnd.docker.container.image.v1+json"
    )  # fmt: skip
    config = Blob(f"sha256:{hashlib.sha256(image.config).hexdigest()}", len(image.config))
    record = {
        "schemaVersion": 2,
        "mediaType": base["mediaType"],
        "config": {
            "mediaType": base["config"].get("mediaType") or configuration,
            "size": config.size,
            "digest": config.digest,
        },
        "layers": [
            base["layers"][one] if isinstance(one, int)
            else {"mediaType": packed, "size": one.blob.size, "digest": one.blob.digest}
            for one in image.layers
        ],
    }  # fmt: skip
    return json.dumps(record, indent=3).encode()
