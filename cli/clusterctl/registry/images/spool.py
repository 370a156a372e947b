"""Blobs on their way: a file for each, resumed where it was interrupted, and a journal of what happened.

`HEX.SIZE.GIVER.part` is a blob of which so much has come; `HEX.SIZE.GIVER` is one that is whole and verified.
Whoever is killed in the middle leaves a part that the next run continues with; its bytes are hashed again
before they count. The size is in the name, as manifests of two sources may give a digest different ones: the
wrong one spoils nothing of the other. So is the repository that gave it: another may list what it lacks.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import re
import stat
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from clusterctl.cluster.directory import state_access
from clusterctl.cluster.state_form import open_plain
from clusterctl.cluster.trust import find_objection_to_state, require_trusted_place
from clusterctl.errors import EXIT_CLUSTER_BAD, ClusterctlError
from clusterctl.registry.oci.client import PIECE, Registry
from clusterctl.registry.oci.errors import RegistryError, stopped
from clusterctl.registry.oci.manifest import Blob
from clusterctl.runs.store import now

JOURNAL = "journal.jsonl"
LOCK = "lock"
PART = ".part"
INSTEAD = "Name a directory of your own with --spool"
# A blob, one on its way, a bundle's note of one, the journal, or the lock; earlier names have less.
_OURS = re.compile(r"[0-9a-f]{64}(\.[0-9]+)?(\.[0-9a-f]{16})?(\.[a-z]+)?|journal\.jsonl|lock")
_BLOB = re.compile(rf"[0-9a-f]{{64}}\.[0-9]+\.[0-9a-f]{{16}}({re.escape(PART)})?")
# An attempt that brings less counts as one that failed: who drips a byte a connection is not asked for ever.
LEAST_PROGRESS = 64 << 10


class Spool:
    """The directory of blobs on their way; one process at a time (`held`), and many threads."""

    def __init__(self, root: Path, stop: threading.Event | None = None) -> None:
        self.root = root
        # Set by whoever must end: what is on its way stops at the next piece.
        self.stop = stop or threading.Event()
        self._lock = threading.RLock()  # what is forgotten for want of room is noted
        self._coming_now: frozenset[tuple[Blob, str]] = frozenset()

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Keep it to this process, made where it is not there: one that nobody else can write or exchange.

        Raises ClusterctlError (``cluster.not-trusted``, ``images.held``).
        """
        with state_access():
            self.root = require_trusted_place(self.root, INSTEAD, make=True)
            _remove_if_foreign(self.root / LOCK)
            # Not the directory itself: who may read a file or directory may lock it.
            descriptor = open_plain(self.root / LOCK, os.O_WRONLY)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ClusterctlError(
                    "another command is copying images from here",
                    code="images.held",
                    where=str(self.root),
                    hint="Wait until it has ended; what it brings need not come twice.",
                ) from None
            with state_access():
                with os.scandir(self.root) as entries:  # not kept: a medium may have any number
                    ours = [self.root / entry.name for entry in entries if _OURS.fullmatch(entry.name)]
                for path in ours:
                    _remove_if_foreign(path)
            yield
        finally:
            os.close(descriptor)

    def whole(self, blob: Blob, giver: str) -> Path:
        """Where a blob of that giver lies that is whole."""
        return self.root / f"{_name(blob)}.{hashlib.sha256(giver.encode()).hexdigest()[:16]}"

    def part(self, blob: Blob, giver: str) -> Path:
        """Where a blob grows."""
        return self.root / f"{self.whole(blob, giver).name}{PART}"

    def come(self, blob: Blob, giver: str) -> int:
        """How many of its bytes are here already."""
        for path in (self.whole(blob, giver), self.part(blob, giver)):
            with contextlib.suppress(OSError):
                return min(path.stat().st_size, blob.size)
        return 0

    def drop(self, blob: Blob, giver: str) -> None:
        """Forget a blob of that giver."""
        self.whole(blob, giver).unlink(missing_ok=True)
        self.part(blob, giver).unlink(missing_ok=True)

    def sweep(self, wanted: Collection[Blob]) -> int:
        """Forget blobs that no image wants any more; how many."""
        kept = {_name(blob) for blob in wanted}
        ours = (path.name for path in self.root.iterdir() if _OURS.fullmatch(path.name))
        names = {name.removesuffix(PART) for name in ours if name not in (JOURNAL, LOCK)}
        names = {name for name in names if name.rpartition(".")[0] not in kept}
        for name in names:
            (self.root / name).unlink(missing_ok=True)
            (self.root / f"{name}{PART}").unlink(missing_ok=True)
        return len(names)

    def note(self, event: str, digest: str, **more: Any) -> None:
        """A line in the journal: one write, so that a kill leaves whole lines alone.

        A disk that is full takes none; what it keeps from coming says so by itself.
        """
        line = json.dumps({"at": now(), "event": event, "blob": digest, **more}) + "\n"
        with self._lock, contextlib.suppress(OSError):
            how = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            descriptor = os.open(self.root / JOURNAL, how, 0o600)
            try:
                os.write(descriptor, line.encode())
            finally:
                os.close(descriptor)

    def room_for(self, blobs: Sequence[Blob], at_once: int) -> None:
        """See that the disk holds what will lie here at one time: the largest that are to come.

        What earlier runs left here is forgotten where that makes room, first what nobody wants: a source
        could give much, and never all of it. Raises ClusterctlError (``images.no-space``).
        """
        free, needed = free_on(self.root), _largest(self._missing(blobs), at_once)
        if free >= needed:
            return
        wanted = {_name(blob) for blob in blobs}
        left = {path: _size(path) for path in self._blobs_here()}
        if free + sum(left.values()) >= _largest([blob.size for blob in blobs], at_once):
            first = sorted(left, key=lambda path: (_name_of(path) in wanted, -left[path]))
            self._forget(first, lambda: _largest(self._missing(blobs), at_once))
        require_room(self.root, _largest(self._missing(blobs), at_once))

    def missing(self, blobs: Sequence[Blob]) -> int:
        """How many bytes of blobs are to come."""
        return sum(self._missing(blobs))

    def _missing(self, blobs: Sequence[Blob]) -> list[int]:
        come = self._most_come()
        return [blob.size - min(come.get(_name(blob), 0), blob.size) for blob in blobs]

    def _most_come(self) -> dict[str, int]:
        """The bytes that are here of each blob, from whichever giver most have come."""
        found: dict[str, int] = {}
        for path in self._blobs_here():
            found[_name_of(path)] = max(found.get(_name_of(path), 0), _size(path))
        return found

    def _blobs_here(self) -> list[Path]:
        """The files of blobs, whole or in part."""
        with os.scandir(self.root) as entries:
            return [self.root / entry.name for entry in entries if _BLOB.fullmatch(entry.name)]

    def _forget(self, paths: Iterable[Path], needed: Callable[[], int]) -> None:
        """Remove one after the other, until the disk has as much free as is needed."""
        for path in paths:
            if free_on(self.root) >= needed():
                return
            path.unlink(missing_ok=True)
            self.note("forgotten", _name_of(path))

    @contextlib.contextmanager
    def _room_kept(self, blob: Blob, giver: str) -> Iterator[None]:
        """See that what comes now still fits: blobs that could not be sent on have stayed meanwhile.

        Raises ClusterctlError (``images.no-space``).
        """
        with self._lock:
            coming = self._coming_now | {(blob, giver)}

            def missing() -> int:
                return sum(max(0, one.size - self.come(one, by)) for one, by in coming)

            # What came of blobs that failed meanwhile.
            parts = {path for path in self._blobs_here() if path.suffix == PART}
            parts -= {self.part(one, by) for one, by in coming}
            self._forget(sorted(parts, key=_size, reverse=True), missing)
            needed, free = missing(), free_on(self.root)
            if free < needed:
                raise _no_space(needed, free, self.root, "transferred data is kept")
            self._coming_now = coming
        try:
            yield
        finally:
            with self._lock:
                self._coming_now -= {(blob, giver)}

    def fetch(self, registry: Registry, repository: str, blob: Blob) -> Path:
        """Have the blob here, whole, verified and on the disk.

        Raises RegistryError (``images.corrupt``, ``images.unreachable``, ...), or ClusterctlError
        (``images.no-space``).
        """
        for last in (False, True):
            try:
                for _ in self.stream(registry, repository, blob):
                    pass
                break
            except RegistryError as error:
                if last or error.code != "images.corrupt":
                    raise
        path = self.whole(blob, giver(registry, repository))
        with disk(self.root), path.open("rb") as stream:
            os.fsync(stream.fileno())
        return path

    def stream(self, registry: Registry, repository: str, blob: Blob) -> Iterator[bytes]:
        """The blob's bytes, kept here as they pass; what came before is not asked for again.

        The last of them are given only where all are right. Raises as `fetch`; what is wrong is not kept.
        """
        held, by = b"", giver(registry, repository)
        with self._room_kept(blob, by), disk(self.root):
            try:
                for piece in self._passing(registry, repository, blob):
                    if held:
                        yield held
                    held = piece
            finally:
                if self._is_empty(self.part(blob, by)):
                    self.part(blob, by).unlink()
        yield held

    def _is_empty(self, path: Path) -> bool:
        return path.is_file() and path.stat().st_size == 0

    def _passing(self, registry: Registry, repository: str, blob: Blob) -> Iterator[bytes]:
        """First what lies here, then what comes; hashed, and compared at the end."""
        by = giver(registry, repository)
        whole, part = self.whole(blob, by), self.part(blob, by)
        was_whole = whole.is_file()
        if was_whole:
            whole.replace(part)
        with open(part, "ab+", opener=_follow_no_link) as stream:
            if stream.tell() > blob.size:
                stream.truncate(0)
            found, size = hashlib.sha256(), 0
            stream.seek(0)
            while piece := stream.read(PIECE):
                found.update(piece)
                size += len(piece)
                yield piece
            if not was_whole:
                self.note("resumed" if size else "begun", blob.digest, offset=size)
            coming = self._coming(registry, repository, blob, size)
            what = f"blob {repository}@{blob.digest}"
            for piece in registry.pace.kept(coming, registry.endpoint.host, what):
                stream.write(piece)
                found.update(piece)
                yield piece
        if f"sha256:{found.hexdigest()}" != blob.digest:
            part.unlink()
            self.note("corrupt", blob.digest, found=found.hexdigest())
            raise other_bytes(registry, repository, blob)
        part.replace(whole)
        if not was_whole:
            self.note("come", blob.digest, bytes=blob.size)

    def _coming(self, registry: Registry, repository: str, blob: Blob, size: int) -> Iterator[bytes]:
        """The rest from the source, asked for again where it was interrupted."""
        retry, failures = registry.retry, 0
        while size < blob.size:
            before = size
            try:
                with registry.blob(repository, blob.digest, size) as (start, pieces):
                    for piece in _from(pieces, size - start):
                        self._go_on()
                        size += len(piece)
                        # More than there should be is as wrong as other bytes.
                        yield piece[: len(piece) - max(0, size - blob.size)]
                        if size >= blob.size:
                            return
                raise _ended_early(registry, repository, blob)
            except RegistryError as error:
                failures = 0 if size - before >= LEAST_PROGRESS else failures + 1
                if error.lasting or failures >= retry.attempts:
                    raise
                self.note("cut-off", blob.digest, offset=size, because=error.what)
                retry.pause(max(1, failures), error.after)

    def _go_on(self) -> None:
        if self.stop.is_set():
            raise stopped(str(self.root))


