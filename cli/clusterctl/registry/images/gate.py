"""What must hold before an image moves: a lock that says what the settings say, and drivers that serve."""

from __future__ import annotations

from collections.abc import Sequence

from clusterctl.cluster import lock as lock_file
from clusterctl.cluster.inventory import Inventory
from clusterctl.cluster.lock import Lock, LockedImage
from clusterctl.errors import ClusterctlError
from clusterctl.registry.images.declared import DeclaredImage, declared_images, nodes_driver
from clusterctl.registry.images.resolve import is_platform

RELOCK = (
    "Run: clusterctl lock. It asks only for what has changed. If an image cannot be locked, lock and mirror "
    "the others by name: clusterctl lock IMAGE..., clusterctl images mirror IMAGE..."
)


def locked_images(inventory: Inventory, names: Sequence[str] = ()) -> tuple[LockedImage, ...]:
    """The images of the lock, or those of them that are named, where lock and settings agree on these.

    Raises ClusterctlError (``images.no-lock``, ``images.stale-lock``, ``images.unknown``).
    """
    file = str(lock_file.path(inventory.directory))
    lock = lock_file.read(inventory.directory)
    if lock is None:
        raise ClusterctlError(
            "the images are not locked yet", code="images.no-lock", where=file, hint="Run: clusterctl lock"
        )
    require_agreement(inventory, lock, RELOCK, names)
    unknown = [name for name in names if lock.image(name) is None]
    if unknown:
        raise ClusterctlError(
            f"there is no image {', '.join(unknown)} in the lock",
            code="images.unknown",
            where=file,
            hint=f"There are: {', '.join(image.name for image in lock.images) or 'none'}.",
        )
    return tuple(image for image in lock.images if not names or image.name in names)


def require_agreement(inventory: Inventory, lock: Lock, hint: str, names: Sequence[str] = ()) -> None:
    """Refuse a lock that is not that of the settings, or has other images of these names.

    Raises ClusterctlError (``images.stale-lock``).
    """
    differences = stale(lock, declared_images(inventory), nodes_driver(inventory), names)
    if differences:
        raise _stale_lock("; ".join(differences), str(lock_file.path(inventory.directory)), hint)


def stale(lock: Lock, declared: Sequence[DeclaredImage], driver: str, names: Sequence[str] = ()) -> list[str]:
    """In what a lock and the settings differ, of all images or those named; nothing where they agree."""
    found = [] if lock.driver == driver else [f"driver {lock.driver or 'none'}, now {driver or 'none'}"]
    wanted = {image.name: image for image in declared if not names or image.name in names}
    found += [
        f"{name} is new" for name, image in wanted.items() if lock.image(name) is None and not image.built
    ]
    locked = (image for image in lock.images if not names or image.name in names)
    return found + [words for image in locked if (words := _difference(image, wanted.get(image.name)))]


def require_same(image: LockedImage, declared: Sequence[DeclaredImage]) -> None:
    """Refuse an image of the lock that is not the one of the settings.

    Raises ClusterctlError (``images.stale-lock``).
    """
    difference = _difference(image, next((one for one in declared if one.name == image.name), None))
    if difference:
        raise _stale_lock(difference, lock_file.NAME, RELOCK)


def _difference(image: LockedImage, declared: DeclaredImage | None) -> str:
    """In what an image of the lock differs from that of the settings; nothing where they agree."""
    if declared is None:
        return f"{image.name} is declared no more"
    if not _has_digest(image, declared):
        return f"{image.name} is declared by another digest"
    return "" if is_of(image, declared) else f"{image.name} is declared otherwise"


def _has_digest(image: LockedImage, declared: DeclaredImage) -> bool:
    return declared.source.digest in ("", image.digest)


def is_of(image: LockedImage, declared: DeclaredImage) -> bool:
    """Whether a locked image is the declared one."""
    platforms = declared.platforms
    names = (image.source, image.target, image.tag)
    same = _has_digest(image, declared) and names == (str(declared.source), declared.target, declared.tag)
    if image.index is None or not platforms:
        return same
    # Of a list that the operator named by its digest, the platforms decide which one is looked into.
    # Several may be one that is wanted, as v6 and v7 are of linux/arm.
    is_there = all(any(is_platform(found, one) for found in image.platforms) for one in platforms)
    is_wanted = all(any(is_platform(found, one) for one in platforms) for found in image.platforms)
    return same and is_there and is_wanted


def require_driver(images: Sequence[LockedImage], driver: str) -> None:
    """Refuse images that the nodes' driver does not serve. Raises ClusterctlError (``images.driver``)."""
    refused = unserved(images, driver)
    if refused:
        raise _driver_error("; ".join(refused.values()) + "; nothing was moved")


def driver_failures(images: Sequence[LockedImage], driver: str) -> dict[str, ClusterctlError]:
    """The images that the nodes' driver does not serve, by name, and why (``images.driver``)."""
    return {name: _driver_error(words) for name, words in unserved(images, driver).items()}


def unserved(images: Sequence[LockedImage], driver: str) -> dict[str, str]:
    """A sentence for each image that the driver does not serve, by name; none if no driver is declared."""
    return {
        image.name: f"{image.name} (CUDA {image.cuda or 'unknown'}) needs driver {image.minimum_driver}"
        f" ({image.minimum_driver_from}), and the nodes have {driver}"
        for image in images
        if driver and not image.needs.served_by(driver)
    }


def _driver_error(words: str) -> ClusterctlError:
    return ClusterctlError(
        words,
        code="images.driver",
        where=lock_file.NAME,
        hint="Take an image of an older CUDA, or raise nvidia_driver_branch or nvidia_driver_version (then "
        "clusterctl lock).",
    )


def _stale_lock(differences: str, where: str, hint: str) -> ClusterctlError:
    return ClusterctlError(
        f"the lock is not that of the settings: {differences}",
        code="images.stale-lock",
        where=where,
        hint=hint,
    )
