# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see plugins/LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A backup of Harbor on disk: what is in it, and whether it is still what was written."""

from __future__ import annotations

import errno
import gzip
import json
import os
import re
import shutil
import zlib
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

from ansible_collections.clusterctl.cluster.plugins.module_utils.node_files import (
    CHUNK,
    MAKER,
    open_below,
    pinned,
    replacing_below,
    sha256_below,
    sha256_of_stream,
)
from ansible_collections.clusterctl.cluster.plugins.module_utils.trusted_directory import (
    trusted_directory,
    untrusted_parts,
)

MANIFEST = "manifest.json"
FILES = "files.jsonl"
DATA = "data"
DUMP = "database.sql.gz"
SCHEMA = 1
PARTIAL = ".partial"
# Of the data volume. Database, Redis, logs of jobs and Trivy's databases are dumped, or come again.
SECRETS = "secret"
KEPT = ("registry", SECRETS, "ca_download")
# Of repositories, no part of whose name begins so: whoever may push begins as many as they like.
UNFINISHED = "_uploads"
KEY_FILE = "secret/keys/secretkey"
NAME = re.compile(r"\d{8}T\d{6}Z")
BLOB = re.compile(r"/blobs/sha256/[0-9a-f]{2}/([0-9a-f]{64})/data$")
# What pg_dump ends with: a dump that was interrupted lacks it.
DUMPED = b"-- PostgreSQL database dump complete"
TAIL = 4096
# A registry of a million blobs has a list of 250 MB.
MAX_FILES_BYTES, MAX_MANIFEST_BYTES = 1 << 30, 1 << 20
# Who may push chooses a repository's name: 255 characters in 128 parts, below and above 11 directories.
MAX_DEPTH = 200
# Of that list: the longest path of Linux, each byte of it escaped, and what else is said of a file.
MAX_LINE_BYTES = 6 * 4096 + 1024
# A file without holes has nearly as many blocks as bytes; one of this size with a thousandth of them is none
# that was copied here, and takes hours to read.
LEAST_SPARSE_BYTES, SPARSE = 1 << 30, 1000
# Unpacked; Harbor's own has some GB.
MAX_DUMP_BYTES = 1 << 38
# Of what is wrong with a backup.
MAX_TOLD = 100
# What a manifest must say.
TEXTS = ("version", "database", "files_sha256", "database_sha256")
# Of a user or group, as the kernel numbers them.
MAX_OWNER = (1 << 32) - 1


@dataclass(frozen=True)
class Kept:
    """One file of the data volume, as it was."""

    path: str
    size: int
    sha256: str
    mode: int
    uid: int
    gid: int


def backups(directory: Path) -> list[Path]:
    """Whole backups, the oldest first."""
    named = (path for path in directory.glob("*") if NAME.fullmatch(path.name))
    return sorted(path for path in named if path.is_dir() and not path.is_symlink())


@contextmanager
def chosen_backup(directory: Path, name: str) -> Iterator[tuple[str, Path]]:
    """The name and the pinned directory of the backup of that name, of the newest without one.

    Raises ValueError if there is none, PermissionError where another user of this host could have written it.
    """
    with ExitStack() as opened:
        there: list[Path] = []
        with suppress(FileNotFoundError):
            there = backups(opened.enter_context(trusted_directory(directory, make=False)))
        chosen = [path for path in there if path.name == name] if name else there[-1:]
        if not chosen:
            names = ", ".join(path.name for path in there[-5:]) or "none"
            raise ValueError(
                f"there is no backup {name or 'yet'} in {directory} on this host; there are: {names}"
            )
        place = opened.enter_context(pinned(chosen[0]))
        backup = directory / chosen[0].name
        for why in untrusted_parts(place, backup):
            raise PermissionError(
                f"{why}, who decides what is restored from it: name another backup, or, if you know that "
                f"all of {backup} is as it was written, chown -R root and chmod -R go-w it"
            )
        yield chosen[0].name, place


