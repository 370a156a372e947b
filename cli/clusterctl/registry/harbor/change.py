"""One thing that differs, what would be done about it, and what became of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from clustercheck.parse.plain_text import plain_text

# Values of fields that say nothing of an object that is to be made.
NOTHING: tuple[object, ...] = (False, "", [])
# A kind and a name: how objects are distinguished, and what one waits for.
Subject = tuple[str, str]


class Action(StrEnum):
    """What is done to an object."""

    CREATE = "create"
    UPDATE = "update"
    DELETE = "delete"


class ChangeState(StrEnum):
    """What became of a change."""

    DONE = "done"
    DEFERRED = "deferred"
    FAILED = "failed"


@dataclass(frozen=True)
class FieldDifference:
    """One field: as it is, and as it is declared."""

    field: str
    before: Any
    after: Any

    def as_text(self) -> str:
        """In a line."""
        return f"{self.field}: {shown(self.before)} -> {shown(self.after)}"


@dataclass(frozen=True)
class HarborChange:
    """What ``act`` does to one object. It may raise Refused, Deferred or ClusterctlError."""

    kind: str
    name: str
    action: Action
    act: Callable[[], None] = field(repr=False, compare=False)
    differences: tuple[FieldDifference, ...] = ()
    needs: tuple[Subject, ...] = ()

    @property
    def subject(self) -> Subject:
        """Which object it is."""
        return (self.kind, self.name)

    def as_record(self) -> dict[str, Any]:
        """For --json."""
        return {
            "type": "change",
            "kind": self.kind,
            "name": self.name,
            "action": self.action.value,
            "differences": [
                {"field": one.field, "before": _plain(one.before), "after": _plain(one.after)}
                for one in self.differences
            ],
        }


@dataclass(frozen=True)
class Remark:
    """What a person should know of an object that is not changed: unknown, cannot be changed, expires."""

    kind: str
    name: str
    why: str
    # It keeps Harbor from becoming what is declared.
    blocks: bool = False

    def as_record(self) -> dict[str, Any]:
        """For --json."""
        return {
            "type": "remark",
            "kind": self.kind,
            "name": self.name,
            "why": self.why,
            "blocks": self.blocks,
        }


@dataclass(frozen=True)
class ChangeOutcome:
    """What became of one change, and why."""

    change: HarborChange
    state: ChangeState
    why: str = ""

    def as_record(self) -> dict[str, Any]:
        """For --json."""
        return {**self.change.as_record(), "type": "outcome", "state": self.state.value, "why": self.why}


class Deferred(Exception):
    """It cannot be done now, and nothing is wrong with what is declared."""


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[FieldDifference, ...]:
    """The fields of ``after`` that are otherwise in ``before``."""
    return tuple(
        FieldDifference(name, before.get(name), value)
        for name, value in after.items()
        if before.get(name) != value
    )


def creation(after: Mapping[str, Any]) -> tuple[FieldDifference, ...]:
    """The fields of an object that is not there yet; those that say nothing are left out."""
    return tuple(FieldDifference(name, None, value) for name, value in after.items() if value not in NOTHING)


def _plain(value: Any) -> Any:
    """For JSON, which knows no sets."""
    return sorted(value) if isinstance(value, set | frozenset) else value


def shown(value: Any) -> str:
    """A value in a line."""
    if isinstance(value, list | tuple | set | frozenset):
        items = sorted(map(shown, value)) if isinstance(value, set | frozenset) else map(shown, value)
        return f"[{', '.join(items)}]"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value in (None, ""):
        return "none"
    return plain_text(str(value))
