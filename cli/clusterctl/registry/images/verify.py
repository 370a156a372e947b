"""Is what a registry has what the lock says? Asked as a node would ask."""

from __future__ import annotations

from collections.abc import Sequence

from clusterctl.cluster.lock import LockedImage
from clusterctl.errors import ExplainedError
from clusterctl.parallel import parallel_map
from clusterctl.registry.images.outcome import TransferOutcome, TransferState, looked_at
from clusterctl.registry.images.resolve import SURVEY_S, closure
from clusterctl.registry.oci.client import Registry
from clusterctl.registry.oci.deadline import within
from clusterctl.registry.oci.errors import RegistryError
from clusterctl.registry.oci.manifest import Blob, require_held

PARALLEL_IMAGES = 8


def presence(images: Sequence[LockedImage], registry: Registry) -> list[TransferOutcome]:
    """Which of the images are there, by their manifests."""

    def look(image: LockedImage) -> TransferOutcome:
        try:
            there = registry.has_manifest(image.target, image.digest)
        except ExplainedError as error:
            return TransferOutcome(image, TransferState.UNKNOWN, error)
        return TransferOutcome(image, TransferState.THERE if there else TransferState.MISSING)

    return parallel_map(look, images, limit=PARALLEL_IMAGES, stop=registry.retry.stop)


def verify(
    images: Sequence[LockedImage], registry: Registry, *, jobs: int, deep: bool
) -> list[TransferOutcome]:
    """Manifests read and hashed, tags and blobs looked for; with ``deep`` blobs are read, too, each once."""
    stop = registry.retry.stop
    with within(SURVEY_S):
        found = parallel_map(lambda image: _blobs(image, registry), images, limit=jobs, stop=stop)
    whole = [(image, blobs) for image, blobs in zip(images, found, strict=True) if isinstance(blobs, list)]
    wanted = {blob: image.target for image, blobs in whole for blob in blobs}
    looks = dict.fromkeys((image.target, blob.digest) for image, blobs in whole for blob in blobs)
    with within(SURVEY_S):
        missing = parallel_map(lambda look: _missing(registry, *look), looks, limit=jobs, stop=stop)
    looked = dict(zip(looks, missing, strict=True))
    read: dict[Blob, ExplainedError | None] = {}
    if deep:
        damages = parallel_map(
            lambda blob: damage(registry, wanted[blob], blob), wanted, limit=jobs, stop=stop
        )
        read = dict(zip(wanted, damages, strict=True))
    outcomes = []
    for image, blobs in zip(images, found, strict=True):
        if isinstance(blobs, ExplainedError):
            outcomes.append(looked_at(image, blobs))
            continue
        errors = [looked[image.target, blob.digest] or read.get(blob) for blob in blobs]
        outcomes.append(looked_at(image, next((error for error in errors if error is not None), None)))
    return outcomes


def mistagged(image: LockedImage, registry: Registry) -> RegistryError | None:
    """What is wrong with the tag that people look for, or None. Raises RegistryError where nobody can say."""
    if not image.tag:
        return None
    where = f"{registry.endpoint.host}: manifest {image.target}:{image.tag}"
    hint = "clusterctl images mirror sets it again."
    try:
        tagged = registry.manifest(image.target, image.tag).digest
    except RegistryError as error:
        if error.code != "images.not-found":
            raise
        return RegistryError("its tag is not there", code="images.tag-moved", where=where, hint=hint)
    if tagged == image.digest:
        return None
    return RegistryError(
        f"its tag is another image's: {tagged}", code="images.tag-moved", where=where, hint=hint
    )


def damage(registry: Registry, repository: str, blob: Blob) -> ExplainedError | None:
    """Read all of a blob: what is wrong with it, or None."""
    try:
        found, size = registry.hash_blob(repository, blob)
    except ExplainedError as error:
        return error
    if (found, size) == (blob.digest, blob.size):
        return None
    where = f"{registry.endpoint.host}: blob {repository}@{blob.digest}"
    if found == blob.digest:
        return RegistryError(
            f"its manifest is wrong: a blob is said to have {blob.size} bytes, and has {size}",
            code="images.manifest",
            where=where,
            hint="No node can pull it, and nothing is damaged: have it pushed again at its source.",
        )
    is_longer = size > blob.size  # it may be whole all the same, which is known only at its end
    said = f"more than {blob.size}" if is_longer else f"{size} of {blob.size}"
    other = "If another image with this blob is whole, this manifest is wrong, and nothing is damaged. "
    return RegistryError(
        f"a blob of it is damaged: {said} bytes, and their digest is {found}",
        code="images.corrupt",
        where=where,
        hint=f"{other if is_longer else ''}No registry replaces a blob that it has. Remove "
        f"{stored(blob.digest)} from its storage (registry_data_dir; Harbor: harbor_data_dir/registry), "
        "then: clusterctl images mirror --deep",
    )


def stored(digest: str) -> str:
    """The file of a blob in the storage of Docker's registry, which is Harbor's, too."""
    value = digest.removeprefix("sha256:")
    return f"docker/registry/v2/blobs/sha256/{value[:2]}/{value}/data"


def _blobs(image: LockedImage, registry: Registry) -> list[Blob] | ExplainedError:
    try:
        manifests = closure(registry, image.target, image.digest)
        require_held(manifests, f"{registry.endpoint.host}: {image.target}")
        error = mistagged(image, registry)
    except ExplainedError as failure:
        return failure
    if error is not None:
        return error
    return list(dict.fromkeys(blob for manifest in manifests for blob in manifest.blobs))


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
        where=f"{registry.endpoint.host}: blob {repository}@{digest}",
        hint="The registry's storage has lost it: clusterctl images mirror copies it again.",
    )
