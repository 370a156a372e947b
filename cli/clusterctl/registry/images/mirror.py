"""Bring locked images into a registry: each blob once, several at a time; a bad image stops no other."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

from clusterctl.cluster.lock import LockedImage
from clusterctl.errors import ClusterctlError, ExplainedError
from clusterctl.parallel import parallel_map, parallel_map_fairly
from clusterctl.registry.images.offers import Question, offered
from clusterctl.registry.images.outcome import TransferOutcome, TransferState
from clusterctl.registry.images.resolve import SURVEY_S, closure, source_host, source_repository
from clusterctl.registry.images.verify import damage, mistagged
from clusterctl.registry.oci.client import Registry
from clusterctl.registry.oci.deadline import within
from clusterctl.registry.oci.exchange import Content
from clusterctl.registry.oci.manifest import Blob, Manifest

Opened = Callable[[LockedImage], Registry]


class BrokenOriginError(Exception):
    """The origin cannot give a blob that is being sent: why, and whether another try is worth while."""

    def __init__(self, error: ExplainedError, *, again: bool = False) -> None:
        super().__init__(error.what)
        self.error = error
        self.again = again


class Origin(Protocol):
    """Where images come from: registries, or a bundle."""

    def manifests(self, image: LockedImage) -> list[Manifest]:
        """Its manifest with all that it lists, children first. Raises ClusterctlError."""

    def content(self, transfer: BlobTransfer) -> Content:
        """The blob of a transfer, to be read as often as is needed; reading raises BrokenOriginError."""

    def offers(self, image: LockedImage, blob: Blob) -> bool:
        """Whether the image's own source says that it has the blob."""

    def settled(self, transfer: BlobTransfer, *, keep: bool) -> None:
        """Nobody asks for it any more in this run; ``keep``: another run may."""


@dataclass
class PlannedImage:
    """An image with its manifests, children first: ``placed`` where they are there, ``described`` where its
    tag is, too."""

    image: LockedImage
    manifests: list[Manifest] = field(default_factory=list)
    placed: bool = False
    described: bool = False
    error: ExplainedError | None = None
    moved: int = 0

    @cached_property  # the manifests are known before anybody asks
    def blobs(self) -> dict[Blob, None]:
        """Everything below its manifests. A size is what its source says: it counts for this image alone."""
        return dict.fromkeys(blob for manifest in self.manifests for blob in manifest.blobs)


OnWriting = Callable[[PlannedImage, Sequence[Manifest]], None]


@dataclass(frozen=True)
class BlobTransfer:
    """A blob, the repositories that lack it, and one that has it already (or none), for images of one
    registry."""

    blob: Blob
    targets: tuple[str, ...]
    home: str
    of: tuple[PlannedImage, ...]


@dataclass
class MirrorPlan:
    """What is to be done, found out before anything moves."""

    there: list[LockedImage] = field(default_factory=list)
    wanted: list[PlannedImage] = field(default_factory=list)
    transfers: list[BlobTransfer] = field(default_factory=list)

    @property
    def names(self) -> list[str]:
        """The images that were asked for."""
        return [*(image.name for image in self.there), *(wanted.image.name for wanted in self.wanted)]

    @property
    def to_fetch(self) -> tuple[Blob, ...]:
        """Blobs that the destination has nowhere, of images that did not fail so far."""
        wanted = (one for one in self.transfers if any(image.error is None for image in one.of))
        return tuple(transfer.blob for transfer in wanted if not transfer.home)

    @property
    def bytes(self) -> int:
        """Bytes to fetch, each blob once from each registry that images with it come from."""
        return sum(blob.size for blob in self.to_fetch)

    def leave_out(self, require_room: Callable[[Sequence[Blob]], None]) -> None:
        """Fail images, first those with most to fetch, until ``require_room`` takes what is left.

        A source can make up a size: that must not keep other images away. Raises ClusterctlError as
        ``require_room`` did where no image is left.
        """
        fetched = set(self.to_fetch)
        left = [one for one in self.wanted if one.error is None]
        left.sort(key=lambda one: sum(blob.size for blob in one.blobs if blob in fetched))
        while True:
            try:
                return require_room(self.to_fetch)
            except ClusterctlError as error:
                if len(left) <= 1:
                    raise
                left.pop().error = error


@dataclass
class TransferProgress:
    """How far a mirror has come; read by whoever shows it."""

    blobs: int = 0
    blobs_done: int = 0
    bytes: int = 0
    bytes_done: int = 0


