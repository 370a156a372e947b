"""The stack of each kind resolved: what is decided, and for what cannot be, why and what would solve it."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from clusterctl.cluster.compat_rows import VARIABLES, Compatibility
from clusterctl.cluster.lock import LockedStack
from clusterctl.cluster.resolver import (
    NONE,
    CompatibilityRow,
    conflicts,
    decided,
    possible_values,
    solve_preferred,
)
from clusterctl.engine.wording import format_hosts
from clusterctl.stack.kinds import IMAGE, NODES, NodeKind, declare

HARDWARE = ("hardware_profile", "hardware_gpu_model")
# What another image must be, where no list of values says it.
OTHER_IMAGE = {
    "driver": "take a training image that the driver runs",
    "capabilities": "take a training image that is built for these GPUs",
}
WARN_AHEAD = datetime.timedelta(days=90)


@dataclass(frozen=True)
class Conflict:
    """Rows that cannot all hold, none of which could be omitted, and what would solve it."""

    hosts: tuple[str, ...]
    rows: tuple[CompatibilityRow, ...]
    remedies: tuple[str, ...]
    code: str = "lock.conflict"

    @property
    def what(self) -> str:
        """One sentence."""
        reasons = "; ".join(row.reason for row in self.rows)
        return f"{format_hosts(self.hosts)}: these do not fit together: {reasons}"


@dataclass(frozen=True)
class Resolution:
    """A kind with its stack. ``assignment`` satisfies every row; ``values`` are those that are decided.

    Both are empty if there are conflicts.
    """

    kind: NodeKind
    assignment: Mapping[str, str]
    values: Mapping[str, str]
    conflicts: tuple[Conflict, ...] = ()

    @property
    def unknown(self) -> tuple[str, ...]:
        """The variables that neither settings nor nodes decide."""
        return tuple(name for name in self.assignment if name not in self.values)


def resolve(kinds: Sequence[NodeKind], data: Compatibility) -> list[Resolution]:
    """Resolves each kind by itself; how many hosts one has does not matter."""
    return [_resolve(kind, data) for kind in kinds]


def stacks_of(resolutions: Sequence[Resolution]) -> tuple[LockedStack, ...]:
    """What the lock keeps: decided values of the kinds without conflict, without what is not there."""
    return tuple(
        LockedStack(
            hosts=one.kind.hosts, values={name: text for name, text in one.values.items() if text != NONE}
        )
        for one in resolutions
        if not one.conflicts
    )


def support_warnings(
    resolutions: Sequence[Resolution], data: Compatibility, today: datetime.date
) -> list[str]:
    """A sentence for each driver branch whose support has ended or ends soon, with its date."""
    hosts: dict[str, list[str]] = {}
    for one in resolutions:
        driver = one.kind.values.get("driver", "")
        hosts.setdefault(driver.partition(".")[0], []).extend(one.kind.hosts)
    found = []
    for name, named in hosts.items():
        branch = data.branches.get(name)
        if branch is None:
            continue
        end = datetime.date.fromisoformat(branch.end) if branch.end else None
        if branch.ended or (end is not None and end < today):
            when = f"ended on {branch.end}" if branch.end else "has ended"
        elif end is not None and end - today <= WARN_AHEAD:
            when = f"ends on {branch.end}"
        else:
            continue
        found.append(
            f"{format_hosts(named)}: support of driver branch {name} {when} ({data.branches_source}); "
            f"recommended: {data.recommended_branch}"
        )
    return found


def _resolve(kind: NodeKind, data: Compatibility) -> Resolution:
    domains, rows = _domains(kind, data), (*data.rows, *kind.declared)
    assignment = solve_preferred(domains, rows)
    if assignment is not None:
        return Resolution(kind, assignment, decided(domains, rows, assignment))
    found = conflicts(domains, rows)
    explained = []
    for conflict in found:
        others = {id(row) for other in found if other is not conflict for row in other if not row.origin}
        rest = [row for row in rows if id(row) not in others]
        explained.append(Conflict(kind.hosts, conflict, _remedies(conflict, domains, rest, data)))
    return Resolution(kind, {}, {}, tuple(explained))


def _domains(kind: NodeKind, data: Compatibility) -> dict[str, tuple[str, ...]]:
    """The known values, and those that this kind has."""
    domains = dict(data.domains)
    for name, value in kind.values.items():
        for each in (name, "fabric_manager") if name == "driver" else (name,):
            domains[each] = tuple(dict.fromkeys((*domains[each], value)))
    return domains


def _remedies(
    conflict: Sequence[CompatibilityRow],
    domains: Mapping[str, tuple[str, ...]],
    rows: Sequence[CompatibilityRow],
    data: Compatibility,
) -> tuple[str, ...]:
    """Each single setting, or the image, with the values that would solve the conflict."""
    found = []
    for row in conflict:
        name, condition = row.needs[0]
        if not row.origin or row.origin in HARDWARE or name in ("gpu", "image_requires"):
            continue
        if row.origin == IMAGE:  # another image is another in all that it contains
            relaxed = [other for other in rows if other.origin != IMAGE]
            relaxed.append(declare("image_requires", NONE, IMAGE, "", ""))
        else:
            relaxed = [other for other in rows if other is not row]
        possible = possible_values(domains, relaxed, name)
        values = [value for value in possible if value not in (condition, NONE)]
        listed = " or ".join(data.describe(name, value) for value in values)
        if row.origin == IMAGE and possible:
            found.append(OTHER_IMAGE.get(name) or f"take a training image with {VARIABLES[name]} {listed}")
        elif name == "fabric_manager" and row.origin != NODES and possible:
            found.append(f"set {row.origin}: auto")
        elif values:
            verb = f"bring {VARIABLES[name]} to" if row.origin == NODES else f"set {row.origin}:"
            found.append(f"{verb} {listed}")
    return tuple(dict.fromkeys(found))
