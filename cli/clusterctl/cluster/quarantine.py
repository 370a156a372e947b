"""Hosts that the operator took out: visible to every command, with reason, who and when."""

from __future__ import annotations

import getpass
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, date, datetime
from typing import Any

import yaml
from pydantic import TypeAdapter, field_validator

from clusterctl.cluster.bounded_file import UnusableFileError, describe_unusable
from clusterctl.cluster.directory import ClusterDirectory, state_access
from clusterctl.cluster.record import Record
from clusterctl.cluster.state_files import locked, replace_file
from clusterctl.cluster.state_reading import WrittenText, read_yaml
from clusterctl.errors import ClusterctlError


@dataclass(frozen=True)
class QuarantineEntry:
    """One host in quarantine. ``since`` is UTC, ISO 8601; ``until`` is the last day, or empty: for ever."""

    node: str
    reason: str
    by: str
    since: str
    until: str = ""

    def holds(self, today: date) -> bool:
        """True while the host is out; after the day ``until`` it is in again by itself."""
        return not self.until or today <= date.fromisoformat(self.until)


class _EntryRecord(Record):
    """An entry as the file has it; a person may have written it, days without quotes."""

    reason: WrittenText
    by: WrittenText
    since: WrittenText
    until: WrittenText = ""

    @field_validator("until")
    @classmethod
    def _day(cls, until: str) -> str:
        return until and date.fromisoformat(until).isoformat()


_FORM: TypeAdapter[dict[WrittenText, _EntryRecord] | None] = TypeAdapter(
    dict[WrittenText, _EntryRecord] | None
)


def entries(directory: ClusterDirectory) -> dict[str, QuarantineEntry]:
    """Every recorded entry, those that have run out too.

    Raises ClusterctlError (``quarantine.unreadable``) for a file that is not a record of ours.
    """
    try:
        records = read_yaml(directory.quarantine_file, _FORM) or {}
    except FileNotFoundError:
        return {}
    except PermissionError:
        with state_access():
            raise
    except (UnusableFileError, OSError) as error:
        raise _unreadable(directory, describe_unusable(error)) from error
    return {node: QuarantineEntry(node, **record.model_dump()) for node, record in records.items()}


def active(directory: ClusterDirectory, today: date | None = None) -> dict[str, QuarantineEntry]:
    """The hosts that are out today (UTC)."""
    day = today or datetime.now(UTC).date()
    return {node: entry for node, entry in entries(directory).items() if entry.holds(day)}


def put(directory: ClusterDirectory, node: str, reason: str, until: str = "") -> QuarantineEntry:
    """Take a host out, or change why. ``until`` is YYYY-MM-DD, today or later, or empty.

    Raises ClusterctlError (``quarantine.reason``, ``quarantine.until``).
    """
    if not reason.strip():
        raise ClusterctlError(
            "a quarantine needs a reason",
            code="quarantine.reason",
            where=node,
            hint='Give one: --reason "..."',
        )
    now = datetime.now(UTC)
    entry = QuarantineEntry(node, reason.strip(), operator(), now.strftime("%Y-%m-%dT%H:%M:%SZ"), until)
    try:
        in_time = entry.holds(now.date())
    except ValueError:
        in_time = False
    if not in_time:
        raise ClusterctlError(
            f"--until {until} is not a day to come",
            code="quarantine.until",
            where=node,
            hint=f"Write the last day as YYYY-MM-DD, {now.date()} or later.",
        )
    with locked(directory):
        _save(directory, {**entries(directory), node: entry})
    return entry


def release(directory: ClusterDirectory, node: str) -> QuarantineEntry | None:
    """End a host's quarantine. Returns what its entry was, or None if there was none."""
    with locked(directory):
        known = entries(directory)
        entry = known.pop(node, None)
        if entry is not None:
            _save(directory, known)
    return entry


def user() -> str:
    """The person's own name, behind sudo too; the number of one whom the machine's database does not know."""
    try:
        return os.environ.get("SUDO_USER") or getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


def operator() -> str:
    """Who works here: user@controller."""
    return f"{user()}@{os.uname().nodename}"


def _save(directory: ClusterDirectory, known: Mapping[str, QuarantineEntry]) -> None:
    records: dict[str, dict[str, Any]] = {}
    for node, entry in sorted(known.items()):
        record = asdict(entry)
        del record["node"]
        records[node] = {key: value for key, value in record.items() if value}
    text = yaml.safe_dump(records, sort_keys=False, allow_unicode=True) if records else ""
    replace_file(directory.quarantine_file, "# Written by: clusterctl hosts quarantine | release\n" + text)


def _unreadable(directory: ClusterDirectory, because: str) -> ClusterctlError:
    return ClusterctlError(
        f"the quarantine record cannot be read: {because}",
        code="quarantine.unreadable",
        where=str(directory.quarantine_file),
        hint="Fix that file, or remove it and quarantine the hosts again.",
    )
