"""Make a bundle: bring images here, cut them and files into parts, and write down what the parts are.

Each thing that is finished has a note in `incoming/`; whoever is killed continues after the last note. Who
had the medium may have written there, too: a note counts only for parts with the very bytes of what it is of.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import shutil
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import TypeVar

from clustercheck.parse.document import has_more_values
from clustercheck.parse.plain_text import one_line
from clusterctl.cluster import lock as lock_file
from clusterctl.cluster.bounded_file import UnusableFileError, is_there, read_bounded
from clusterctl.cluster.directory import state_access
from clusterctl.cluster.lock import LockedImage
from clusterctl.cluster.state_files import create_private, replace_file
from clusterctl.cluster.trust import find_objection, require_trusted, require_trusted_place
from clusterctl.errors import ClusterctlError, ExplainedError
from clusterctl.parallel import parallel_map, parallel_map_fairly
from clusterctl.registry.images.bundle import (
    INDEX,
    MAX_DIRECTORIES,
    MAX_FILES,
    MAX_INDEX_BYTES,
    MAX_INDEX_VALUES,
    MAX_PARTS,
    PART_MODE,
    PARTS,
    Bundle,
    BundledFile,
    BundledImage,
    BundledManifest,
    Item,
    Media,
    claimed_twice,
    cut,
    needs_too_many_directories,
)
from clusterctl.registry.images.bundle_signature import signature_of
from clusterctl.registry.images.mirror import Opened
from clusterctl.registry.images.offers import Question, offered, says_yes
from clusterctl.registry.images.outcome import TransferOutcome, TransferState
from clusterctl.registry.images.resolve import SURVEY_S, source_host, source_manifests, source_repository
from clusterctl.registry.images.spool import Spool, disk, other_bytes, require_room
from clusterctl.registry.images.trees import Tree, open_source, refusal
from clusterctl.registry.images.unbundling import check, digest_of_file
from clusterctl.registry.oci.answers import UnreadableError, read_document
from clusterctl.registry.oci.deadline import within
from clusterctl.registry.oci.manifest import Blob, Manifest
from clusterctl.registry.oci.reference import parse
from clusterctl.runs.store import now

INCOMING = "incoming"
NOTE = ".done"
# Beside it, for each repository: that it gave those bytes, or its registry did and it says that it has them.
GIVEN = ".given"
INSTEAD = "Name a directory of your own"
PART_NAME = re.compile(r"[0-9a-f]{64}")
T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True)
class MadeBundle:
    """What came of each image, and the index as it was written, in bytes too; None if not all has come."""

    outcomes: list[TransferOutcome]
    index: Bundle | None = None
    raw: bytes = b""


@dataclass(frozen=True)
class BundleRecipe:
    """What goes into a bundle."""

    cluster: str
    lock: str
    images: Sequence[LockedImage]
    trees: Sequence[Tree]
    part_size: int


class Bundler:
    """One bundle that is being made in ``directory``."""

    def __init__(self, directory: Path, opened: Opened, stop: threading.Event, jobs: int) -> None:
        self.directory = directory
        self.spool = Spool(directory / INCOMING, stop)
        self._opened = opened
        self._jobs = jobs
        self._stop = stop
        # What earlier runs have cut, and is whole.
        self._known: dict[_Sought, Item] = {}

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Keep the directory to this process, made where it is not there: one that nobody else can write.

        From here on it is used by the path that was checked, in which there is no link. Raises
        ClusterctlError (``cluster.not-trusted``, ``images.bundle``, ``images.held``).
        """
        with state_access():
            self.directory = require_trusted_place(self.directory, INSTEAD, make=True)
            places = [one for one in (self.directory / INCOMING, self.directory / PARTS) if is_there(one)]
            wrong = [(one, "a link") for one in places if one.is_symlink()]
            wrong += [(one, "a directory") for one in self._files if one.is_dir() and not one.is_symlink()]
        require_trusted(places, self.directory, INSTEAD)
        for path, kind in wrong:
            raise ClusterctlError(
                f"the bundle cannot be made here: {path.name} is {kind}",
                code="images.bundle",
                where=str(path),
                hint="Remove it, or name another directory.",
            )
        self.spool = Spool(self.directory / INCOMING, self._stop)
        with self.spool.held():
            yield

    @property
    def _files(self) -> tuple[Path, Path]:
        """The index and its signature."""
        return self.directory / INDEX, signature_of(self.directory / INDEX)

    def make(self, recipe: BundleRecipe) -> MadeBundle:
        """Make it, or finish it. The index is written only where all has come.

        Raises ClusterctlError (``images.no-space``, ``images.bundle-tree``); what fails of an image is in its
        outcome.
        """
        # What is named twice goes along once.
        files = list(dict.fromkeys(entry for tree in recipe.trees for entry in tree.files()))
        if len(files) > MAX_FILES:
            raise refusal(f"{len(files)} files are too many, at most {MAX_FILES} go along", self.directory)
        names = [PurePosixPath(name) for name, _ in files]
        if needs_too_many_directories(names):
            raise refusal(f"they lie in more than {MAX_DIRECTORIES} directories", self.directory)
        twice = claimed_twice(names)
        if twice is not None:
            raise refusal("two of them would be put to the same place; give each tree its own name", twice)
        with within(SURVEY_S):
            listed = parallel_map_fairly(
                self._listed, recipe.images, key=source_host, limit=self._jobs, stop=self._stop
            )
        manifests = {image.name: found for image, found in zip(recipe.images, listed, strict=True)}
        # Sizes are what each source says, and what it lists it may not have: both count for its own images.
        wanted: dict[tuple[Blob, str], dict[str, LockedImage]] = {}
        for image, found in zip(recipe.images, listed, strict=True):
            for manifest in found if isinstance(found, list) else ():
                for blob in manifest.blobs:
                    claimed = wanted.setdefault((blob, source_host(image)), {})
                    claimed.setdefault(source_repository(image), image)
        said_yes = self._offered(wanted)
        self._recall(wanted)
        with disk(self.directory, "an index"):
            for path in self._files:
                path.unlink(missing_ok=True)
        sought = [_sought_blob(blob) for blob in dict.fromkeys(blob for blob, _ in wanted)]
        sought += [_sought_file(path) for _, path in files]
        noted = zip(sought, self._each(self._noted, sought), strict=True)
        self._known = {one: item for one, item in noted if item is not None}
        self._require_room([blob for blob, _ in wanted], [one for one in sought if one.source])
        items = parallel_map_fairly(
            lambda claim: self._brought(claim[0], wanted[claim], recipe.part_size, said_yes),
            wanted,
            key=lambda claim: claim[1],
            limit=self._jobs,
            stop=self._stop,
        )
        brought = {
            (blob, repository): item
            for (blob, _), given in zip(wanted, items, strict=True)
            for repository, item in given.items()
        }
        outcomes = [_outcome(image, manifests[image.name], brought) for image in recipe.images]
        if any(one.error is not None for one in outcomes):
            return MadeBundle(outcomes)
        blobs = {one.sha256: one for one in brought.values() if isinstance(one, Item)}
        return MadeBundle(outcomes, *self._write(recipe, manifests, list(blobs.values()), files))

    def _each(self, function: Callable[[T], R], items: Iterable[T]) -> list[R]:
        return parallel_map(function, items, limit=self._jobs, stop=self._stop)

    def _recall(self, wanted: Mapping[tuple[Blob, str], Mapping[str, LockedImage]]) -> None:
        """Note those blobs of a bundle that was finished here that are wanted, for whose images had them."""
        try:
            raw = read_bounded(self.directory / INDEX, MAX_INDEX_BYTES)
            earlier = read_document(Bundle.model_validate_json, raw, MAX_INDEX_VALUES)
            locked = lock_file.parse(earlier.lock, self.directory / INDEX).images
        except (OSError, UnusableFileError, UnreadableError, ClusterctlError):
            return
        items = {Blob(f"sha256:{item.sha256}", item.size): item for item in earlier.blobs}
        bundled = {image.name for image in earlier.images}
        had = {(source_repository(one), one.digest) for one in locked if one.name in bundled}
        listed = {
            (source_repository(one), blob.digest)
            for one in locked
            if one.name in bundled
            for blob in (one.config, *one.layers)
        }
        for (blob, _), images in wanted.items():
            if (item := items.get(blob)) is None:
                continue
            replace_file(self._note(blob.digest), item.model_dump_json() + "\n")
            for repository, image in images.items():
                if (repository, image.digest) in had or (repository, blob.digest) in listed:
                    self._given(blob, repository).touch(mode=0o600)

    def _listed(self, image: LockedImage) -> list[Manifest] | ExplainedError:
        try:
            return source_manifests(self._opened(image), image)
        except ExplainedError as error:
            return error

    def _require_room(self, blobs: Sequence[Blob], files: Sequence[_Sought]) -> None:
        blobs = [blob for blob in blobs if _sought_blob(blob) not in self._known]
        missing = self.spool.missing(blobs)
        sizes = [one.size for one in files if one not in self._known]
        # The largest lies here twice for a moment: whole, and in parts.
        twice = max((blob.size for blob in blobs), default=0) * min(self._jobs, max(1, len(blobs)))
        require_room(self.directory, missing + twice + sum(sizes))

    def _offered(self, wanted: Mapping[tuple[Blob, str], Mapping[str, LockedImage]]) -> set[Question]:
        """Which repositories say that they have a blob that others of their registry are to give, too."""
        questions = {
            (repository, blob): image
            for (blob, _), images in wanted.items()
            if len(images) > 1
            for repository, image in images.items()
        }
        return offered(questions, partial(says_yes, self._opened), limit=self._jobs, stop=self._stop)

    def _brought(
        self, blob: Blob, images: Mapping[str, LockedImage], most: int, said_yes: Collection[Question]
    ) -> dict[str, Item | ExplainedError]:
        """What each repository of one registry gives of a blob, now or in an earlier run.

        It comes from the first that gives it, and the others must say that they have it, or give it, too: who
        lists what it does not have gets nothing of what others gave.
        """
        found: dict[str, Item | ExplainedError] = {}
        known = self._known.get(_sought_blob(blob))
        given = {repository for repository in images if known and self._given(blob, repository).is_file()}
        item = known if given else None
        for repository, image in images.items():
            try:
                if item is None or (repository not in given and (repository, blob) not in said_yes):
                    item = self._fetched(image, blob, most)
                found[repository] = item
                with disk(self.directory):
                    self._given(blob, repository).touch(mode=0o600)
            except ExplainedError as error:
                found[repository] = error
        return found

    def _fetched(self, image: LockedImage, blob: Blob, most: int) -> Item:
        """A blob from its image's own source; what is here already is compared. Raises ClusterctlError."""
        registry, repository = self._opened(image), parse(image.source).repository
        if known := self._known.get(_sought_blob(blob)):
            if registry.hash_blob(repository, blob) != (blob.digest, blob.size):
                raise other_bytes(registry, repository, blob)
            return known
        path = self.spool.fetch(registry, repository, blob)
        with disk(self.directory):
            return self._cut(path, blob.digest, most, move=True)

    def _cut(self, path: Path, key: str, most: int, *, move: bool = False) -> Item:
        """Cut a file, and note it; a file that is one part, and ours, is only renamed."""
        parts = self.directory / PARTS
        with open_source(path) as source:
            size = os.fstat(source.fileno()).st_size
            if size > most * MAX_PARTS:
                raise ClusterctlError(
                    f"{size} bytes in parts of {most} would be more than {MAX_PARTS} parts",
                    code="images.bundle-tree",
                    where=str(path),
                    hint="Raise --part-size.",
                )
            if move and size <= most:
                parts.mkdir(mode=0o755, exist_ok=True)
                name = key.removeprefix("sha256:")
                item = Item.model_validate(
                    {"sha256": name, "size": size, "parts": [{"sha256": name, "size": size}]}
                )
                os.fchmod(source.fileno(), PART_MODE)
                path.replace(parts / name)
            else:
                item = cut(source, parts, most)
                if move and item.sha256 != key.removeprefix("sha256:"):
                    raise OSError(errno.EIO, "it was changed on its way", str(path))
                if not item.size == size == os.fstat(source.fileno()).st_size:
                    raise refusal("it was changed while it was read", path)
        replace_file(self._note(key), item.model_dump_json() + "\n")
        if move:
            path.unlink(missing_ok=True)
        return item

    def _write(
        self,
        recipe: BundleRecipe,
        manifests: dict[str, list[Manifest] | ExplainedError],
        blobs: Sequence[Item],
        files: Sequence[tuple[str, Path]],
    ) -> tuple[Bundle, bytes]:
        with disk(self.directory):
            images = []
            for image in recipe.images:
                found = manifests[image.name]
                listed = found if isinstance(found, list) else []
                written = [self._manifest(one, recipe.part_size) for one in listed]
                images.append(BundledImage(name=image.name, manifests=tuple(written)))
            carried = [self._file(name, path, recipe.part_size) for name, path in files]
            bundle = Bundle(
                made=now(), cluster=one_line(recipe.cluster), lock=recipe.lock, images=tuple(images),
                blobs=tuple(blobs), files=tuple(carried),
            )  # fmt: skip
            self._sweep(bundle)
            if bundle.repeats_too_much:
                raise refusal("they repeat the same content too often", self.directory / INDEX)
            text = bundle.model_dump_json(indent=1) + "\n"
            raw = text.encode()
            if len(raw) > MAX_INDEX_BYTES or has_more_values(raw, MAX_INDEX_VALUES):
                raise refusal("their names and parts make an index that is too large", self.directory / INDEX)
            replace_file(self.directory / INDEX, text, mode=0o644)
            # What lay here on its way is not a part of a bundle that is finished.
            shutil.rmtree(self.spool.root)
            return bundle, raw

    def _manifest(self, manifest: Manifest, most: int) -> BundledManifest:
        path = self.spool.whole(Blob(manifest.digest, len(manifest.raw)), "")
        path.unlink(missing_ok=True)  # of an earlier try
        with create_private(path) as stream:
            stream.write(manifest.raw)
        item = self._cut(path, manifest.digest, most, move=True)
        return BundledManifest(media_type=manifest.media_type, item=item)

    def _file(self, name: str, path: Path, most: int) -> BundledFile:
        sought = _sought_file(path)
        item = self._known.get(sought) or self._cut(path, sought.key, most)
        return BundledFile(path=name, executable=os.access(path, os.X_OK), item=item)

    def _sweep(self, bundle: Bundle) -> None:
        """Take out parts of an earlier try that nothing needs now."""
        wanted = set(bundle.parts)
        with os.scandir(self.directory / PARTS) as entries:
            for entry in entries:
                if entry.name not in wanted and PART_NAME.fullmatch(entry.name):
                    Path(entry.path).unlink()

    def _note(self, key: str) -> Path:
        return self.spool.root / f"{key.removeprefix('sha256:')}{NOTE}"

    def _given(self, blob: Blob, repository: str) -> Path:
        return self.spool.root / f"{self.spool.whole(blob, repository).name}{GIVEN}"

    def _noted(self, sought: _Sought) -> Item | None:
        """What an earlier run noted of it, if all its parts are still here, each byte of them.

        They are read: the index is to vouch for them, and media lose bytes without a word. But no more is
        read than it has: others may have written the note.
        """
        try:
            raw = read_bounded(self._note(sought.key), MAX_INDEX_BYTES)
            item = read_document(Item.model_validate_json, raw, MAX_INDEX_VALUES)
        except (OSError, UnusableFileError, UnreadableError):
            return None
        parts = self.directory / PARTS
        if not item.size == sum(part.size for part in item.parts) == sought.size or any(
            (parts / part.sha256).is_symlink() or find_objection(parts / part.sha256) for part in item.parts
        ):
            return None
        try:
            if item.sha256 != sought.digest():
                return None
        except (OSError, UnusableFileError):
            return None
        return item if check(Media([self.directory]), item, self._stop) is None else None


