"""Is what a registry has what the lock says? Asked as a node would ask."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from clusterctl.cluster.lock import LockedImage
from clusterctl.errors import ExplainedError
from clusterctl.registry.images.outcome import Outcome, State
from clusterctl.registry.images.resolve import closure
from clusterctl.registry.oci.client import Registry
from clusterctl.registry.oci.errors import RegistryError
from clusterctl.registry.oci.manifest import Blob

# What says that the bytes are wrong or absent; anything else says that nobody could look.
WRONG = ("images.corrupt", "images.not-found", "images.manifest")
LOOKS_AT_ONCE = 8


def presence(images: Sequence[LockedImage], registry: Registry) -> list[Outcome]:
    """Which of the images are there, by their manifests."""

    def look(image: LockedImage) -> Outcome:
        try:
            there = registry.has_manifest(image.target, image.digest)
        except ExplainedError as error:
            return Outcome(image, State.UNKNOWN, error)
        return Outcome(image, State.THERE if there else State.MISSING)

    with ThreadPoolExecutor(LOOKS_AT_ONCE) as pool:
        return list(pool.map(look, images))


def verify(images: Sequence[LockedImage], registry: Registry, *, jobs: int, deep: bool) -> list[Outcome]:
    """Manifests read and hashed, blobs looked for, or with ``deep`` read and hashed as well, each once."""
    with ThreadPoolExecutor(jobs) as pool:
        found = list(pool.map(lambda image: _blobs(image, registry), images))
        wanted = {blob.digest: (i.target, blob) for i, blobs in zip(images, found, strict=True)
                  if not isinstance(blobs, ExplainedError) for blob in blobs}  # fmt: skip
        looks = {(i.target, blob.digest) for i, blobs in zip(images, found, strict=True)
                 if not isinstance(blobs, ExplainedError) for blob in blobs}  # fmt: skip
        looked = dict(zip(looks, pool.map(lambda look: _missing(registry, *look), looks), strict=True))
        read: dict[str, ExplainedError | None] = {}
        if deep:
            read = dict(
                zip(wanted, pool.map(lambda one: _wrong(registry, *one), wanted.values()), strict=True)
            )
    outcomes = []
    for image, blobs in zip(images, found, strict=True):
        if isinstance(blobs, ExplainedError):
            outcomes.append(_bad(image, blobs))
            continue
        errors = [looked[image.target, blob.digest] or read.get(blob.digest) for blob in blobs]
        first = next((error for error in errors if error is not None), None)
        outcomes.append(Outcome(image, State.THERE) if first is None else _bad(image, first))
    return outcomes


def _bad(image: LockedImage, error: ExplainedError) -> Outcome:
    return Outcome(image, State.FAILED if error.code in WRONG else State.UNKNOWN, error)


def _blobs(image: LockedImage, registry: Registry) -> list[Blob] | ExplainedError:
    try:
        manifests = closure(registry, image.target, image.digest)
    except ExplainedError as error:
        return error
    return list({blob.digest: blob for manifest in manifests for blob in manifest.blobs}.values())


def _missing(registry: Registry, repository: str, digest: str) -> ExplainedError | None:
    try:
        there = registry.has_blob(repository, digest)
    except ExplainedError as error:
        return error
    if there:
        return None
    return RegistryError(
        "a blob of it is missing",
        code="images.not-found",
        where=f"{registry.way.host}: blob {repository}@{digest}",
        hint="The registry's storage has lost it. Remove the manifest there, then: clusterctl images mirror",
    )


def _wrong(registry: Registry, repository: str, blob: Blob) -> ExplainedError | None:
    try:
        found, size = registry.hash_blob(repository, blob.digest)
    except ExplainedError as error:
        return error
    if found == blob.digest:
        return None
    return RegistryError(
        f"a blob of it is damaged: {size} of {blob.size} bytes, and their digest is {found}",
        code="images.corrupt",
        where=f"{registry.way.host}: blob {repository}@{blob.digest}",
        hint="Remove the blob from the registry's storage (no registry replaces one that it has), then: "
        "clusterctl images mirror",
    )
