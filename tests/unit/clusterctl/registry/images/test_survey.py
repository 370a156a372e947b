"""What is to be brought is found out in a time that grows with what there is, whatever a source says."""

from __future__ import annotations

import json
import threading
from types import SimpleNamespace

import pytest

from clusterctl.cluster.lock import LockedBlob, LockedImage
from clusterctl.registry.images.mirror import survey
from clusterctl.registry.oci.errors import RegistryError
from clusterctl.registry.oci.manifest import OCI_MANIFEST, Blob, Manifest, read

LAYERS = 40


class Nothing:
    """A registry that has nothing."""

    retry = SimpleNamespace(stop=threading.Event())

    def manifest(self, repository: str, reference: str) -> Manifest:
        raise RegistryError("it is not there", code="images.not-found")

    def has_blob(self, repository: str, digest: str) -> bool:
        return False


def made(name: str, shared: int) -> tuple[LockedImage, Manifest]:
    """An image of many layers, of which so many are those of others, too."""
    digests = [f"sha256:{number:064x}" for number in range(shared)]
    digests += [f"sha256:{ord(name):032x}{number:032x}" for number in range(LAYERS - shared)]
    layers = [{"digest": digest, "size": 1} for digest in digests]
    said = {"mediaType": OCI_MANIFEST, "config": {"digest": digests[0], "size": 1}, "layers": layers}
    top = read(json.dumps(said).encode(), OCI_MANIFEST, name)
    config = LockedBlob(digest=digests[0], size=1)
    return LockedImage(
        name=name, source=f"host/{name}:1", target=name, digest=top.digest, manifest=top.digest,
        platforms=(), config=config, layers=(),
    ), top  # fmt: skip


def test_what_an_image_has_is_listed_once(monkeypatch: pytest.MonkeyPatch):
    images = dict(made(name, shared=10) for name in "abc")
    asked: list[Manifest] = []
    listing = Manifest.blobs.fget

    def counted(manifest: Manifest) -> tuple[Blob, ...]:
        asked.append(manifest)
        return listing(manifest)

    monkeypatch.setattr(Manifest, "blobs", property(counted))
    origin = SimpleNamespace(manifests=lambda image: [images[image]], offers=lambda *_: True)
    plan = survey(list(images), origin, Nothing(), 2)
    assert len(plan.transfers) == 10 + 3 * (LAYERS - 10)
    assert [len(one.of) for one in plan.transfers].count(3) == 10
    assert len(asked) == len(images)  # not once a blob
