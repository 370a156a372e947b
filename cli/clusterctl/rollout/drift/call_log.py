"""The log of module calls that the callback wrote while Ansible ran, and whether it is complete."""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, TypeAdapter

from clusterctl.cluster.bounded_file import UnusableFileError, bounded_lines
from clusterctl.cluster.directory import ClusterDirectory
from clusterctl.rollout.preflight import PLAYBOOK as PREFLIGHT_PLAYBOOK

FILE = "calls.jsonl"
MAX_BYTES = 1 << 30
MAX_LINE_BYTES = 16 << 20  # a task with a large file as its argument
# Only the line at the end of a playbook has this key.
TALLY = "ok"


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


class _CallLine(BaseModel):
    part: str
    host: str
    at: str
    task: str
    module: str
    args: dict[str, Any] = {}
    file: dict[str, Any] = {}


class _TallyLine(BaseModel):
    part: str
    playbook: str
    ok: dict[str, int]
    logged: dict[str, int]


_FORM: TypeAdapter[_TallyLine | _CallLine] = TypeAdapter(_TallyLine | _CallLine)


def read_call_log(path: Path) -> CallLog:
    """Returns the whole log; an empty one if the file is missing or a line of it is unreadable."""
    try:
        lines = [json.loads(line) for line in bounded_lines(path, MAX_BYTES, MAX_LINE_BYTES)]
        for line in lines:
            _FORM.validate_python(line)
    except (OSError, ValueError, UnusableFileError, RecursionError):
        return CallLog()
    return CallLog([line for line in lines if TALLY not in line], [line for line in lines if TALLY in line])


@contextlib.contextmanager
def remove_call_logs(directory: ClusterDirectory) -> Iterator[None]:
    """Removes the logs however the block ends, also those of runs that died: they hold tasks' arguments."""
    try:
        yield
    finally:
        for path in directory.runs.glob(f"*/{FILE}"):
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)
