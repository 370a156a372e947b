"""The artifact with an image's cosign signatures, brought along with the image."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from clusterctl.cluster.lock import LockedImage
from clusterctl.registry.images.signatures.cosign import read_signatures, signature_tag
from clusterctl.registry.oci.client import Registry
from clusterctl.registry.oci.manifest import Manifest
from clusterctl.registry.oci.reference import parse


def is_part(artifact: Manifest, *, of: Manifest) -> bool:
    """Whether all signatures of one artifact are in the other, too: nothing is lost where that replaces it.

    Raises RefusedSignatureError for one that cannot be read.
    """
    return set(read_signatures(artifact)) <= set(read_signatures(of))


def bring(artifact: Manifest, image: LockedImage, source: Registry, destination: Registry) -> None:
    """Copy the artifact, which is small, and have it under its tag. Raises what registries do."""
    for blob in artifact.blobs:
        if not destination.has_blob(image.target, blob.digest):
            content = source.small_blob(parse(image.source).repository, blob)
            destination.put_blob(image.target, blob, _pieces(content))
    destination.put_manifest(image.target, artifact, signature_tag(image.digest))


def _pieces(content: bytes) -> Callable[[], Iterator[bytes]]:
    return lambda: iter([content])
