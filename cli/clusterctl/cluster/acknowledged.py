"""Kernel messages that the operator has seen to, by node: from when on new ones count."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

import yaml
from pydantic import TypeAdapter, field_validator

from clusterctl.cluster.bounded_file import UnusableFileError, describe_unusable
from clusterctl.cluster.directory import ClusterDirectory
from clusterctl.cluster.quarantine import operator
from clusterctl.cluster.record import Record
from clusterctl.cluster.state_files import locked, replace_file
from clusterctl.cluster.state_reading import WrittenText, read_yaml
from clusterctl.errors import ClusterctlError


def times(directory: ClusterDirectory) -> dict[str, datetime]:
    """When each node was acknowledged last. Raises ClusterctlError (``validate.acknowledged-unreadable``)."""
    return {node: _moment(entry.since) for node, entry in _entries(directory).items()}


def acknowledge(directory: ClusterDirectory, nodes: Iterable[str]) -> datetime:
    """What the kernel said on these nodes until now is seen to; returns the time, in UTC."""
    now = datetime.now(UTC).replace(microsecond=0)
    entry = _AcknowledgedNode(since=now.isoformat(), by=operator())
    with locked(directory):
        known = {**_entries(directory), **dict.fromkeys(nodes, entry)}
        records = {node: one.model_dump() for node, one in known.items()}
        text = yaml.safe_dump(records, sort_keys=True, allow_unicode=True)
        replace_file(directory.acknowledged_file, f"# Written by: clusterctl validate --acknowledge\n{text}")
    return now


def _moment(text: str) -> datetime:
    when = datetime.fromisoformat(text)
    if when.tzinfo is None:
        raise ValueError(f"{text} is a time without its zone")
    return when


class _AcknowledgedNode(Record):
    since: WrittenText
    by: WrittenText = ""

    @field_validator("since")
    @classmethod
    def _with_zone(cls, since: str) -> str:
        _moment(since)
        return since


_FORM: TypeAdapter[dict[WrittenText, _AcknowledgedNode] | None] = TypeAdapter(
    dict[WrittenText, _AcknowledgedNode] | None
)


def _entries(directory: ClusterDirectory) -> dict[str, _AcknowledgedNode]:
    try:
        return read_yaml(directory.acknowledged_file, _FORM) or {}
    except FileNotFoundError:
        return {}
    except (UnusableFileError, OSError) as error:
        raise ClusterctlError(
            f"the record of acknowledged messages cannot be read: {describe_unusable(error)}",
            code="validate.acknowledged-unreadable",
            where=str(directory.acknowledged_file),
            hint="Fix that file, or remove it and acknowledge again.",
        ) from error
