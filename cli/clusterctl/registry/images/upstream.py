"""Images out of the registries that they come from, by way of the spool."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator
from functools import partial

from clusterctl.cluster.lock import LockedImage
from clusterctl.errors import ClusterctlError
from clusterctl.registry.images.mirror import BlobTransfer, BrokenOriginError, Opened, PlannedImage
from clusterctl.registry.images.offers import says_yes
from clusterctl.registry.images.resolve import source_manifests
from clusterctl.registry.images.spool import Spool, giver
from clusterctl.registry.oci.client import Registry
from clusterctl.registry.oci.exchange import Content
from clusterctl.registry.oci.manifest import Blob, Manifest
from clusterctl.registry.oci.reference import parse

WRONG = "images.corrupt"
TRIES = 2


class Upstream:
    """An origin: what has come lies in the spool until it has been sent on."""

    def __init__(self, opened: Opened, spool: Spool) -> None:
        self._opened = opened
        self._spool = spool
        self._failed: Counter[tuple[Blob, str]] = Counter()

    def manifests(self, image: LockedImage) -> list[Manifest]:
        """Asked of its source. Raises as ``source_manifests`` does."""
        return source_manifests(self._opened(image), image)

    def content(self, transfer: BlobTransfer) -> Content:
        """The blob as it comes, from the first of its images' repositories that gives it.

        One that was broken off is whole before it is sent: what its registry has of it then stays there for
        days, and a source that never gives the end would have it filled. Raises BrokenOriginError.
        """
        with self._from_next(transfer) as (registry, repository):
            if self._spool.part(transfer.blob, giver(registry, repository)).is_file():
                self._spool.fetch(registry, repository, transfer.blob)
        return partial(self._pieces, transfer)

    def _pieces(self, transfer: BlobTransfer) -> Iterator[bytes]:
        with self._from_next(transfer) as (registry, repository):
            yield from self._spool.stream(registry, repository, transfer.blob)

    @contextlib.contextmanager
    def _from_next(self, transfer: BlobTransfer) -> Iterator[tuple[Registry, str]]:
        """Who gives it, with its repository; what comes meanwhile counts for the image."""
        image = self._next(transfer)
        digest, repository = transfer.blob.digest, parse(image.image.source).repository
        try:
            registry = self._opened(image.image)
            before = self._spool.come(transfer.blob, giver(registry, repository))
            yield registry, repository
        except ClusterctlError as error:
            self._spool.note("failed", digest, code=error.code, because=error.what)
            # Wrong bytes may have lain here since a power cut: the same source is asked once more for those.
            self._failed[transfer.blob, image.image.source] += 1 if error.code == WRONG else TRIES
            raise BrokenOriginError(error, again=self._tries(transfer) < TRIES) from None
        image.moved += self._spool.come(transfer.blob, giver(registry, repository)) - before

    def _next(self, transfer: BlobTransfer) -> PlannedImage:
        """The image whose source has failed least; the first of those."""
        return min(transfer.of, key=lambda one: self._failed[transfer.blob, one.image.source])

    def _tries(self, transfer: BlobTransfer) -> int:
        """How often the best of its sources has failed."""
        return self._failed[transfer.blob, self._next(transfer).image.source]

    def offers(self, image: LockedImage, blob: Blob) -> bool:
        """Whether its repository says so now."""
        return says_yes(self._opened, image, blob)

    def settled(self, transfer: BlobTransfer, *, keep: bool) -> None:
        """What was sent on need lie here no longer."""
        self._spool.note("kept" if keep else "settled", transfer.blob.digest)
        if keep:
            return
        for image in transfer.of:
            with contextlib.suppress(ClusterctlError):  # its registry is none that we may ask
                registry, repository = self._opened(image.image), parse(image.image.source).repository
                self._spool.drop(transfer.blob, giver(registry, repository))
