"""A hash chain over the runs' records: each link has the digests of one run's files and of the link before.

Whoever can write in the cluster directory can write the whole chain again. Only a head that is kept elsewhere
(in a report that was sent, in syslog) shows that nothing before it was changed.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

from pydantic import Field, ValidationError

from clustercheck.parse.plain_text import shortened
from clusterctl.cluster.bounded_file import UnusableFileError, read_bounded
from clusterctl.cluster.directory import ClusterDirectory, state_access
from clusterctl.cluster.record import Record
from clusterctl.cluster.state_files import locked

CHAIN_FILE = "chain.jsonl"
MAX_BYTES = 256 * 1024 * 1024  # half a million runs
# What a run is recorded in; reports are made from result.json.
RECORDED = ("run.json", "journal.jsonl", "result.json", "evidence.json")
START = "0" * 64
PIECE = 1 << 20

Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class ChainLink(Record):
    """The state of one run's files when it was recorded. ``head`` is the digest of all other members."""

    number: Annotated[int, Field(ge=1)]
    at: Annotated[str, Field(max_length=40)]
    run: Annotated[str, Field(max_length=200)]
    files: Annotated[dict[str, Digest], Field(max_length=len(RECORDED))]
    previous: Digest
    head: Digest

    def expected_head(self) -> str:
        """What ``head`` must be: SHA-256 over the other members as JSON with sorted names."""
        members = self.model_dump(exclude={"head"})
        return hashlib.sha256(json.dumps(members, sort_keys=True).encode()).hexdigest()


def append(directory: ClusterDirectory, run: str) -> ChainLink:
    """Record the present state of a run's files as the next link.

    Raises ClusterctlError (``cluster.state-*``).
    """
    with locked(directory), state_access(chain_file(directory)):
        descriptor = os.open(
            chain_file(directory), os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600
        )
        try:
            last = _last_link(descriptor)
            link = ChainLink(
                number=last.number + 1 if last else 1,
                at=datetime.now(UTC).isoformat(timespec="seconds"),
                run=run,
                files=digests(directory.runs / run),
                previous=last.head if last else START,
                head=START,
            )
            link = link.model_copy(update={"head": link.expected_head()})
            os.write(descriptor, f"{link.model_dump_json()}\n".encode())
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    return link


def head_of(run: Path) -> str:
    """The head of the newest link of a run, by its directory; empty if there is none that can be read."""
    links, _ = read(ClusterDirectory(run.parents[2]))
    return next((link.head for link in reversed(links) if link.run == run.name), "")


def chain_file(directory: ClusterDirectory) -> Path:
    """Where the links are, one JSON object per line."""
    return directory.state / CHAIN_FILE


def digests(run: Path) -> dict[str, str]:
    """SHA-256 of each file that a run is recorded in, as far as it has them."""
    found = {}
    for name in RECORDED:
        path = run / name
        if path.is_file() and not path.is_symlink():
            found[name] = _digest(path)
    return found


def read(directory: ClusterDirectory) -> tuple[list[ChainLink], list[str]]:
    """Every link that can be read, and what is wrong with the chain's file itself."""
    try:
        content = read_bounded(chain_file(directory), MAX_BYTES)
    except FileNotFoundError:
        return [], []
    except (OSError, UnusableFileError) as error:
        return [], [f"{CHAIN_FILE} cannot be read: {getattr(error, 'strerror', None) or error}"]
    links, problems = [], []
    for number, line in enumerate(content.splitlines(), start=1):
        try:
            links.append(ChainLink.model_validate_json(line))
        except ValidationError:
            problems.append(f"line {number} of {CHAIN_FILE} is not a link")
    return links, problems


@dataclass(frozen=True)
class Verified:
    """``anchored`` is the number of the link whose head was given, 0 without one."""

    links: int
    runs: int
    newest: str
    anchored: int
    problems: tuple[str, ...]

    @property
    def good(self) -> bool:
        """Whether nothing differs."""
        return not self.problems


def verify(directory: ClusterDirectory, head: str | None = None) -> Verified:
    """Compare the chain with itself, with the runs' files, and with a head that was kept elsewhere."""
    links, problems = read(directory)
    problems += problems_of(links, directory)
    problems += _not_linked(directory, {link.run for link in links}, links[0].at if links else "")
    anchored = next((link.number for link in links if link.head == head), 0)
    if head is not None and not anchored:
        problems.append(f"no link has the head {shortened(head, 80)}: the chain was cut, or written again")
    newest = links[-1].head if links else ""
    return Verified(len(links), len({link.run for link in links}), newest, anchored, tuple(problems))


def _not_linked(directory: ClusterDirectory, linked: set[str], since: str) -> list[str]:
    """Runs that ended after the chain began and are not in it."""
    problems = []
    with suppress(FileNotFoundError):
        for path in sorted(directory.runs.iterdir()):
            # What has no record that can be read is for `runs list` to name.
            with suppress(OSError, UnusableFileError, ValueError, TypeError, AttributeError):
                record = json.loads(read_bounded(path / RECORDED[0], MAX_BYTES))
                finished = record.get("finished") or since  # it runs, or was interrupted
                is_later = datetime.fromisoformat(finished) > datetime.fromisoformat(since)
                if path.name not in linked and is_later:
                    problems.append(f"run {path.name} ended and is not in the chain")
    return problems


def problems_of(links: Iterable[ChainLink], directory: ClusterDirectory) -> list[str]:
    """Where links do not follow each other, and where a run's files differ from its newest link."""
    problems, newest, before = [], {}, None
    for link in links:
        number, previous = (before.number + 1, before.head) if before else (1, START)
        if link.head != link.expected_head():
            problems.append(f"link {link.number} ({link.run}) was changed")
        if (link.number, link.previous) != (number, previous):
            problems.append(f"link {link.number} ({link.run}) does not follow link {number - 1}")
        newest[link.run], before = link, link
    for run, link in newest.items():
        problems += _changes(run, link.files, directory.runs / run)
    return problems


def _changes(run: str, recorded: Mapping[str, str], path: Path) -> list[str]:
    if "/" in run or run in ("", ".", ".."):
        return [f"{run!r} is not the name of a run"]
    if not path.is_dir():
        return [f"run {run} was removed"]
    try:
        present = digests(path)
    except OSError as error:
        return [f"run {run} cannot be read: {error.strerror}"]
    gone = [f"{name} of run {run} was removed" for name in recorded if name not in present]
    both = [name for name in recorded if name in present]
    changed = [f"{name} of run {run} was changed" for name in both if present[name] != recorded[name]]
    return [*gone, *changed, *(f"{name} of run {run} was added" for name in present if name not in recorded)]


def _last_link(descriptor: int) -> ChainLink | None:
    """The last link, from the end of the file; a torn line of a writer that died is closed off."""
    size = os.fstat(descriptor).st_size
    tail = os.pread(descriptor, min(size, 1 << 16), max(0, size - (1 << 16)))
    if tail and not tail.endswith(b"\n"):
        os.write(descriptor, b"\n")
    for line in reversed(tail.splitlines()):
        try:
            return ChainLink.model_validate_json(line)
        except ValidationError:
            continue
    return None


def _digest(path: Path) -> str:
    found = hashlib.sha256()
    with path.open("rb") as stream:
        while piece := stream.read(PIECE):
            found.update(piece)
    return found.hexdigest()