def files_of(root: Path) -> Iterator[Path]:
    """Every ordinary file below the kept directories of a data volume, by name; no unfinished uploads."""
    for name in KEPT:
        for place, directories, names in os.walk(root / name):
            # Harbor's containers may nest them, and until Python 3.11 os.walk calls itself for each.
            if len(Path(place).parts) > len(root.parts) + MAX_DEPTH:
                raise OSError(errno.ENAMETOOLONG, f"directories are nested more than {MAX_DEPTH} deep", place)
            directories[:] = sorted(one for one in directories if one != UNFINISHED)
            for one in sorted(names):
                path = Path(place, one)
                if path.is_file() and not path.is_symlink():
                    yield path


def damaged(files: Iterable[Kept]) -> list[str]:
    """Blobs that a backup has damaged, as they were in Harbor: their content is not what their name says."""
    found = []
    for one in files:
        blob = BLOB.search(f"/{one.path}")
        if blob and blob[1] != one.sha256:
            found.append(f"sha256:{blob[1]}")
    return found


def write_files(backup: Path, files: list[Kept]) -> None:
    """The list of what was kept."""
    lines = (json.dumps(asdict(one), sort_keys=True) for one in files)
    write_file(backup, FILES, (f"{line}\n".encode() for line in lines))


def write_file(backup: Path, name: str, content: Iterable[bytes]) -> None:
    """A file of a backup, through no link: others may write where backups lie."""
    with replacing_below(backup, name, 0o600, owner=MAKER, makers=MAKER) as stream:
        stream.writelines(content)


def read_files(backup: Path) -> Iterator[Kept]:
    """The list of what was kept, one by one. Raises OSError or ValueError where it cannot be read, or has a
    path that leads elsewhere or stands twice: whoever can write where backups lie can write their lists."""
    size = 0
    last: list[tuple[int, str]] = []
    with open_below(backup, FILES) as stream:
        while line := stream.readline(MAX_LINE_BYTES + 1):
            size += len(line)
            if len(line) > MAX_LINE_BYTES or size > MAX_FILES_BYTES:
                limits = f"{MAX_FILES_BYTES} bytes, or a line of more than {MAX_LINE_BYTES}"
                raise ValueError(f"{FILES} has more than {limits}")
            one = _read_kept(_parsed(line.decode()))
            place = _place_in_walk(one.path)
            if place <= last:
                raise ValueError(f"{FILES} has {one.path} twice, or not in the order of a backup")
            last = place
            yield one


def _place_in_walk(path: str) -> list[tuple[int, str]]:
    """By what `files_of` sorts: in a directory files come before directories."""
    first, *above, name = path.split("/")
    return [(KEPT.index(first), ""), *((1, one) for one in above), (0, name)]


def _read(backup: Path, name: str, max_bytes: int) -> str:
    """A document of a backup, which is an ordinary file. Raises OSError or ValueError."""
    with open_below(backup, name) as stream:
        found = stream.read(max_bytes + 1)
    if len(found) > max_bytes:
        raise ValueError(f"{name} has more than {max_bytes} bytes")
    return found.decode()


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deep") from None


def _read_kept(found: Any) -> Kept:
    """Raises ValueError for a file that is none of Harbor's data volume."""
    try:
        one = Kept(**found)
    except TypeError as error:
        raise ValueError(f"{FILES} is of another form than this program reads: {error}") from None
    path = one.path if isinstance(one.path, str) else ""
    parts = path.split("/")
    if parts[0] not in KEPT or len(parts) < 2 or {"", ".", ".."} & set(parts) or "\0" in path:
        raise ValueError(f"{path!r} is no path of Harbor's data volume")
    numbers = (one.size, one.mode, one.uid, one.gid)
    if any(type(number) is not int or number < 0 for number in numbers) or max(numbers[1:]) > MAX_OWNER:
        raise ValueError(f"{path} has a size, mode or owner that no file has")
    return one


def write_manifest(backup: Path, record: dict[str, Any]) -> None:
    """Seal a backup: from here on every change of it is found."""
    sealed = {
        **record,
        "schema": SCHEMA,
        "files_sha256": sha256_below(backup, FILES),
        "database_sha256": sha256_below(backup, DUMP),
    }
    text = json.dumps(sealed, indent=1, sort_keys=True) + "\n"
    write_file(backup, MANIFEST, [text.encode()])