def survey(
    images: Sequence[LockedImage],
    origin: Origin,
    destination: Registry,
    jobs: int,
    *,
    deep: bool = False,
    failures: Mapping[str, ExplainedError] | None = None,
) -> MirrorPlan:
    """Ask origin and destination what there is, and what is missing. Moves nothing.

    ``failures`` has the images that must not be copied, by name, and why. A registry continues naming what
    its storage has lost: blobs are asked for, too, and with ``deep`` read.
    """
    stop = destination.retry.stop
    with within(SURVEY_S):
        looked = parallel_map_fairly(
            lambda one: _looked(one, origin, destination), images, key=source_host, limit=jobs, stop=stop
        )
    for one in looked:
        one.error = (failures or {}).get(one.image.name) or one.error
    pairs = dict.fromkeys((one.image.target, blob) for one in looked for blob in one.blobs)
    with within(SURVEY_S):
        there = parallel_map(lambda pair: _has(destination, *pair), pairs, limit=jobs, stop=stop)
    has = dict(zip(pairs, there, strict=True))
    if deep:
        _read_through(looked, has, destination, jobs)
    plan = MirrorPlan()
    for one in looked:
        whole = one.error is None and all(has[one.image.target, blob] for blob in one.blobs)
        if one.described and whole:
            plan.there.append(one.image)
        else:
            plan.wanted.append(one)
    plan.transfers = list(_transfers(looked, has, origin, jobs, stop))
    return plan


def run_plan(
    plan: MirrorPlan,
    origin: Origin,
    destination: Registry,
    *,
    jobs: int,
    stop: threading.Event,
    on_tick: Callable[[TransferProgress], None] = lambda _: None,
    on_writing: OnWriting = lambda *_: None,
) -> list[TransferOutcome]:
    """Do what was planned. Whatever fails is in its image's outcome; an interruption leaves what has come.

    ``on_writing`` hears of an image and its missing manifests before the first is written, in any thread;
    what it raises as ExplainedError is that image's failure.
    """
    course = TransferProgress(len(plan.transfers), 0, plan.bytes, 0)
    lock, left = threading.Lock(), Counter(id(image) for transfer in plan.transfers for image in transfer.of)

    def done(transfer: BlobTransfer) -> list[PlannedImage]:
        with lock:
            course.blobs_done += 1
            course.bytes_done += 0 if transfer.home else transfer.blob.size
            for image in transfer.of:
                left[id(image)] -= 1
            return [image for image in transfer.of if left[id(image)] == 0]

    def run(transfer: BlobTransfer) -> None:
        if any(image.error is None for image in transfer.of):
            _run(transfer, origin, destination)
        for image in done(transfer):
            _finish(image, destination, on_writing)

    described = [image for image in plan.wanted if left[id(image)] == 0]
    parallel_map(lambda image: _finish(image, destination, on_writing), described, limit=jobs, stop=stop)
    parallel_map_fairly(
        run,
        plan.transfers,
        key=lambda transfer: source_host(transfer.of[0].image),
        limit=jobs,
        stop=stop,
        on_tick=lambda: on_tick(course),
    )
    return [
        *(TransferOutcome(image, TransferState.THERE) for image in plan.there),
        *(
            TransferOutcome(
                w.image, TransferState.FAILED if w.error else TransferState.COPIED, w.error, w.moved
            )
            for w in plan.wanted
        ),
    ]


def _looked(image: LockedImage, origin: Origin, destination: Registry) -> PlannedImage:
    wanted = PlannedImage(image)
    try:
        wanted.manifests = _described(image, destination)
        wanted.placed = bool(wanted.manifests)
        if wanted.placed:
            wanted.described = mistagged(image, destination) is None
        else:
            wanted.manifests = origin.manifests(image)
    except ExplainedError as error:
        wanted.error = error
    return wanted


def _described(image: LockedImage, destination: Registry) -> list[Manifest]:
    """Its manifests as the destination has them; none where they are not all there."""
    try:
        return closure(destination, image.target, image.digest)
    except ExplainedError as error:
        if error.code in ("images.not-found", "images.manifest"):
            return []
        raise


def _read_through(
    looked: Sequence[PlannedImage], has: dict[tuple[str, Blob], bool], destination: Registry, jobs: int
) -> None:
    """Read each blob that is said to be there: what does not come is not there, what is wrong is told."""
    read = {blob: target for (target, blob), there in has.items() if there}
    found = parallel_map(
        lambda blob: damage(destination, read[blob], blob), read, limit=jobs, stop=destination.retry.stop
    )
    bad = {blob: error for blob, error in zip(read, found, strict=True) if error is not None}
    has |= {pair: False for pair in has if pair[1] in bad}
    for one in looked:
        # No registry replaces a blob that it has: sending it again is of no use.
        wrong = (bad[blob] for blob in one.blobs if blob in bad)
        lasting = (error for error in wrong if error.code in ("images.corrupt", "images.manifest"))
        one.error = one.error or next(lasting, None)


