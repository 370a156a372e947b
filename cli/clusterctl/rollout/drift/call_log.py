"""The log of module calls that the callback wrote while Ansible ran, and whether it is complete."""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from clusterctl.cluster.bounded_file import UnusableFileError, bounded_lines
from clusterctl.cluster.directory import ClusterDirectory
from clusterctl.rollout.preflight import PLAYBOOK as PREFLIGHT_PLAYBOOK

FILE = "calls.jsonl"
MAX_BYTES = 1 << 30
MAX_LINE_BYTES = 16 << 20  # a task with a large file as its argument
# Only the line at the end of a playbook has this key.
TALLY = "ok"


class LoggedCall(BaseModel):
    """What a line of a call must have; `calls.select_calls` reads it."""

    model_config = ConfigDict(strict=True)

    host: str
    at: str
    task: str
    module: str
    job: bool
    failed: bool
    hidden: bool
    part: str
    args: dict[str, Any] = Field(default={})
    file: dict[str, Any] = Field(default={})


class LoggedTally(BaseModel):
    """What the line at the end of a playbook must have."""

    model_config = ConfigDict(strict=True)

    playbook: str
    part: str
    ok: dict[str, int]
    logged: dict[str, int]


@dataclass(frozen=True)
class CallLog:
    """``calls`` in order, and one tally per finished playbook: how many calls it had to log."""

    calls: Sequence[Mapping[str, Any]] = ()
    tallies: Sequence[Mapping[str, Any]] = ()

    def is_complete(self, ok: Mapping[str, int]) -> bool:
        """Returns whether every call is there, of hosts on which ``ok`` tasks of the site succeeded.

        A missing call would never be repeated, and what drifts there would not be found.
        """
        logged = Counter((one["part"], one["host"]) for one in self.calls)
        due = {(one["part"], host): number for one in self.tallies for host, number in one["logged"].items()}
        waves = [one for one in self.tallies if one["playbook"] != PREFLIGHT_PLAYBOOK]
        succeeded = {host: sum(one[TALLY].get(host, 0) for one in waves) for host in ok}
        return succeeded == dict(ok) and all(logged[key] == number for key, number in due.items())


def read_call_log(path: Path) -> CallLog:
    """Returns the whole log; an empty one if the file is missing or a line of it is unreadable."""
    calls: list[Mapping[str, Any]] = []
    tallies: list[Mapping[str, Any]] = []
    try:
        for line in bounded_lines(path, MAX_BYTES, MAX_LINE_BYTES):
            entry = json.loads(line)
            is_tally = isinstance(entry, dict) and TALLY in entry
            (LoggedTally if is_tally else LoggedCall).model_validate(entry)
            (tallies if is_tally else calls).append(entry)
    except (OSError, ValueError, UnusableFileError, RecursionError):
        return CallLog()
    return CallLog(calls, tallies)


@contextlib.contextmanager
def remove_call_logs(directory: ClusterDirectory) -> Iterator[None]:
    """Removes the logs however the block ends, also those of runs that died: they hold tasks' arguments."""
    try:
        yield
    finally:
        for path in directory.runs.glob(f"*/{FILE}"):
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)
