"""Images of a source that gives nothing keep those of no other source waiting."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from clusterctl.cluster.lock import LockedBlob, LockedImage
from clusterctl.registry.images.bundling import Bundler, BundleRecipe
from clusterctl.registry.images.mirror import run_plan, survey
from clusterctl.registry.images.spool import Spool
from clusterctl.registry.images.upstream import Upstream
from clusterctl.registry.oci.errors import RegistryError
from clusterctl.registry.oci.exchange import Content
from clusterctl.registry.oci.manifest import OCI_MANIFEST, Blob, Manifest, digest_of, read
from clusterctl.registry.oci.rate import Pace
from clusterctl.registry.oci.retry import RetryPolicy

JOBS = 4
LONG_S = 30.0


class OneImage:
    """A registry with one image of more layers than there are jobs, which it gives once ``ready`` is set."""

    retry = RetryPolicy(attempts=1)

    def __init__(self, name: str, ready: threading.Event) -> None:
        self.endpoint, self.pace = SimpleNamespace(host=name), Pace()
        self.ready, self.done = ready, threading.Event()
        self.blobs = {digest_of(one): one for one in (f"{name} {n}".encode() for n in range(2 * JOBS))}
        listed = [{"digest": digest, "size": len(content)} for digest, content in self.blobs.items()]
        said = {"mediaType": OCI_MANIFEST, "config": listed[0], "layers": listed[1:]}
        self.top = read(json.dumps(said).encode(), OCI_MANIFEST, name)
        self.image = LockedImage(
            name=name, source=f"{name}.example/a/b:1", target=name, digest=self.top.digest,
            manifest=self.top.digest, platforms=(), config=LockedBlob.model_validate(listed[0]), layers=(),
        )  # fmt: skip

    def manifest(self, _repository: str, _digest: str) -> Manifest:
        return self.top

    @contextlib.contextmanager
    def blob(self, _repository: str, digest: str, _offset: int) -> Iterator[tuple[int, Iterator[bytes]]]:
        if not self.ready.wait(LONG_S):
            raise RegistryError("no other source had a turn", code="images.unreachable")
        yield 0, iter([self.blobs.pop(digest)])
        if not self.blobs:
            self.done.set()


class Empty:
    """A registry that has nothing, and takes everything."""

    retry = RetryPolicy(attempts=1)

    def __init__(self) -> None:
        self.written: dict[str, Manifest] = {}

    def manifest(self, _repository: str, digest: str) -> Manifest:
        if digest not in self.written:
            raise RegistryError("it is not there", code="images.not-found")
        return self.written[digest]

    def has_manifest(self, _repository: str, digest: str) -> bool:
        return digest in self.written

    def has_blob(self, _repository: str, _digest: str) -> bool:
        return False

    def put_blob(self, _repository: str, blob: Blob, content: Content) -> None:
        assert len(b"".join(content())) == blob.size

    def put_manifest(self, _repository: str, found: Manifest, _name: str = "") -> None:
        self.written[found.digest] = found


def sources() -> tuple[list[LockedImage], Any]:
    """Images of two sources, of which the first gives its layers after all of the second's."""
    always = threading.Event()
    always.set()
    quick = OneImage("quick", always)
    slow = OneImage("slow", quick.done)
    return [slow.image, quick.image], {"slow": slow, "quick": quick}


def test_a_mirror_takes_its_sources_in_turn(tmp_path: Path):
    images, registries = sources()
    destination: Any = Empty()
    origin = Upstream(lambda image: registries[image.name], Spool(tmp_path))
    plan = survey(images, origin, destination, JOBS)
    done = run_plan(plan, origin, destination, jobs=JOBS, stop=threading.Event())
    assert [(one.image.name, one.error) for one in done] == [("slow", None), ("quick", None)]


def test_a_bundle_takes_its_sources_in_turn(tmp_path: Path):
    images, registries = sources()
    bundler = Bundler(tmp_path, lambda image: registries[image.name], threading.Event(), JOBS)
    with bundler.held():
        made = bundler.make(BundleRecipe("lab", "", images, (), 1 << 20))
    assert [(one.image.name, one.error) for one in made.outcomes] == [("slow", None), ("quick", None)]
