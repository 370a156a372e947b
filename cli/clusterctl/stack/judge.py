"""The interface of this room: the stacks of a cluster, resolved and compared with the lock."""

from __future__ import annotations

import datetime
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from clusterctl.cluster import lock as lock_file
from clusterctl.cluster.compat_rows import compatibility
from clusterctl.cluster.inventory import Inventory
from clusterctl.cluster.lock import Lock
from clusterctl.cluster.settings.declared_at import declared_at
from clusterctl.errors import ExplainedError
from clusterctl.registry.images.declared import TRAINING
from clusterctl.stack.drift import StackDifference, differences
from clusterctl.stack.facts import NodeFacts, of_environment
from clusterctl.stack.kinds import NODES, installed_kinds, kinds_of
from clusterctl.stack.resolution import Conflict, Resolution, resolve, support_warnings

T = TypeVar("T", Conflict, StackDifference)


@dataclass(frozen=True)
class StackReport:
    """Each kind's stack, what does not fit together, what differs from the lock, and what support ends."""

    resolutions: tuple[Resolution, ...]
    conflicts: tuple[Conflict, ...]
    differences: tuple[StackDifference, ...]
    warnings: tuple[str, ...]

    @property
    def sentences(self) -> list[str]:
        """Conflicts and differences, one sentence each."""
        return [*(one.what for one in self.conflicts), *(one.text for one in self.differences)]

    def of_host(self, host: str) -> list[str]:
        """Those of one host."""
        return self.limited_to((host,)).sentences

    def limited_to(self, hosts: Container[str]) -> StackReport:
        """Conflicts and differences of some hosts, without the other hosts of each."""
        return replace(
            self,
            conflicts=tuple(_limited(self.conflicts, hosts)),
            differences=tuple(_limited(self.differences, hosts)),
        )


def judge_stacks(
    inventory: Inventory, lock: Lock, facts: Mapping[str, NodeFacts], *, locked: Lock | None = None
) -> StackReport:
    """Resolves the stacks by the images of ``lock``, and compares them with those of ``locked``.

    ``locked`` is ``lock`` itself if it is not given. Raises ClusterctlError for a template that cannot be
    evaluated.
    """
    data = compatibility()
    kinds = kinds_of(inventory, lock.image(TRAINING), facts, data)
    resolutions = resolve(kinds, data)
    found = [conflict for one in resolutions for conflict in one.conflicts]
    for one in resolve(installed_kinds(kinds, facts), data):
        found += [conflict for conflict in one.conflicts if _is_of_installed(conflict)]
    return StackReport(
        tuple(resolutions),
        tuple(_located(conflict, inventory) for conflict in found),
        tuple(
            differences((locked or lock).stacks, resolutions, facts, {host.name for host in inventory.hosts})
        ),
        tuple(support_warnings(resolutions, data, datetime.datetime.now(datetime.UTC).date())),
    )


def locked_environment(
    inventory: Inventory, lock: Lock | None, environment: Mapping[str, Any], run: str
) -> dict[str, Any]:
    """What a result document's environment says of the lock, and its notes with what differs from it.

    Only the nodes that the validation saw are compared. Never raises: what was judged is not lost over it.
    """
    if lock is None:
        return {"lock": None}
    facts = of_environment(environment, f"validation {run}")
    summary, notes = lock_file.summary(lock), list(environment.get("notes", ()))
    try:
        found = judge_stacks(inventory, lock, facts).limited_to(facts)
    except ExplainedError as error:
        notes.append(f"the nodes were not compared with {lock_file.NAME}: {error.what}")
        return {"lock": summary, "notes": notes}
    drift = [one.as_json() for one in found.differences]
    return {"lock": {**summary, "drift": drift}, "notes": [*notes, *found.sentences]}


def _limited(found: Iterable[T], hosts: Container[str]) -> Iterator[T]:
    for one in found:
        if named := tuple(host for host in one.hosts if host in hosts):
            yield replace(one, hosts=named)


def _is_of_installed(conflict: Conflict) -> bool:
    """Whether it is due to what is installed: everything else is a conflict of the settings already."""
    return any(
        row.origin == NODES and row.needs[0][0] in ("driver", "fabric_manager") for row in conflict.rows
    )


def _located(conflict: Conflict, inventory: Inventory) -> Conflict:
    """The same with the files and lines of its settings."""
    host = inventory.host(conflict.hosts[0])
    origins = {row.origin for row in conflict.rows if row.origin in host.variables}
    where = {origin: declared_at(inventory.directory, host, origin) for origin in origins}
    rows = tuple(replace(row, source=where.get(row.origin) or row.source) for row in conflict.rows)
    return replace(conflict, rows=rows)