def giver(registry: Registry, repository: str) -> str:
    """Who gives a blob: what others have of it says nothing of whether this repository has it."""
    return f"{registry.endpoint.host}/{repository}"


def other_bytes(registry: Registry, repository: str, blob: Blob) -> RegistryError:
    """What comes under a digest is something else."""
    return RegistryError(
        f"{registry.endpoint.host} gives other bytes than the digest says",
        code="images.corrupt",
        where=f"{registry.endpoint.host}: blob {repository}@{blob.digest}",
        hint="The source's storage is damaged, or something stands in between. Nothing was kept.",
    )


def _name(blob: Blob) -> str:
    """Of its files, whoever gave it."""
    return f"{blob.digest.removeprefix('sha256:')}.{blob.size}"


def _name_of(path: Path) -> str:
    """The same, of one of these files."""
    return path.name.removesuffix(PART).rpartition(".")[0]


def _size(path: Path) -> int:
    """0 where another thread has just taken it away."""
    with contextlib.suppress(FileNotFoundError):
        return path.lstat().st_size
    return 0


def _largest(sizes: Iterable[int], number: int) -> int:
    """So many of them together."""
    return sum(sorted(sizes, reverse=True)[:number])


def _remove_if_foreign(path: Path) -> None:
    """Remove a link or another special file: what is written there would go elsewhere. So does what others
    can write, who would change it after it was verified."""
    with contextlib.suppress(FileNotFoundError):
        state = path.lstat()
        is_ours = stat.S_ISREG(state.st_mode) and state.st_nlink == 1
        is_ours = is_ours and not find_objection_to_state(path, state)
        if not (is_ours or stat.S_ISDIR(state.st_mode)):
            path.unlink()


