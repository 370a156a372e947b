"""Images out of the registries that they come from, by way of the spool."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import partial

from clusterctl.cluster.lock import LockedImage
from clusterctl.errors import ClusterctlError
from clusterctl.registry.images.mirror import BlobTransfer, BrokenOriginError, Opened, PlannedImage
from clusterctl.registry.images.resolve import closure
from clusterctl.registry.images.spool import Spool
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
        """Asked of its source. Raises RegistryError."""
        return closure(self._opened(image), parse(image.source).repository, image.digest)

    def content(self, transfer: BlobTransfer) -> Content:
        """The blob as it comes, from the first of its images' sources that gives it."""
        return partial(self._pieces, transfer)

    def _pieces(self, transfer: BlobTransfer) -> Iterator[bytes]:
        image = self._next(transfer)
        digest, repository = transfer.blob.digest, parse(image.image.source).repository
        before = self._spool.come(transfer.blob)
        try:
            yield from self._spool.stream(self._opened(image.image), repository, transfer.blob)
        except ClusterctlError as error:
            self._spool.note("failed", digest, code=error.code, because=error.what)
            # Wrong bytes may have lain here since a power cut: the same source is asked once more for those.
            self._failed[transfer.blob, image.image.source] += 1 if error.code == WRONG else TRIES
            raise BrokenOriginError(error, again=self._tries(transfer) < TRIES) from None
        image.moved += transfer.blob.size - before

    def _next(self, transfer: BlobTransfer) -> PlannedImage:
        """The image whose source has failed least; the first of those."""
        return min(transfer.of, key=lambda one: self._failed[transfer.blob, one.image.source])

    def _tries(self, transfer: BlobTransfer) -> int:
        """How often the best of its sources has failed."""
        return self._failed[transfer.blob, self._next(transfer).image.source]

    def settled(self, blob: Blob, *, keep: bool) -> None:
        """What was sent on need lie here no longer."""
        if keep:
            self._spool.note("kept", blob.digest)
        else:
            self._spool.note("settled", blob.digest)
            self._spool.drop(blob)
