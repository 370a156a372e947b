"""A hash chain over the runs' records: each link has the digests of one run's files and of the link before.

Whoever can write in the cluster directory can write the whole chain again. Only a head that is kept elsewhere
(in a report that was sent, in syslog) shows that nothing before it was changed.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import Annotated

from pydantic import Field, ValidationError

from clusterctl import console
from clusterctl.cluster.bounded_file import UnusableFileError, describe_unusable, open_regular, read_bounded
from clusterctl.cluster.directory import ClusterDirectory, state_access
from clusterctl.cluster.record import Record
from clusterctl.cluster.state_files import locked
from clusterctl.cluster.state_form import open_plain, write_whole
from clusterctl.errors import ClusterctlError

CHAIN_FILE = "chain.jsonl"
MAX_BYTES = 64 << 20  # a hundred thousand runs; in memory they take ten times as much
RUN_FILE = "run.json"
JOURNAL = "journal.jsonl"
RESULT = "result.json"
EVIDENCE = "evidence.json"
# What a run is recorded in; reports are made from its result.
RECORDED = (RUN_FILE, JOURNAL, RESULT, EVIDENCE)
START = "0" * 64
BLOCK = 1 << 16
MAX_LINE = 1 << 16
MAX_LINKS = 2**53  # exact in every reader of JSON
MAX_FILE_BYTES = 16 << 30  # the evidence of a thousand nodes that say as much as is read of each
MAX_PROBLEMS = 100

Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
# Of kinds with two words ("registry upgrade") a name has a space.
RunName = Annotated[str, Field(pattern=r"^[0-9A-Za-z][0-9A-Za-z ._-]{0,199}$")]


class ChainLink(Record):
    """The state of one run's files when it was recorded. ``head`` is the digest of all other members."""

    number: Annotated[int, Field(ge=1, le=MAX_LINKS)]
    at: Annotated[str, Field(max_length=40)]
    run: RunName
    files: Annotated[dict[str, Digest], Field(max_length=len(RECORDED))]
    previous: Digest
    head: Digest

    def expected_head(self) -> str:
        """What ``head`` must be: SHA-256 over the other members as JSON with sorted names."""
        members = self.model_dump(exclude={"head"})
        return hashlib.sha256(json.dumps(members, sort_keys=True).encode()).hexdigest()


def append(directory: ClusterDirectory, run: str) -> ChainLink:
    """Record the present state of a run's files as the next link.

    Raises ClusterctlError (``cluster.state-*``; ``runs.unreadable`` for a file of no size that is written).
    """
    try:
        files = digests(directory.runs / run)
    except UnusableFileError as error:
        raise ClusterctlError(
            f"run {run} cannot be recorded in {CHAIN_FILE}: it {error}",
            code="runs.unreadable",
            where=str(directory.runs / run),
            hint="See what wrote there; other runs are not affected.",
        ) from None
    with _open(directory) as descriptor:
        _cut_torn_line(descriptor)
        near = islice(_pieces_backwards(descriptor), MAX_PROBLEMS)
        last = next(filter(None, map(_link, near)), None)
        link = ChainLink(
            number=min(last.number + 1, MAX_LINKS) if last else 1,
            at=datetime.now(UTC).isoformat(timespec="seconds"),
            run=run,
            files=files,
            previous=last.head if last else START,
            head=START,
        )
        link = link.model_copy(update={"head": link.expected_head()})
        # A part that a full disk took stays: by it the next run knows of a link that is missing.
        write_whole(descriptor, f"{link.model_dump_json()}\n".encode())
        os.fsync(descriptor)
    return link


def cut_torn_line(directory: ClusterDirectory) -> bool:
    """Remove, and say so, what a writer that died left of a link; whether there was such a line.

    Its run is then in no link, though it ended. Raises ClusterctlError (``cluster.state-*``).
    """
    with _open(directory) as descriptor:
        return _cut_torn_line(descriptor)


