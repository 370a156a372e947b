"""The exclusions that hosts' settings declare, for validation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import date
from typing import Any

from clustercheck.spec import Exclusion
from clusterctl.errors import ClusterctlError


def exclusions(declared: Mapping[str, Any]) -> tuple[Exclusion, ...]:
    """Every entry once, from what each host's ``validation_exclusions`` says.

    Raises ClusterctlError (``inventory.exclusions``) where a template makes one something else.
    """
    found: dict[Exclusion, None] = {}
    for host, entries in declared.items():
        try:
            found.update(dict.fromkeys(_read(entries or [])))
        except (TypeError, ValueError, KeyError, AttributeError, OverflowError):
            raise ClusterctlError(
                f"validation_exclusions of {host} is not a list of exclusions: {entries!r}",
                code="inventory.exclusions",
                where=host,
                hint="Each names check, node, who, why and until (YYYY-MM-DD), and gpu if it concerns one.",
            ) from None
    return tuple(found)


def _read(entries: Iterable[Mapping[str, Any]]) -> list[Exclusion]:
    return [
        Exclusion(
            check=str(entry["check"]),
            node=str(entry["node"]),
            who=str(entry["who"]),
            why=str(entry["why"]),
            until=date.fromisoformat(str(entry["until"])),
            gpu=None if entry.get("gpu") in (None, "") else int(entry["gpu"]),
        )
        for entry in entries
    ]
