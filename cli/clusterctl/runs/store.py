"""Runs on disk: `.clusterctl/runs/ID/` with run.json and whatever the run wrote next to it."""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import secrets
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, ConfigDict, Field, TypeAdapter

from clustercheck.parse.plain_text import plain_text
from clustercheck.parse.reading import CannotReadError
from clustercheck.result.memory import require_bounded_memory
from clusterctl import console
from clusterctl.cluster.bounded_file import UnusableFileError, describe_unusable, read_bounded
from clusterctl.cluster.directory import ClusterDirectory, state_access
from clusterctl.cluster.quarantine import user
from clusterctl.cluster.state_files import replace_file
from clusterctl.cluster.state_reading import MAX_BYTES, MAX_TEXT, parse_json
from clusterctl.cluster.trust import require_trusted_runs
from clusterctl.errors import EXIT_INCOMPLETE, EXIT_INTERRUPTED, ClusterctlError, ExplainedError
from clusterctl.runs import chain
from clusterctl.signals import caught_signals

RUN_FILE = chain.RUN_FILE
JOURNAL = chain.JOURNAL
NAME = re.compile(r"\d{8}T\d{9}-")
CLOCKS_APART = timedelta(hours=1)  # of operators' machines, at most
MAX_PID = 2**31 - 1
# A list of runs keeps small records whole, up to so many bytes of their files together; other summaries are
# read when they are asked for. Of 4,000 nodes one has some MB.
SMALL_BYTES = 64 << 10
MAX_KEPT_BYTES = 4 << 20
# What cannot be left out of larger ones: a command's arguments, which Linux bounds to 2 MiB.
MAX_ARGUMENTS = 2 << 20
MAX_KEPT_CHARACTERS = 16 << 20
# What is printed wherever runs are listed.
Line = Annotated[str, Field(max_length=MAX_TEXT), AfterValidator(plain_text)]
Argument = Annotated[str, Field(max_length=MAX_ARGUMENTS), AfterValidator(plain_text)]