def head_of(run: Path) -> str:
    """The head of the newest link of a run, by its directory; empty if there is none that can be read."""
    link = link_of(run)
    return link.head if link else ""


def link_of(run: Path) -> ChainLink | None:
    """The newest link of a run, by its directory; None if there is none that can be read."""
    name = run.name.encode()
    try:
        with open_regular(chain_file(ClusterDirectory(run.parents[2]))) as stream:
            links = (_link(piece) for piece in _pieces_backwards(stream.fileno()) if name in piece)
            return next((link for link in links if link and link.run == run.name), None)
    except (OSError, UnusableFileError):
        return None


def chain_file(directory: ClusterDirectory) -> Path:
    """Where the links are, one JSON object per line."""
    return directory.state / CHAIN_FILE


def digests(run: Path) -> dict[str, str]:
    """SHA-256 of each file that a run is recorded in, as far as it has them.

    Raises OSError, and UnusableFileError also for one that is larger than any that is written.
    """
    found = {}
    for name in RECORDED:
        path = run / name
        if path.is_file() and not path.is_symlink():
            with open_regular(path) as stream:
                if (size := os.fstat(stream.fileno()).st_size) > MAX_FILE_BYTES:
                    raise UnusableFileError(f"has {size} bytes in {name}; at most {MAX_FILE_BYTES} are read")
                found[name] = hashlib.file_digest(stream, "sha256").hexdigest()
    return found


def read(directory: ClusterDirectory) -> tuple[list[ChainLink], list[str], bool]:
    """Every link that can be read, what is wrong with the chain's file itself, and whether its last line is
    torn: what a writer that died left of a link, which is none."""
    try:
        content = read_bounded(chain_file(directory), MAX_BYTES)
    except FileNotFoundError:
        return [], [], False
    except (OSError, UnusableFileError) as error:
        return [], [f"{CHAIN_FILE} cannot be read: {describe_unusable(error)}"], False
    whole, newline, rest = content.rpartition(b"\n")
    is_whole = not rest or _link(rest) is not None
    links: list[ChainLink] = []
    problems: list[str] = []
    for number, line in enumerate(BytesIO(content if is_whole else whole + newline), start=1):
        link = _link(line)
        if link is not None:
            links.append(link)
        elif len(problems) == MAX_PROBLEMS:
            problems.append(f"the other lines of {CHAIN_FILE} from line {number} on were not read")
            break
        else:
            problems.append(f"line {number} of {CHAIN_FILE} is not a link")
    return links, problems, not is_whole


@contextmanager
def _open(directory: ClusterDirectory) -> Iterator[int]:
    with locked(directory), state_access(chain_file(directory)):
        descriptor = open_plain(chain_file(directory), os.O_RDWR | os.O_APPEND)
        try:
            yield descriptor
        finally:
            os.close(descriptor)


def _cut_torn_line(descriptor: int) -> bool:
    rest = next(_pieces_backwards(descriptor), None)
    if rest == b"":
        return False
    if rest is None or _link(rest):  # no link is that long: `runs verify` names it; or it lacks but its end
        os.write(descriptor, b"\n")
        return False
    os.ftruncate(descriptor, os.fstat(descriptor).st_size - len(rest))
    console.say(f"{CHAIN_FILE}: an incomplete link is removed ({len(rest)} bytes)")
    return True


def _pieces_backwards(descriptor: int) -> Iterator[bytes]:
    """What newlines divide, from the end on: first what follows the last, empty in a whole file.

    Ends at a line that is longer than a link can be.
    """
    end, rest = os.fstat(descriptor).st_size, b""
    while end > 0 and len(rest) <= MAX_LINE:
        start = max(0, end - BLOCK)
        rest, *pieces = (os.pread(descriptor, end - start, start) + rest).split(b"\n")
        yield from reversed(pieces)
        end = start
    if len(rest) <= MAX_LINE:
        yield rest


def _link(line: bytes) -> ChainLink | None:
    try:
        return ChainLink.model_validate_json(line)
    except ValidationError:
        return None
