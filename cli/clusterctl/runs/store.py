"""Runs on disk: `.clusterctl/runs/ID/` with run.json and whatever the run wrote next to it."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from clusterctl.cluster.directory import ClusterDirectory, state_access
from clusterctl.cluster.quarantine import user
from clusterctl.cluster.state_files import replace_file
from clusterctl.errors import EXIT_INCOMPLETE, EXIT_INTERRUPTED, ClusterctlError, ExplainedError
from clusterctl.runs import chain

RUN_FILE = "run.json"


@dataclass(frozen=True)
class Run:
    """One apply, plan, preflight or validate. ``finished`` is None while it runs or if it was interrupted."""

    id: str
    kind: str
    arguments: tuple[str, ...]
    started: str
    operator: str
    controller: str
    pid: int
    directory: Path = field(compare=False)
    finished: str | None = None
    exit_code: int | None = None
    summary: Mapping[str, Any] = field(default_factory=dict)

    @property
    def journal(self) -> Path:
        """Events as JSON lines, flushed as they come."""
        return self.directory / "journal.jsonl"

    def path(self, name: str) -> Path:
        """A file of this run's own."""
        return self.directory / name


def now() -> str:
    """The present in UTC, ISO 8601, to the second."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class RunStore:
    """The runs of one cluster, newest last. ``on_link`` is called with the link of each run that ends."""

    def __init__(
        self, cluster: ClusterDirectory, on_link: Callable[[chain.ChainLink], None] = lambda _link: None
    ) -> None:
        self._cluster = cluster
        self._on_link = on_link

    def create(self, kind: str, arguments: Sequence[str]) -> Run:
        """Start a run: its directory and run.json exist when this returns."""
        self._cluster.ensure_state()
        moment = datetime.now(UTC)
        # To the millisecond: the names of runs sort as they started.
        began = f"{moment:%Y%m%dT%H%M%S}{moment.microsecond // 1000:03d}"
        identity = f"{began}-{kind}-{secrets.token_hex(2)}"
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
        ended = replace(run, finished=now(), exit_code=exit_code, summary=dict(summary))
        self._record(ended)
        return ended

    @contextlib.contextmanager
    def finished_on_error(self, run: Run) -> Iterator[None]:
        """Record how a run ended where the block raises, whatever it raises; else the block has done it."""
        try:
            yield
        except KeyboardInterrupt:
            self.finish(run, EXIT_INTERRUPTED, {"error": "interrupted"})
            raise
        except ExplainedError as error:
            self.finish(run, error.exit_code, {"error": error.what})
            raise
        except BaseException as error:
            self.finish(run, EXIT_INCOMPLETE, {"error": f"{type(error).__name__}: {error}"})
            raise

    def annotate(self, run: Run, summary: Mapping[str, Any]) -> Run:
        """Replace the summary of a run; when and how it ended stays as it is."""
        changed = replace(run, summary=dict(summary))
        self._record(changed)
        return changed

    def _record(self, run: Run) -> None:
        _save(run)
        self._on_link(chain.append(self._cluster, run.id))

    def readable(self) -> Iterator[Run]:
        """The runs whose records this user may read and this version knows."""
        with contextlib.suppress(OSError):
            for directory in self._cluster.runs.iterdir():
                with contextlib.suppress(OSError, ClusterctlError):
                    yield _load(directory)

    def list(self) -> list[Run]:
        """Every run, oldest first. Raises ClusterctlError where one cannot be read (exit 2)."""
        with state_access():
            if not self._cluster.runs.is_dir():
                return []
            directories = sorted(p for p in self._cluster.runs.iterdir() if (p / RUN_FILE).is_file())
        return [_load(directory) for directory in directories]

    def get(self, identity: str) -> Run:
        """The run of that id, or of that unique beginning; ``last`` is the newest.

        Raises ClusterctlError (``runs.unknown``) where none or several match.
        """
        runs = self.list()
        matching = runs[-1:] if identity == "last" else [r for r in runs if r.id.startswith(identity)]
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


def _save(run: Run) -> None:
    record = asdict(run)
    record.pop("directory")
    replace_file(run.directory / RUN_FILE, json.dumps(record, indent=2) + "\n")


def _load(directory: Path) -> Run:
    path = directory / RUN_FILE
    try:
        with state_access():
            text = path.read_text(encoding="utf-8")
        record = json.loads(text)
        record["arguments"] = tuple(record["arguments"])
        return Run(directory=directory, **record)
    except (ValueError, TypeError, KeyError) as error:
        raise ClusterctlError(
            f"the run's record cannot be read: {error}",
            code="runs.unreadable",
            where=str(path),
            hint="Move that directory away; the other runs are not touched.",
        ) from error
