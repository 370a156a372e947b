"""Kernel messages that the operator has seen to, by node: from when on new ones count."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

import yaml

from clusterctl.cluster.directory import ClusterDirectory
from clusterctl.cluster.quarantine import operator
from clusterctl.cluster.state_files import locked, replace_file
from clusterctl.errors import ClusterctlError


def times(directory: ClusterDirectory) -> dict[str, datetime]:
    """When each node was acknowledged last. Raises ClusterctlError (``validate.acknowledged-unreadable``)."""
    return {node: _moment(entry["since"]) for node, entry in _entries(directory).items()}


def acknowledge(directory: ClusterDirectory, nodes: Iterable[str]) -> datetime:
    """What the kernel said on these nodes until now is seen to; returns the time, in UTC."""
    now = datetime.now(UTC).replace(microsecond=0)
    entry = {"since": now.isoformat(), "by": operator()}
    with locked(directory):
        known = {**_entries(directory), **dict.fromkeys(nodes, entry)}
        text = yaml.safe_dump(known, sort_keys=True, allow_unicode=True)
        replace_file(directory.acknowledged_file, f"# Written by: clusterctl validate --acknowledge\n{text}")
    return now


def _moment(text: str) -> datetime:
    when = datetime.fromisoformat(text)
    if when.tzinfo is None:
        raise ValueError(f"{text} is a time without its zone")
    return when


def _entries(directory: ClusterDirectory) -> dict[str, dict[str, str]]:
    try:
        known = yaml.safe_load(directory.acknowledged_file.read_text(encoding="utf-8")) or {}
        found = {
            str(node): {key: str(value) for key, value in entry.items()} for node, entry in known.items()
        }
        for entry in found.values():
            _moment(entry["since"])
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, AttributeError, yaml.YAMLError) as error:
        raise ClusterctlError(
            f"the record of acknowledged messages cannot be read: {' '.join(str(error).split())}",
            code="validate.acknowledged-unreadable",
            where=str(directory.acknowledged_file),
            hint="Fix that file, or remove it and acknowledge again.",
        ) from error
    return found
