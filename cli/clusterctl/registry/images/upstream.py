"""Images out of the registries that they come from, by way of the spool."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from clusterctl.cluster.lock import LockedImage
from clusterctl.errors import ClusterctlError, ExplainedError
from clusterctl.registry.images.mirror import Errand, Opened
from clusterctl.registry.images.resolve import closure
from clusterctl.registry.images.spool import Spool, disk
from clusterctl.registry.oci.client import PIECE, Content
from clusterctl.registry.oci.manifest import Blob, Manifest
from clusterctl.registry.oci.reference import parse


class Upstream:
    """An origin: what has come lies in the spool until it has been sent on."""

    def __init__(self, opened: Opened, spool: Spool) -> None:
        self._opened = opened
        self._spool = spool

    def manifests(self, image: LockedImage) -> list[Manifest]:
        """Asked of its source. Raises RegistryError."""
        return closure(self._opened(image), parse(image.source).repository, image.digest)

    def content(self, errand: Errand) -> Content:
        """The blob, from the first of its images' sources that gives it; else why the first did not."""
        failures: list[ExplainedError] = []
        for image in errand.of:
            before = self._spool.come(errand.blob)
            try:
                path = self._spool.fetch(
                    self._opened(image.image), parse(image.image.source).repository, errand.blob
                )
            except ClusterctlError as error:
                failures.append(error)
                self._spool.note("failed", errand.blob.digest, code=error.code, because=error.what)
            else:
                image.moved += errand.blob.size - before
                return partial(pieces_of, path)
        raise failures[0]

    def settled(self, blob: Blob, *, keep: bool) -> None:
        """What was sent on need lie here no longer."""
        if keep:
            self._spool.note("kept", blob.digest)
        else:
            self._spool.note("settled", blob.digest)
            self._spool.drop(blob.digest)


def pieces_of(path: Path) -> Iterator[bytes]:
    """A file's bytes. Raises ClusterctlError (``cluster.state-not-writable``)."""
    with disk(path.parent), path.open("rb") as stream:
        while piece := stream.read(PIECE):
            yield piece
