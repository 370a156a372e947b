"""Files for an image or a node, as a tar stream that docker cp unpacks."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

UNITS = ("etc/systemd/system", "usr/lib/systemd/system", "lib/systemd/system")
_PROGRAM_DIRECTORIES = {"bin", "sbin"}


@dataclass(frozen=True)
class ImageFile:
    """One file to be: its absolute path in the image, contents, mode and owner."""

    path: str
    content: bytes
    mode: int = 0o644
    owner: int = 0


def pack(trees: Iterable[Path], files: Iterable[ImageFile] = (), directories: Iterable[str] = ()) -> bytes:
    """A tar of all ``trees`` laid over each other, then ``directories`` and ``files``; all owned by root.

    A unit file whose [Install] says WantedBy is enabled: its symbolic link is packed too.
    """
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for tree in trees:
            for path in sorted(tree.rglob("*")):
                if "__pycache__" not in path.parts:
                    _add(archive, tree, path)
        for directory in directories:
            archive.addfile(_entry(directory, 0o755, tarfile.DIRTYPE))
        for file in files:
            entry = _entry(file.path, file.mode, tarfile.REGTYPE)
            entry.size, entry.uid, entry.gid = len(file.content), file.owner, file.owner
            archive.addfile(entry, io.BytesIO(file.content))
    return buffer.getvalue()


def wanted_by(unit: str) -> list[str]:
    """The targets that a unit file's text names in WantedBy."""
    lines = [line for line in unit.splitlines() if line.startswith("WantedBy=")]
    return [target for line in lines for target in line.partition("=")[2].split()]


def _add(archive: tarfile.TarFile, tree: Path, path: Path) -> None:
    inside = path.relative_to(tree)
    if path.is_symlink():
        entry = _entry(str(inside), 0o777, tarfile.SYMTYPE)
        entry.linkname = str(path.readlink())
        archive.addfile(entry)
        return
    if path.is_dir():
        archive.addfile(_entry(str(inside), 0o755, tarfile.DIRTYPE))
        return
    content = path.read_bytes()
    program = path.stat().st_mode & 0o111 or _PROGRAM_DIRECTORIES & set(inside.parts)
    mode = 0o440 if inside.parts[:2] == ("etc", "sudoers.d") else 0o755 if program else 0o644
    entry = _entry(str(inside), mode, tarfile.REGTYPE)
    entry.size = len(content)
    archive.addfile(entry, io.BytesIO(content))
    if str(inside.parent) in UNITS:
        for target in wanted_by(content.decode()):
            link = _entry(f"etc/systemd/system/{target}.wants/{inside.name}", 0o777, tarfile.SYMTYPE)
            link.linkname = f"/{inside}"
            archive.addfile(link)


def _entry(path: str, mode: int, kind: bytes) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(path.lstrip("/"))
    entry.type, entry.mode, entry.mtime = kind, mode, 1
    return entry
