"""Manifests: an image of one platform, or a list of such images."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated

from pydantic import Field

from clustercheck.parse.plain_text import one_line
from clusterctl.errors import EXIT_CLUSTER_BAD, ClusterctlError
from clusterctl.registry.oci.answers import Digest, ExactAnswer, Size, UnreadableError, Word, read_exact

OCI_INDEX = "application/vnd.oci.image.index.v1+json"
OCI_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
DOCKER_LIST = "application/vnd.docker.distribution.manifest.list.v2+json"
DOCKER_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
INDEXES = (OCI_INDEX, DOCKER_LIST)
MANIFESTS = (OCI_MANIFEST, DOCKER_MANIFEST)
ACCEPTED = ", ".join((*INDEXES, *MANIFESTS))
# Layers that registries do not hold, of Windows' base images. Of any other type registries want the blob.
_FOREIGN = "application/vnd.docker.image.rootfs.foreign.diff.tar"
_NONDISTRIBUTABLE = "application/vnd.oci.image.layer.nondistributable.v1.tar"
ELSEWHERE = (
    _FOREIGN, f"{_FOREIGN}.gzip",
    _NONDISTRIBUTABLE, f"{_NONDISTRIBUTABLE}+gzip", f"{_NONDISTRIBUTABLE}+zstd",
)  # fmt: skip
WINDOWS = "windows/"
# What a registry must take at least, and none of the known ones exceeds:
# https://github.com/opencontainers/distribution-spec/blob/main/spec.md#pushing-manifests
LARGEST = 4 << 20
MAX_CHILDREN = 1000
# Docker makes no image of more than 127, and overlayfs takes 500.
MAX_LAYERS = 256


@dataclass(frozen=True)
class Blob:
    """A stored thing: its digest, and its size in bytes."""

    digest: str
    size: int


@dataclass(frozen=True)
class Child:
    """An entry of a list of images."""

    digest: str
    size: int
    platform: str


@dataclass(frozen=True)
class Manifest:
    """What a registry gave under a digest, byte for byte, and what it says."""

    digest: str
    media_type: str
    raw: bytes = field(repr=False)
    children: tuple[Child, ...] = ()
    config: Blob | None = None
    layers: tuple[Blob, ...] = ()
    has_parts_elsewhere: bool = False

    @property
    def is_index(self) -> bool:
        """Whether this is a list of images."""
        return self.media_type in INDEXES

    @property
    def blobs(self) -> tuple[Blob, ...]:
        """Configuration and layers, each once."""
        both = (*((self.config,) if self.config else ()), *self.layers)
        return tuple(dict.fromkeys(both))


def digest_of(raw: bytes) -> str:
    """The digest of these bytes."""
    return f"sha256:{hashlib.sha256(raw).hexdigest()}"


class Platform(ExactAnswer):
    """What an image runs on."""

    os: Word | None = "unknown"
    architecture: Word | None = "unknown"
    variant: Word | None = None

    @property
    def words(self) -> str:
        """``os/architecture`` with a variant, in the words of `--platform`."""
        return "/".join(word for word in (self.os, self.architecture, self.variant) if word)


class _Descriptor(ExactAnswer):
    mediaType: Word | None = None
    # It becomes the name of a file: nothing else may pass here.
    digest: Digest
    size: Size
    platform: Platform | None = None
    # Engines ask these addresses before the registry, whatever the media type.
    urls: list[str] | None = None

    @property
    def blob(self) -> Blob:
        return Blob(self.digest, self.size)

    @property
    def is_elsewhere(self) -> bool:
        return self.mediaType in ELSEWHERE


class _Kind(ExactAnswer):
    mediaType: Word | None = None


class _Index(ExactAnswer):
    # Who goes by these takes the list for an image (CVE-2021-41190).
    config: None = None
    layers: None = None
    manifests: Annotated[
        tuple[_Descriptor, ...], Field(max_length=MAX_CHILDREN, fail_fast=True, strict=False)
    ]


class _Image(ExactAnswer):
    manifests: None = None
    config: _Descriptor
    layers: Annotated[tuple[_Descriptor, ...], Field(max_length=MAX_LAYERS, fail_fast=True, strict=False)]


def read(raw: bytes, media_type: str, where: str) -> Manifest:
    """Read a manifest. Raises ClusterctlError (``images.manifest``) where it is none that we know."""
    if len(raw) > LARGEST:
        raise _refusal(f"is too large to be one: more than {LARGEST} bytes", where)
    try:
        kind = read_exact(_Kind, raw).mediaType or media_type.partition(";")[0].strip()
        if kind in INDEXES:
            found = read_exact(_Index, raw)
            children = tuple(
                Child(one.digest, one.size, (one.platform or Platform()).words) for one in found.manifests
            )
            elsewhere = any(one.urls for one in found.manifests)
            return Manifest(digest_of(raw), kind, raw, children=children, has_parts_elsewhere=elsewhere)
        if kind in MANIFESTS:
            image = read_exact(_Image, raw)
            layers = tuple(layer.blob for layer in image.layers if not layer.is_elsewhere)
            return Manifest(
                digest_of(raw),
                kind,
                raw,
                config=image.config.blob,
                layers=layers,
                has_parts_elsewhere=any(
                    one.is_elsewhere or one.urls for one in (image.config, *image.layers)
                ),
            )
    except UnreadableError as error:
        raise _refusal(f"cannot be read: {error}", where) from None
    raise _refusal(f"is of a kind that is not known: {one_line(kind, 80) or 'none'}", where)


def require_held(manifests: Sequence[Manifest], where: str) -> None:
    """Refuse an image with parts that its registry need not hold, unless lists name it for Windows alone.

    A registry takes it without them, and on Linux they are pulled all the same: from there, where they
    could be those of another image, or from any address that it names.

    Raises ClusterctlError (``images.manifest``).
    """
    named: dict[str, list[str]] = {}
    for child in (child for one in manifests for child in one.children):
        named.setdefault(child.digest, []).append(child.platform)
    for one in manifests:
        platforms = named.get(one.digest, [""])
        if one.has_parts_elsewhere and not all(each.startswith(WINDOWS) for each in platforms):
            because = "names layers outside of its registry (by their type or urls)"
            raise _refusal(f"{because}, as only images for Windows may", where)


def _refusal(because: str, where: str) -> ClusterctlError:
    return ClusterctlError(
        f"the manifest {because}",
        code="images.manifest",
        where=where,
        hint="Images of the OCI and of Docker's second format are known; is the source a registry of images?",
        exit_code=EXIT_CLUSTER_BAD,
    )