def _follow_no_link(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


def _from(pieces: Iterator[bytes], passed_over: int) -> Iterator[bytes]:
    """Leave out what is here already, where a source knows no ranges."""
    for piece in pieces:
        if passed_over < len(piece):
            yield piece[passed_over:]
        passed_over = max(0, passed_over - len(piece))


def _ended_early(registry: Registry, repository: str, blob: Blob) -> RegistryError:
    return RegistryError(
        f"{registry.endpoint.host} ended a blob too early",
        code="images.unreachable",
        where=f"{registry.endpoint.host}: blob {repository}@{blob.digest}",
        lasting=False,
    )


def free_on(path: Path) -> int:
    """Bytes that we may still write there."""
    disk_ = os.statvfs(path)
    return disk_.f_bavail * disk_.f_frsize


def require_room(directory: Path, needed: int) -> None:
    """Refuse where the disk has less free. Raises ClusterctlError (``images.no-space``)."""
    free = free_on(next(path for path in (directory, *directory.parents) if path.exists()))
    if free < needed:
        raise _no_space(needed, free, directory, "no transfer was started")


def _no_space(needed: int, free: int, directory: Path, so: str) -> ClusterctlError:
    return ClusterctlError(
        f"{needed / 1e9:.2f} GB are needed here, and {free / 1e9:.2f} GB are free; {so}",
        code="images.no-space",
        where=str(directory),
        hint="Make room, or name another directory.",
        exit_code=EXIT_CLUSTER_BAD,
    )


@contextlib.contextmanager
def disk(directory: Path, kept: str = "a blob") -> Iterator[None]:
    """Say plainly that the disk filled up meanwhile, or why it does not take what is ``kept``."""
    try:
        yield
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        raise ClusterctlError(
            "the disk is full" if full else f"{kept} cannot be kept: {error.strerror or error}",
            code="images.no-space" if full else "cluster.state-not-writable",
            where=str(directory),
            hint="Free space, and run the same command again: transferred data is kept.",
            exit_code=EXIT_CLUSTER_BAD,
        ) from error