def read_manifest(backup: Path) -> dict[str, Any]:
    """What a backup says of itself. Raises OSError or ValueError."""
    found = _parsed(_read(backup, MANIFEST, MAX_MANIFEST_BYTES))
    is_known = isinstance(found, dict) and found.get("schema") == SCHEMA
    if not is_known or not all(isinstance(found.get(name), str) for name in TEXTS):
        raise ValueError(f"{MANIFEST} is of another kind than this program reads")
    return found


def whole_dump(path: Path) -> bool:
    """Whether a dump unpacks completely, and ends as a whole one does."""
    tail, size = b"", 0
    try:
        with open_below(path.parent, path.name) as packed, gzip.open(packed, "rb") as stream:
            while chunk := stream.read(CHUNK):
                tail, size = (tail + chunk)[-TAIL:], size + len(chunk)
                if size > MAX_DUMP_BYTES:
                    return False
    except (OSError, EOFError, zlib.error):
        return False
    return DUMPED in tail


def is_sparse(stream: BinaryIO) -> bool:
    """Whether a file is nearly all holes: it is no copy of ours, and has no size that a disk sets a limit to.

    Raises OSError.
    """
    status = os.fstat(stream.fileno())
    if status.st_size < LEAST_SPARSE_BYTES or status.st_blocks * 512 > status.st_size // SPARSE:
        return False
    # Some file systems count no blocks, and know no holes either.
    has_hole = os.lseek(stream.fileno(), 0, os.SEEK_HOLE) < status.st_size
    stream.seek(0)
    return has_hole


def wrong(backup: Path) -> list[str]:
    """By what a backup is not what was written, as far as it is told; none where it could be restored."""
    try:
        return list(islice(_wrong(backup, read_manifest(backup)), MAX_TOLD))
    except (OSError, ValueError) as error:
        return [f"what it says of itself cannot be read: {error}"]


def _wrong(backup: Path, manifest: dict[str, Any]) -> Iterator[str]:
    """Raises OSError or ValueError where its list cannot be read."""
    has_key = False
    for one in read_files(backup):
        has_key |= one.path == KEY_FILE
        if because := _wrong_file(backup, one):
            yield f"{one.path} {because}"
    if sha256_below(backup, FILES) != manifest["files_sha256"]:
        yield f"{FILES} was changed"
    if manifest["database"] == "own":
        yield from wrong_dump(backup, manifest["database_sha256"])
    if not has_key:
        yield f"{KEY_FILE} is not in it: nothing that Harbor encrypted could be read again"


def _wrong_file(backup: Path, one: Kept) -> str:
    try:
        # As a restore opens it, which refuses links.
        with open_below(backup, f"{DATA}/{one.path}") as stream:
            if os.fstat(stream.fileno()).st_size != one.size or is_sparse(stream):
                return "was changed"
            return "" if sha256_of_stream(stream) == one.sha256 else "was changed"
    except FileNotFoundError:
        return "is gone"
    except OSError as error:
        return f"cannot be read: {error.strerror}"


def wrong_dump(backup: Path, sha256: str) -> Iterator[str]:
    """By what the dump of a backup is not what was written."""
    try:
        with open_below(backup, DUMP) as stream:
            is_same = not is_sparse(stream) and sha256_of_stream(stream) == sha256
    except OSError:
        is_same = False
    if not is_same:
        yield f"{DUMP} is gone or was changed"
    elif not whole_dump(backup / DUMP):
        yield f"{DUMP} is not a whole dump"


def prune(directory: Path, keep: int) -> list[str]:
    """Remove the oldest whole backups beyond `keep` (0 keeps all), and what was never finished."""
    gone = [path for path in directory.glob(f"*{PARTIAL}") if NAME.fullmatch(path.name.removesuffix(PARTIAL))]
    if keep:
        gone += backups(directory)[:-keep]
    for path in gone:
        shutil.rmtree(path)
    return [path.name for path in gone]