def _has(destination: Registry, repository: str, blob: Blob) -> bool:
    try:
        return destination.has_blob(repository, blob.digest)
    except ExplainedError:
        return False  # the transfer will say it, with its own image


def _transfers(
    looked: Sequence[PlannedImage],
    has: Mapping[tuple[str, Blob], bool],
    origin: Origin,
    jobs: int,
    stop: threading.Event,
) -> Iterator[BlobTransfer]:
    """In the order of the images, the largest blobs first: the first image is whole early.

    A source can list a blob that it does not have, as a layer of somebody's private image. An image gets only
    what its own registry gives, whoever else has it; where that gives it for another repository, or gave it
    before, its own repository there must have it, too.
    """
    mixed = _mixed_targets(looked)
    lacking: dict[tuple[Blob, str], list[PlannedImage]] = {}
    homes: dict[tuple[Blob, str], PlannedImage] = {}
    for image in looked:
        is_own = image.placed or image.image.target not in mixed
        for blob in sorted(image.blobs, key=lambda one: -one.size):
            claim = blob, source_host(image.image)
            if has[image.image.target, blob] and is_own:
                homes[claim] = image
            else:
                lacking.setdefault(claim, []).append(image)
    questions: dict[Question, LockedImage] = {}
    for claim, images in lacking.items():
        known = [*images, *((homes[claim],) if claim in homes else ())]
        if len({source_repository(one.image) for one in known}) > 1:
            questions |= {(source_repository(one.image), claim[0]): one.image for one in images}
    # Those fetch it from there themselves, and learn why they cannot.
    refused = questions.keys() - offered(questions, origin.offers, limit=jobs, stop=stop)
    for claim, images in lacking.items():
        groups: dict[str, list[PlannedImage]] = {}
        for image in images:
            repository = source_repository(image.image)
            groups.setdefault(repository if (repository, claim[0]) in refused else "", []).append(image)
        for repository, group in groups.items():
            home = homes[claim].image.target if claim in homes and not repository else ""
            targets = dict.fromkeys(one.image.target for one in group)
            yield BlobTransfer(claim[0], tuple(targets), home, tuple(group))


def _mixed_targets(looked: Sequence[PlannedImage]) -> set[str]:
    """Repositories that are to have images of several registries: what lies there may be of any of them."""
    hosts: dict[str, set[str]] = {}
    for image in looked:
        hosts.setdefault(image.image.target, set()).add(source_host(image.image))
    return {target for target, found in hosts.items() if len(found) > 1}


def _run(transfer: BlobTransfer, origin: Origin, destination: Registry) -> None:
    """Bring one blob to every repository that lacks it; who waits for it without success learns why."""
    blob, home = transfer.blob, transfer.home
    failures: dict[str, ExplainedError] = {}
    for number, target in enumerate(transfer.targets):
        try:
            if home and destination.mount(target, blob.digest, home):
                continue
            _send(transfer, origin, destination, target)
            home = home or target
        except ExplainedError as error:
            failures[target] = error
        except BrokenOriginError as broken:
            failures |= dict.fromkeys(transfer.targets[number:], broken.error)
            break
    for image in transfer.of:
        image.error = image.error or failures.get(image.image.target)
    # What is not what its digest says, here or there, is not sent a second time.
    wrong = any(failure.code == "images.corrupt" for failure in failures.values())
    origin.settled(transfer, keep=bool(failures) and not wrong)


def _send(transfer: BlobTransfer, origin: Origin, destination: Registry, target: str) -> None:
    """Send a blob as it comes, as often as its origin has another way. Raises BrokenOriginError, too."""
    while True:
        try:
            return destination.put_blob(target, transfer.blob, origin.content(transfer))
        except BrokenOriginError as broken:
            if not broken.again:
                raise


def _finish(image: PlannedImage, destination: Registry, on_writing: OnWriting) -> None:
    """Write the manifests, children first, then the tag; read the image's own back."""
    if image.error is not None:
        return
    target, digest = image.image.target, image.image.digest
    try:
        missing = [one for one in image.manifests if not destination.has_manifest(target, one.digest)]
        if missing:
            on_writing(image, missing)
        for manifest in missing:
            destination.put_manifest(target, manifest)
        if image.image.tag:
            destination.put_manifest(target, image.manifests[-1], image.image.tag)
        destination.manifest(target, digest)
    except ExplainedError as error:
        image.error = error
