"""What is built once and kept: by content hash, one builder at a time."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path


def cache_root() -> Path:
    """${XDG_CACHE_HOME:-~/.cache}/clusterctl-lab; not made by this call."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "clusterctl-lab"


def content_hash(parts: Iterable[str | bytes | Path]) -> str:
    """Twelve hexadecimal digits over strings and over files' or trees' names, modes and contents."""
    digest = hashlib.sha256()
    for part in parts:
        if isinstance(part, Path):
            for path in _files(part):
                name = path.relative_to(part.parent)
                digest.update(f"\0{name}\0{path.lstat().st_mode & 0o111:o}\0".encode())
                digest.update(str(path.readlink()).encode() if path.is_symlink() else path.read_bytes())
        else:
            digest.update(b"\0" + (part.encode() if isinstance(part, str) else part))
    return digest.hexdigest()[:12]


@contextmanager
def locked(key: str) -> Iterator[None]:
    """Hold the lock of one artifact; another process that builds the same one waits here."""
    with ExitStack() as held:
        # Shared by all users of the cache; removing it needs the exclusive lock.
        held.enter_context(_lock("cache", fcntl.LOCK_SH))
        held.enter_context(_lock(key, fcntl.LOCK_EX))
        yield


@contextmanager
def alone() -> Iterator[None]:
    """Hold the whole cache: meanwhile no image is built and no lab brought up. No ``locked`` inside.

    Raises BlockingIOError if one is.
    """
    with _lock("cache", fcntl.LOCK_EX | fcntl.LOCK_NB):
        yield


@contextmanager
def scratch(name: str) -> Iterator[Path]:
    """An empty directory on the cache's file system, gone afterwards; removes what the killed have left."""
    home = cache_root() / "scratch"
    for left in home.iterdir() if home.is_dir() else ():
        if ended(left.name.rpartition(".")[2]):
            shutil.rmtree(left, ignore_errors=True)
    directory = home / f"{name}.{os.getpid()}"
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def ended(pid: str) -> bool:
    """Whether a process of this machine, by its number in digits, is no more."""
    return pid.isdecimal() and not Path(f"/proc/{pid}").exists()


@contextmanager
def _lock(key: str, operation: int) -> Iterator[None]:
    path = cache_root() / "locks" / f"{key}.lock"
    while True:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            stream = path.open("w")
        except FileNotFoundError:
            continue
        with stream:
            fcntl.flock(stream, operation)
            # Who removed the cache while we waited has removed the file, too: another may hold its successor.
            if path.exists() and path.stat().st_ino == os.fstat(stream.fileno()).st_ino:
                yield
                return


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    return sorted(
        p for p in path.rglob("*") if "__pycache__" not in p.parts and (p.is_symlink() or not p.is_dir())
    )