@dataclass(frozen=True)
class RunRecord:
    """What run.json says. ``finished`` is None while the run goes on, or if it was interrupted."""

    __pydantic_config__ = ConfigDict(extra="forbid", strict=True)

    id: chain.RunName
    kind: Line
    arguments: Annotated[tuple[Argument, ...], Field(max_length=MAX_ARGUMENTS // 8, fail_fast=True)]
    started: Line
    operator: Line
    controller: Line
    pid: Annotated[int, Field(gt=0, le=MAX_PID)]
    finished: Line | None = None
    exit_code: int | None = None
    summary: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Run(RunRecord):
    """One apply, plan, preflight or validate. ``summary`` is empty where it was left out of a list."""

    directory: Path = field(compare=False, kw_only=True)
    left_out: bool = field(default=False, compare=False, kw_only=True)

    @property
    def journal(self) -> Path:
        """Events as JSON lines, flushed as they come."""
        return self.directory / JOURNAL

    def path(self, name: str) -> Path:
        """A file of this run's own."""
        return self.directory / name

    def whole_summary(self) -> Mapping[str, Any]:
        """The summary, also where it was left out. Raises ClusterctlError (``runs.unreadable``)."""
        return _read(self.directory)[0].summary if self.left_out else self.summary

    def as_record(self) -> dict[str, Any]:
        """What run.json says. Raises as ``whole_summary`` does."""
        own = {one.name: getattr(self, one.name) for one in fields(RunRecord)}
        return {**own, "summary": dict(self.whole_summary())}


@dataclass(frozen=True)
class UnreadableRun:
    """A run of which only its directory is known, and why."""

    directory: Path
    error: ClusterctlError

    @property
    def id(self) -> str:
        """As the directory is named."""
        return self.directory.name

    @property
    def journal(self) -> Path:
        """Its events, which may be readable all the same."""
        return self.directory / JOURNAL


@dataclass(frozen=True)
class RunListing:
    """All runs, oldest first."""

    runs: tuple[Run, ...] = ()
    unreadable: tuple[UnreadableRun, ...] = ()


def now() -> str:
    """The present in UTC, ISO 8601, to the second."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def seconds_after(run: RunRecord, moment: str) -> float:
    """How long after a moment (ISO 8601) a run ended; minus infinity where it does not say when."""
    try:
        ended = datetime.fromisoformat(run.finished or "")
        return (ended - datetime.fromisoformat(moment)).total_seconds()
    except (ValueError, TypeError):  # no date, or one without its zone
        return -math.inf


class RunStore:
    """The runs of one cluster, newest last; before all those whose names are later than now.

    ``on_link`` is called with the link of each run that ends.
    """

    def __init__(
        self, cluster: ClusterDirectory, on_link: Callable[[chain.ChainLink], None] = lambda _link: None
    ) -> None:
        self._cluster = cluster
        self._on_link = on_link
        self._ended: set[str] = set()  # runs whose end this process has recorded

    def create(self, kind: str, arguments: Sequence[str]) -> Run:
        """Start a run: its directory and run.json exist when this returns."""
        self._cluster.ensure_state()
        identity = f"{_beginning_of_name(datetime.now(UTC))}-{kind}-{secrets.token_hex(2)}"
        directory = self._cluster.runs / identity
        with state_access():
            directory.mkdir(mode=0o700)
        run = Run(
            id=identity,
            kind=kind,
            arguments=tuple(arguments),
            started=now(),
            operator=user(),
            controller=os.uname().nodename,
            pid=os.getpid(),
            directory=directory,
        )
        _save(run)
        return run

    def finish(self, run: Run, exit_code: int, summary: Mapping[str, Any]) -> Run:
        """Record how a run ended."""
        ended = replace(run, finished=now(), exit_code=exit_code, summary=dict(summary), left_out=False)
        self._ended.add(run.id)
        self._record(ended)
        return ended

    @contextlib.contextmanager
    def finished_on_error(self, run: Run) -> Iterator[None]:
        """Record how a run ended where the block raises, whatever it raises; else the block has done it.

        What the block recorded stays, as where Ctrl-C came while it did.
        """
        try:
            yield
        except BaseException as error:
            if run.id not in self._ended:
                self.finish(run, *_end_by(error))
            raise

    def annotate(self, run: Run, summary: Mapping[str, Any]) -> Run:
        """Replace the summary of a run; when and how it ended stays as it is."""
        changed = replace(run, summary=dict(summary), left_out=False)
        self._record(changed)
        return changed

    def _record(self, run: Run) -> None:
        # Who presses Ctrl-C twice does it here: a record without its link looks like one that was added.
        with caught_signals() as caught:
            _save(run)
            missed = self._not_linked() if chain.cut_torn_line(self._cluster) else []
            ended = (*(one for one in missed if one != run.id), run.id)
            links = [chain.append(self._cluster, identity) for identity in ended]
        for link in links:
            self._on_link(link)
        if caught.signal is not None:
            signal.raise_signal(caught.signal)

    def _not_linked(self) -> Sequence[str]:
        """Runs that ended since the last link and are in none: whose link is incomplete."""
        links, _, _ = chain.read(self._cluster)
        if not links:
            return []
        linked, since = {link.run for link in links}, links[-1].at
        return [run.id for run in self.scan().runs if run.id not in linked and seconds_after(run, since) >= 0]

    def scan(self) -> RunListing:
        """Every run.

        Raises ClusterctlError only where no run can be listed (``cluster.state-*``), or others could have
        written one (``cluster.not-trusted``).
        """
        runs, unreadable = [], []
        with state_access():
            directories = sorted(self._cluster.runs.iterdir()) if self._cluster.runs.is_dir() else []
        # A run that began when the clock was wrong would be the newest for years.
        now_or_soon = _beginning_of_name(datetime.now(UTC) + CLOCKS_APART)
        directories.sort(key=lambda one: bool(NAME.match(one.name)) and one.name > now_or_soon, reverse=True)
        require_trusted_runs(directories, self._cluster.root)
        room = _KeptRecords()
        for directory in directories:
            try:
                if _is_run(directory):
                    runs.append(_load(directory, room))
            except ClusterctlError as error:
                unreadable.append(UnreadableRun(directory, error))
        return RunListing(tuple(runs), tuple(unreadable))

    def list(self) -> list[Run]:
        """Every readable run, oldest first; each of the others is named on standard error, once a process."""
        return list(self._scan_and_warn().runs)

    def get(self, identity: str) -> Run:
        """The run of that id, or of that unique beginning; ``last`` is the newest readable one.

        Raises ClusterctlError: ``runs.unknown`` where none or several match, ``runs.unreadable``.
        """
        listing = self._scan_and_warn()
        runs = listing.runs
        if identity == "last":
            matching = runs[-1:]
        else:
            matching = tuple(run for run in runs if run.id.startswith(identity))
            broken = [one for one in listing.unreadable if one.id.startswith(identity)]
            if len(broken) == 1 and not matching:
                raise broken[0].error
        if len(matching) == 1:
            return matching[0]
        if not runs:
            raise ClusterctlError(
                "there is no run yet",
                code="runs.unknown",
                where=str(self._cluster.runs),
                hint="clusterctl preflight, apply and validate each make one.",
            )
        raise ClusterctlError(
            f"{len(matching)} runs match {identity!r}" if matching else f"there is no run {identity!r}",
            code="runs.unknown",
            where=str(self._cluster.runs),
            hint="clusterctl runs list names them all.",
        )

    def _scan_and_warn(self) -> RunListing:
        """Every run, after a message for each that is not readable."""
        listing = self.scan()
        for one in listing.unreadable:
            if one.directory not in _NAMED:
                _NAMED.add(one.directory)
                console.say(f"run {one.id} is omitted: {one.error.what} ({one.error.where})")
        return listing


def _end_by(error: BaseException) -> tuple[int, dict[str, str]]:
    """The exit code and the summary of a run that an error ended."""
    if isinstance(error, KeyboardInterrupt):
        return EXIT_INTERRUPTED, {"error": "interrupted"}
    if isinstance(error, ExplainedError):
        return error.exit_code, {"error": error.what}
    return EXIT_INCOMPLETE, {"error": f"{type(error).__name__}: {error}"}


def _beginning_of_name(moment: datetime) -> str:
    """To the millisecond: the names of runs sort as they started."""
    return f"{moment:%Y%m%dT%H%M%S}{moment.microsecond // 1000:03d}"


_NAMED: set[Path] = set()
_FORM = TypeAdapter(RunRecord)


def _save(run: Run) -> None:
    replace_file(run.directory / RUN_FILE, json.dumps(run.as_record(), indent=2) + "\n")


def _is_run(directory: Path) -> bool:
    """Whether a run was recorded there; also where its record is lost, and its journal is not."""
    try:
        return any(path.name in (RUN_FILE, JOURNAL) for path in directory.iterdir())
    except NotADirectoryError:
        return False
    except OSError as error:
        raise _unreadable(directory, describe_unusable(error)) from error


class _KeptRecords:
    """What a list of runs may still keep: bytes of records, and characters of those that are not small."""

    def __init__(self) -> None:
        self._bytes, self._characters = MAX_KEPT_BYTES, MAX_KEPT_CHARACTERS

    def keeps(self, size: int) -> bool:
        """Whether a record is kept as a whole."""
        if size > min(SMALL_BYTES, self._bytes):
            return False
        self._bytes -= size
        return True

    def has_arguments(self, record: RunRecord) -> bool:
        """Whether those of a large record fit."""
        characters = sum(len(one) + 8 for one in record.arguments)
        if characters <= SMALL_BYTES:
            return True
        self._characters -= characters
        return self._characters >= 0


def _load(directory: Path, room: _KeptRecords) -> Run:
    record, size = _read(directory)
    if room.keeps(size):
        return Run(directory=directory, **vars(record))
    if not room.has_arguments(record):
        raise _unreadable(directory, "the arguments of the runs in this list are too long")
    return Run(directory=directory, left_out=True, **{**vars(record), "summary": {}})


def _read(directory: Path) -> tuple[RunRecord, int]:
    """What a run's record says, and its size in bytes."""
    try:
        content = read_bounded(directory / RUN_FILE, MAX_BYTES)
        require_bounded_memory(content)
        record = parse_json(content, _FORM)
    except (UnusableFileError, OSError) as error:
        raise _unreadable(directory, describe_unusable(error)) from error
    except CannotReadError as error:
        raise _unreadable(directory, str(error)) from error
    if record.id != directory.name:
        raise _unreadable(directory, "it is that of another run")
    return record, len(content)


def _unreadable(directory: Path, because: str) -> ClusterctlError:
    return ClusterctlError(
        f"the run's record cannot be read: {because}",
        code="runs.unreadable",
        where=str(directory / RUN_FILE),
        hint="Move that directory away; the other runs are not touched.",
    )
