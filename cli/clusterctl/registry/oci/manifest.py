"""Manifests: an image of one platform, or a list of such images."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from clusterctl.errors import EXIT_CLUSTER_BAD, ClusterctlError
from clusterctl.registry.oci.reference import DIGEST

OCI_INDEX = "application/vnd.oci.image.index.v1+json"
OCI_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
DOCKER_LIST = "application/vnd.docker.distribution.manifest.list.v2+json"
DOCKER_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
INDEXES = (OCI_INDEX, DOCKER_LIST)
MANIFESTS = (OCI_MANIFEST, DOCKER_MANIFEST)
ACCEPTED = ", ".join((*INDEXES, *MANIFESTS))
# Layers that registries do not hold (Windows' base images).
ELSEWHERE = ("foreign", "nondistributable")
LARGEST = 8 << 20


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

    @property
    def is_index(self) -> bool:
        """Whether this is a list of images."""
        return self.media_type in INDEXES

    @property
    def blobs(self) -> tuple[Blob, ...]:
        """Configuration and layers, each once."""
        both = (*((self.config,) if self.config else ()), *self.layers)
        return tuple({blob.digest: blob for blob in both}.values())


def digest_of(raw: bytes) -> str:
    """The digest of these bytes."""
    return f"sha256:{hashlib.sha256(raw).hexdigest()}"


def read(raw: bytes, media_type: str, where: str) -> Manifest:
    """Read a manifest. Raises ClusterctlError (``images.manifest``) where it is none that we know."""
    try:
        reply = json.loads(raw)
        kind = str(reply.get("mediaType") or media_type.partition(";")[0].strip())
        if kind in INDEXES:
            return Manifest(digest_of(raw), kind, raw, children=tuple(map(_child, reply["manifests"])))
        if kind in MANIFESTS:
            layers = tuple(_blob(layer) for layer in reply["layers"] if not _is_elsewhere(layer))
            return Manifest(digest_of(raw), kind, raw, config=_blob(reply["config"]), layers=layers)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _refusal(f"cannot be read: {type(error).__name__}: {error}", where) from None
    raise _refusal(f"is of a kind that is not known: {kind[:80] or 'none'}", where)


def platform_of(record: Mapping[str, Any]) -> str:
    """``os/architecture`` with a variant, in the words of `--platform`."""
    words = (record.get("os", "unknown"), record.get("architecture", "unknown"), record.get("variant"))
    return "/".join(str(word) for word in words if word)


def _child(record: Mapping[str, Any]) -> Child:
    blob = _blob(record)
    return Child(blob.digest, blob.size, platform_of(record.get("platform") or {}))


def _blob(record: Mapping[str, Any]) -> Blob:
    digest, size = record["digest"], record["size"]
    # A digest becomes the name of a file: nothing else may pass here.
    if not isinstance(digest, str) or not DIGEST.fullmatch(digest):
        raise ValueError(f"{str(digest)[:80]!r} is not a sha256 digest")
    if isinstance(size, bool) or not isinstance(size, int) or size < 0:
        raise ValueError(f"{str(size)[:80]!r} is not a size")
    return Blob(digest, size)


def _is_elsewhere(layer: Mapping[str, Any]) -> bool:
    return any(word in str(layer.get("mediaType", "")) for word in ELSEWHERE)


def _refusal(because: str, where: str) -> ClusterctlError:
    return ClusterctlError(
        f"the manifest {because}",
        code="images.manifest",
        where=where,
        hint="Images of the OCI and of Docker's second format are known; is the source a registry of images?",
        exit_code=EXIT_CLUSTER_BAD,
    )