@dataclass(frozen=True)
class _Sought:
    """What goes along, as it is: a blob by its digest, or a file by what it is now and where it lies."""

    key: str
    size: int
    source: Path | None = None

    def digest(self) -> str:
        """Its SHA-256; a file is read again. Raises OSError and UnusableFileError."""
        return self.key.removeprefix("sha256:") if self.source is None else digest_of_file(self.source)


def _sought_blob(blob: Blob) -> _Sought:
    return _Sought(blob.digest, blob.size)


def _sought_file(path: Path) -> _Sought:
    """A file as it is now: changed, it is another. Raises ClusterctlError (``images.bundle-tree``)."""
    with open_source(path) as source:
        about = os.fstat(source.fileno())
    key = hashlib.sha256(f"{path}\0{about.st_size}\0{about.st_mtime_ns}".encode()).hexdigest()
    return _Sought(key, about.st_size, path)


def _outcome(
    image: LockedImage,
    manifests: list[Manifest] | ExplainedError,
    brought: Mapping[tuple[Blob, str], Item | ExplainedError],
) -> TransferOutcome:
    if isinstance(manifests, ExplainedError):
        return TransferOutcome(image, TransferState.FAILED, manifests)
    for manifest in manifests:
        for blob in manifest.blobs:
            item = brought[blob, source_repository(image)]
            if isinstance(item, ExplainedError):
                return TransferOutcome(image, TransferState.FAILED, item)
    return TransferOutcome(image, TransferState.COPIED)
