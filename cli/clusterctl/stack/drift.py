"""In what the lock differs from what settings, compatibility data and nodes say now."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from clusterctl.cluster.compat_rows import VARIABLES
from clusterctl.cluster.compatibility import version
from clusterctl.cluster.lock import LockedStack
from clusterctl.cluster.resolver import NONE
from clusterctl.engine.wording import format_hosts
from clusterctl.stack.facts import NodeFacts
from clusterctl.stack.resolution import Resolution

PRESENCE = "host"


@dataclass(frozen=True)
class StackDifference:
    """One property that is another than locked, on these hosts; ``because`` says who says so."""

    variable: str
    locked: str
    now: str
    because: str
    hosts: tuple[str, ...]

    @property
    def text(self) -> str:
        """``gpu01-gpu04: driver 580 is locked, now 595 (nvidia_driver_branch is 595)``."""
        if self.variable == PRESENCE:
            return f"{format_hosts(self.hosts)}: {self.because}"
        name = VARIABLES[self.variable]
        return (
            f"{format_hosts(self.hosts)}: {name} {self.locked or NONE} is locked, "
            f"now {self.now or NONE} ({self.because})"
        )

    def as_json(self) -> dict[str, Any]:
        """For the result document."""
        return {
            "variable": self.variable, "locked": self.locked, "now": self.now, "because": self.because,
            "hosts": list(self.hosts),
        }  # fmt: skip


def differences(
    locked: Sequence[LockedStack],
    resolutions: Sequence[Resolution],
    facts: Mapping[str, NodeFacts],
    declared: Container[str],
) -> list[StackDifference]:
    """What is another now, hosts alike together; ``declared`` are all hosts of the cluster.

    What is unknown now, or was when locked, is none. Hosts of a kind in conflict are compared by what is
    declared of them. A lock without stacks is an older version's, or that of a cluster without GPU nodes,
    and differs in nothing.
    """
    if not locked:
        return []
    then = {host: stack.values for stack in locked for host in stack.hosts}
    together: dict[tuple[str, str, str, str], list[str]] = {}
    for one in resolutions:
        now = one.values or one.kind.values
        because = {row.needs[0][0]: row.reason for row in reversed(one.kind.declared)}
        for host in one.kind.hosts:
            before = then.get(host)
            if before is None and one.conflicts:
                continue  # nothing can be locked for it, which is told already
            if before is None:
                together.setdefault((PRESENCE, "", "", "not in the lock"), []).append(host)
                continue
            seen = facts.get(host, NodeFacts())
            changed = [*_of_settings(before, now, because), *_of_node(before, now, seen)]
            for key in changed:
                together.setdefault(key, []).append(host)
    if gone := [host for host in then if host not in declared]:
        together[PRESENCE, "", "", "in the lock, and no longer declared"] = gone
    return [StackDifference(*key, tuple(hosts)) for key, hosts in together.items()]


def _of_settings(
    before: Mapping[str, str], now: Mapping[str, str], because: Mapping[str, str]
) -> list[tuple[str, str, str, str]]:
    """Both must say something: a value that nobody decided then is no drift."""
    found = []
    for name in VARIABLES:
        old, new = before.get(name, ""), now.get(name, "")
        if new and (old or _is_added(name, new)) and (old or NONE) != new:
            found.append((name, old, new, because.get(name, "by the compatibility data")))
    return found


def _is_added(name: str, new: str) -> bool:
    """Whether a value that the lock does not have was not there then: the image's contents always are."""
    return new != NONE and name in ("cuda", "cudnn", "nccl", "capabilities", "paddle", "fabric_manager")


def _of_node(
    before: Mapping[str, str], now: Mapping[str, str], seen: NodeFacts
) -> list[tuple[str, str, str, str]]:
    """What the node has, where the lock has another version or branch, or another engine."""
    found = []
    for name, has, how in (
        ("driver", seen.driver, "loaded"),
        ("toolkit", seen.toolkit, "installed"),
        ("docker", seen.docker, "installed"),
        ("containerd", seen.containerd, "installed"),
    ):
        locked = before.get(name, "")
        # A value that no setting pins is the node's own now, and compared already.
        if locked and has and has != now.get(name) and not _is_of(has, locked):
            found.append((name, locked, has, f"{how}: {seen.seen_by}"))
    if before.get("engine") == "containerd" and seen.docker:
        found.append(("engine", "containerd", "docker", f"Docker {seen.docker} runs: {seen.seen_by}"))
    return found


def _is_of(found: str, locked: str) -> bool:
    """Whether a version is the locked one, or one of the locked branch."""
    numbers = version(locked)
    return found == locked or (bool(numbers) and version(found)[: len(numbers)] == numbers)
