"""Which leases runs of this cluster directory have asked for, and have not seen released.

Written before a node is asked: a run that dies leaves its entry, and the next one gives the nodes back.
Read and written by who holds the mutex.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter

from clusterctl import console
from clusterctl.cluster.bounded_file import UnusableFileError, is_there
from clusterctl.cluster.directory import ClusterDirectory, state_access
from clusterctl.cluster.record import Record
from clusterctl.cluster.state_files import replace_file
from clusterctl.cluster.state_reading import read_json
from clusterctl.engine.lease import Lease, comes_from, from_record

FILE = "leases.json"


@dataclass(frozen=True)
class LeaseEntry:
    """One run's lease, and the nodes that may hold it."""

    lease: Lease
    hosts: tuple[str, ...]


class _LeaseRecord(Record):
    lease: dict[str, Any]
    hosts: tuple[str, ...]


_FORM = TypeAdapter(tuple[_LeaseRecord, ...])


def entries(directory: ClusterDirectory) -> list[LeaseEntry]:
    """What is open, the oldest first. Entries that came here with a copy of the directory are not ours.

    Raises ClusterctlError (``cluster.state-*``) where it is not known whether there is a record.
    """
    path = directory.state / FILE
    try:
        with state_access():
            if not is_there(path):
                return []
            records = read_json(path, _FORM)
    except UnusableFileError as error:
        # Nothing is lost with it but comfort: a lease that nobody remembers is freed by `leases release`.
        console.say(f"the record of leases is not used: {path} {error}")
        return []
    found = [LeaseEntry(from_record(one.lease), one.hosts) for one in records]
    return [entry for entry in found if comes_from(entry.lease, directory)]


def note(directory: ClusterDirectory, lease: Lease, hosts: Iterable[str]) -> None:
    """Nodes that may hold a lease from now on; none takes the lease out. On the disk when this returns."""
    kept = [entry for entry in entries(directory) if entry.lease.run != lease.run]
    left = tuple(hosts)
    kept += [LeaseEntry(lease, left)] if left else []
    records = [{"lease": entry.lease.as_record(), "hosts": entry.hosts} for entry in kept]
    replace_file(directory.state / FILE, json.dumps(records, indent=2) + "\n")
