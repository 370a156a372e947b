"""Whether the next wave may start: pure, from how hosts left a wave to go or stop."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from clusterctl.engine.ledger import HostState

# What a host may have become for the next wave to start. All else, known or not, stops.
PASSABLE = frozenset({HostState.GOOD, HostState.BUSY, HostState.UNTOUCHED})
WORDS = {
    HostState.FAILED: "failed",
    HostState.UNREACHABLE: "could not be reached",
    HostState.SILENT: "fell silent",
    HostState.INTERRUPTED: "was interrupted",
}


@dataclass(frozen=True)
class Decision:
    """``go`` with no reason, or stop with one."""

    go: bool
    reason: str = ""


def decide(
    expected: tuple[str, ...], states: Mapping[str, HostState], reasons: Mapping[str, str] | None = None
) -> Decision:
    """Stop where a host is not known to be well: a host without a state counts as silent.

    A silent host is named with its reason: no task's own words stand for it anywhere else.
    """
    bad: dict[HostState, list[str]] = {}
    for host in expected:
        state = states.get(host, HostState.SILENT)
        if state not in PASSABLE:
            bad.setdefault(state, []).append(host)
    if not bad:
        return Decision(go=True)
    parts = [f"{', '.join(hosts)} {WORDS.get(state, state.value)}" for state, hosts in bad.items()]
    record = {host: (reasons or {}).get(host, "") for host in bad.get(HostState.SILENT, [])}
    parts += [f"{host}: {reason}" for host, reason in record.items() if reason]
    return Decision(go=False, reason="; ".join(parts))
