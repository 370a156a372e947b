"""Take out of a registry what we put there and no lock names any more; nothing else is ever touched."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from clusterctl.cluster.lock import LockedImage
from clusterctl.errors import ExplainedError
from clusterctl.registry.images.mirrored import Brought
from clusterctl.registry.images.resolve import closure, named_manifests
from clusterctl.registry.oci.client import Registry
from clusterctl.registry.oci.deadline import within
from clusterctl.registry.oci.manifest import Manifest

# For all that is read before anything is removed, and for all that is removed.
PLAN_S, REMOVE_S = 1800.0, 1800.0


@dataclass
class Pruning:
    """An image that may go, the manifests that go with it, or why that is not known."""

    image: Brought
    manifests: list[str] = field(default_factory=list)
    error: ExplainedError | None = None


def plan(
    brought: Sequence[Brought], images: Sequence[LockedImage], registry: Registry, name: str
) -> list[Pruning]:
    """What of the record no image of the lock is, found within PLAN_S. Removes nothing.

    A manifest that belongs to an image that stays, too, is not among them, even if that image is not whole.
    """
    with within(PLAN_S):
        return _plan(brought, images, registry, name)


def _plan(
    brought: Sequence[Brought], images: Sequence[LockedImage], registry: Registry, name: str
) -> list[Pruning]:
    wanted = {(image.target, image.digest) for image in images}
    there = [one for one in brought if one.registry == name]
    gone = [one for one in there if (one.repository, one.digest) not in wanted]
    staying: dict[str, set[str]] = {}
    broken: dict[str, ExplainedError] = {}
    for repository in {one.repository for one in gone}:
        staying[repository] = set()
        for digest in {digest for target, digest in wanted if target == repository}:
            try:
                staying[repository] |= named_manifests(registry, repository, digest)
            except ExplainedError as error:
                # One that was not brought yet has nothing there that only it names.
                if error.code != "images.not-found" or any(
                    (one.repository, one.digest) == (repository, digest) for one in there
                ):
                    broken[repository] = error
    return [_one(one, staying, broken, registry) for one in gone]


def run_prunings(prunings: Sequence[Pruning], registry: Registry) -> list[Brought]:
    """Remove what was planned within REMOVE_S, lists before what they list; those that are gone certainly."""
    with within(REMOVE_S):
        return _remove(prunings, registry)


def _remove(prunings: Sequence[Pruning], registry: Registry) -> list[Brought]:
    gone = []
    for pruning in prunings:
        if pruning.error is not None:
            continue
        try:
            for digest in pruning.manifests:
                registry.delete_manifest(pruning.image.repository, digest)
            gone.append(pruning.image)
        except ExplainedError as error:
            pruning.error = error
    return gone


def _one(
    image: Brought, staying: dict[str, set[str]], broken: dict[str, ExplainedError], registry: Registry
) -> Pruning:
    if image.repository in broken:
        return Pruning(image, error=broken[image.repository])
    try:
        # Of a list that was interrupted the top is missing: the record knows what it would have listed.
        found = [manifest.digest for manifest in _closure(registry, image.repository, image.digest)]
        # Records of the first versions have none.
        ours = image.manifests or found
        found = [digest for digest in found or ours if digest in ours]
        found += [image.signature] if image.signature else []
    except ExplainedError as error:
        return Pruning(image, error=error)
    return Pruning(image, [digest for digest in reversed(found) if digest not in staying[image.repository]])


def _closure(registry: Registry, repository: str, digest: str) -> list[Manifest]:
    """The manifests of an image; none where it is not there."""
    try:
        return closure(registry, repository, digest)
    except ExplainedError as error:
        if error.code == "images.not-found":
            return []
        raise
