"""From a tag to bytes: what the lock says of an image, asked of its source."""

from __future__ import annotations

from collections.abc import Callable

from clustercheck.parse.plain_text import one_line
from clusterctl.cluster.compatibility import needs
from clusterctl.cluster.lock import LockedBlob, LockedImage
from clusterctl.errors import EXIT_CLUSTER_BAD, ClusterctlError
from clusterctl.registry.images.declared import DeclaredImage
from clusterctl.registry.oci.answers import UnreadableError, read_exact
from clusterctl.registry.oci.client import Registry
from clusterctl.registry.oci.configuration import ImageConfiguration
from clusterctl.registry.oci.deadline import within
from clusterctl.registry.oci.errors import RegistryError
from clusterctl.registry.oci.manifest import Blob, Manifest, require_held
from clusterctl.registry.oci.reference import PLAIN, parse

# Signatures and attestations that builders put next to the images of a list.
NO_PLATFORM = "unknown/unknown"
# Lists within lists, and manifests of one image; no known image comes near.
MAX_DEPTH = 4
MAX_MANIFESTS = 1000
# Those of all images are kept until they are written; a real list has some hundred KiB.
MAX_TOTAL_BYTES = 4 << 20
# Configurations and layers; Docker makes no image of more than 127, a list has some ten platforms.
MAX_BLOBS = 5000
LONGEST_VERSION = 100
# Of a list that are wanted, and characters of one; known ones are as linux/arm64/v8.
MAX_PLATFORMS, MAX_PLATFORM = 100, 100
# For all manifests of one image, and for each kind of question about all images: what is there, which blobs.
DESCRIBE_S, SURVEY_S = 900.0, 1800.0


def source_host(image: LockedImage) -> str:
    """The registry that an image comes from, as its source names it."""
    return image.source.removeprefix(PLAIN).partition("/")[0]


def source_repository(image: LockedImage) -> str:
    """The repository that an image comes from, with its registry's host."""
    source = parse(image.source)
    return f"{source.host}/{source.repository}"


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
    platforms = platforms or (config.words,)
    found = needs(config.labels, config.environment, source.tag or image.tag)
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
        cuda=one_line(found.cuda, LONGEST_VERSION),
        cudnn=one_line(found.cudnn, LONGEST_VERSION),
        nccl=one_line(found.nccl, LONGEST_VERSION),
        compute_capabilities=one_line(found.capabilities, LONGEST_VERSION),
        minimum_driver=found.minimum_driver,
        drivers=tuple((one.least, one.below) for one in found.drivers),
        minimum_driver_from=found.source,
    )


def configuration(registry: Registry, repository: str, blob: Blob) -> ImageConfiguration:
    """An image's configuration, as its registry gives it.

    Raises RegistryError, and ClusterctlError (``images.manifest``) for what is none.
    """
    raw = registry.small_blob(repository, blob)
    try:
        return read_exact(ImageConfiguration, raw)
    except UnreadableError as error:
        raise ClusterctlError(
            f"the configuration of an image cannot be read: {error}",
            code="images.manifest",
            where=f"{registry.endpoint.host}: blob {repository}@{blob.digest}",
            hint="What the registry holds under that name is not an image; have it pushed again.",
            exit_code=EXIT_CLUSTER_BAD,
        ) from None


class ImageTotals:
    """What the manifests of one image come to together, whoever brings them."""

    def __init__(self) -> None:
        self._bytes = self._blobs = 0

    def exceeded_with(self, manifest: Manifest) -> str:
        """Count one more manifest; the limit that they exceed then, or nothing."""
        self._bytes += len(manifest.raw)
        self._blobs += len(manifest.blobs)
        if self._bytes > MAX_TOTAL_BYTES:
            return f"{MAX_TOTAL_BYTES >> 20} MiB of manifests"
        return f"{MAX_BLOBS} blobs" if self._blobs > MAX_BLOBS else ""


def source_manifests(registry: Registry, image: LockedImage) -> list[Manifest]:
    """What an image's source gives of it, as ``closure`` does.

    Raises also ClusterctlError (``images.manifest``) for layers that the source need not hold.
    """
    found = closure(registry, parse(image.source).repository, image.digest)
    require_held(found, image.source)
    return found


def closure(registry: Registry, repository: str, digest: str) -> list[Manifest]:
    """The manifest of a digest with all that it lists, each once, children first: as they must be written.

    Within DESCRIBE_S. Raises RegistryError, also (``images.manifest``) for too much, or lists within lists.
    """
    with within(DESCRIBE_S):
        return list(_closure(registry, repository, digest, registry.manifest).values())


def named_manifests(registry: Registry, repository: str, digest: str) -> set[str]:
    """The digests of what ``closure`` gives, of manifests that the registry has lost, too.

    Within DESCRIBE_S. Raises as ``closure`` does, also where the image itself is not there.
    """
    named: set[str] = set()

    def look(repository: str, one: str) -> Manifest | None:
        named.add(one)
        try:
            return registry.manifest(repository, one)
        except RegistryError as error:
            if error.code == "images.not-found" and one != digest:
                return None
            raise

    with within(DESCRIBE_S):
        _closure(registry, repository, digest, look)
    return named


def _closure(
    registry: Registry, repository: str, digest: str, look: Callable[[str, str], Manifest | None]
) -> dict[str, Manifest]:
    asked: set[str] = set()
    found: dict[str, Manifest] = {}
    totals = ImageTotals()

    def refusal(digest: str, limit: str) -> RegistryError:
        return RegistryError(
            f"the image has more than {limit}",
            code="images.manifest",
            where=f"{registry.endpoint.host}: manifest {repository}@{digest}",
            hint="What the registry holds under that name is not an image; have it pushed again.",
        )

    def add(digest: str, depth: int) -> None:
        if digest in asked:
            return
        if depth > MAX_DEPTH:
            raise refusal(digest, f"{MAX_DEPTH} levels of lists")
        if len(asked) >= MAX_MANIFESTS:
            raise refusal(digest, f"{MAX_MANIFESTS} manifests")
        asked.add(digest)
        top = look(repository, digest)
        if top is None:
            return
        if limit := totals.exceeded_with(top):
            raise refusal(digest, limit)
        for child in top.children:
            add(child.digest, depth + 1)
        found[digest] = top

    add(digest, 1)
    return found


def _picked(image: DeclaredImage, index: Manifest) -> list[tuple[str, str]]:
    """Digest and platform of each image that is wanted, in the wanted order."""
    there = [(c.digest, c.platform) for c in index.children if c.platform != NO_PLATFORM]
    if not image.platforms:
        found = there
    else:
        found = [one for wanted in image.platforms for one in there if is_platform(one[1], wanted)]
        missing = [w for w in image.platforms if not any(is_platform(platform, w) for _, platform in there)]
        if missing:
            raise _refusal(
                image, f"it has no {', '.join(missing)}; it has {', '.join(p for _, p in there) or 'none'}"
            )
    if not found:
        raise _refusal(image, "its list is empty")
    if len(found) > MAX_PLATFORMS or any(len(platform) > MAX_PLATFORM for _, platform in found):
        raise _refusal(
            image, f"more than {MAX_PLATFORMS} images of its list are wanted, or one is of no known platform"
        )
    return found


def is_platform(platform: str, wanted: str) -> bool:
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
