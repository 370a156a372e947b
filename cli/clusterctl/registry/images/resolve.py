"""From a tag to bytes: what the lock says of an image, asked of its source."""

from __future__ import annotations

import json
from typing import Any

from clusterctl.cluster.compatibility import needs
from clusterctl.cluster.lock import LockedBlob, LockedImage
from clusterctl.errors import EXIT_CLUSTER_BAD, ClusterctlError
from clusterctl.registry.images.declared import DeclaredImage
from clusterctl.registry.oci.client import Registry
from clusterctl.registry.oci.manifest import Blob, Manifest, platform_of

# Signatures and attestations that builders put next to the images of a list.
NO_PLATFORM = "unknown/unknown"


def resolve(image: DeclaredImage, registry: Registry) -> LockedImage:
    """Ask the source for the image's manifests and configuration; a few kilobytes, no layer.

    Raises ClusterctlError (``images.*``).
    """
    source = image.source
    top = registry.manifest(source.repository, source.wanted)
    index, digest, chosen = None, top.digest, top
    platforms: tuple[str, ...] = ()
    if top.is_index:
        index = top.digest
        picked = _picked(image, top)
        chosen = registry.manifest(source.repository, picked[0][0])
        platforms = tuple(platform for _, platform in picked)
        # By digest the operator named the list itself; else one platform of it is an image like any other.
        whole = bool(source.digest) or not image.platforms or len(picked) > 1
        digest = top.digest if whole else chosen.digest
    if chosen.config is None:
        raise _refusal(image, "its list holds another list, and no image")
    config = configuration(registry, source.repository, chosen.config)
    platforms = platforms or (platform_of(config),)
    inside = config.get("config") or {}
    found = needs(inside.get("Labels") or {}, inside.get("Env") or (), source.tag or image.tag)
    return LockedImage(
        name=image.name,
        source=str(source),
        target=image.target,
        tag=image.tag,
        index=index,
        digest=digest,
        platforms=platforms,
        manifest=chosen.digest,
        config=LockedBlob(digest=chosen.config.digest, size=chosen.config.size),
        layers=tuple(LockedBlob(digest=layer.digest, size=layer.size) for layer in chosen.layers),
        cuda=found.cuda,
        cudnn=found.cudnn,
        nccl=found.nccl,
        minimum_driver=found.minimum_driver,
        drivers=tuple((one.least, one.below) for one in found.drivers),
        minimum_driver_from=found.source,
    )


def configuration(registry: Registry, repository: str, blob: Blob) -> dict[str, Any]:
    """An image's configuration, as its registry gives it.

    Raises RegistryError, and ClusterctlError (``images.manifest``) for what is none.
    """
    try:
        config = json.loads(registry.small_blob(repository, blob))
        inside = (config.get("config") or {}, config.get("rootfs") or {})
        labels, environment = inside[0].get("Labels") or {}, inside[0].get("Env") or []
        layers = inside[1].get("diff_ids") or []
        good = isinstance(labels, dict) and isinstance(environment, list) and isinstance(layers, list)
        because = "" if good else "its parts are of other kinds"
    except (ValueError, AttributeError) as error:
        because = str(error)
    if because:
        raise ClusterctlError(
            f"the configuration of an image cannot be read: {because}",
            code="images.manifest",
            where=f"{registry.endpoint.host}: blob {repository}@{blob.digest}",
            hint="What the registry holds under that name is not an image; have it pushed again.",
            exit_code=EXIT_CLUSTER_BAD,
        )
    return dict(config)


def closure(registry: Registry, repository: str, digest: str) -> list[Manifest]:
    """The manifest of a digest with all that it lists, children first: as they must be written."""
    top = registry.manifest(repository, digest)
    return [*(m for child in top.children for m in closure(registry, repository, child.digest)), top]


def _picked(image: DeclaredImage, index: Manifest) -> list[tuple[str, str]]:
    """Digest and platform of each image that is wanted, in the wanted order."""
    there = [(c.digest, c.platform) for c in index.children if c.platform != NO_PLATFORM]
    if not image.platforms:
        found = there
    else:
        found = [one for wanted in image.platforms for one in there if _is(one[1], wanted)]
        missing = [w for w in image.platforms if not any(_is(platform, w) for _, platform in there)]
        if missing:
            raise _refusal(
                image, f"it has no {', '.join(missing)}; it has {', '.join(p for _, p in there) or 'none'}"
            )
    if not found:
        raise _refusal(image, "its list is empty")
    return found


def _is(platform: str, wanted: str) -> bool:
    """``linux/arm64/v8`` is a linux/arm64."""
    return platform == wanted or platform.startswith(f"{wanted}/")


def _refusal(image: DeclaredImage, because: str) -> ClusterctlError:
    return ClusterctlError(
        f"the image {image.name} cannot be locked: {because}",
        code="images.platform",
        where=str(image.source),
        hint="The setting `platforms` of the image names what you want of it.",
        exit_code=EXIT_CLUSTER_BAD,
    )
