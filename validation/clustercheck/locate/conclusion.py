"""Turns what fault isolation measured into its result."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from clustercheck.locate.faults import MAX_NAMED_NODES, IsolationResult, LocatedFault
from clustercheck.locate.isolation_state import IsolationState
from clustercheck.locate.pair_stages import MIN_LINK_MEASURES
from clustercheck.parse.plain_text import some_of

TWO_NODES = "only two nodes were measured; either may be slow"
ALL_SLOW = "every pair is slow; any of the nodes may be the cause"
ALL_FAST = "every pair is fast; only the whole group is slow"
NOT_MEASURED = "no pair could be measured"
RIVAL_GROUPS = (
    "the nodes form groups that are fast internally and slow with each other; check what connects them"
)


def conclude(state: IsolationState, stop_reason: str = "") -> IsolationResult:
    """The faults that the measurements show. ``stop_reason`` says why the search stopped early."""
    faults = _find_faults(state, stop_reason)
    if stop_reason:
        faults = [_add_reason(fault, stop_reason) for fault in faults]
    return IsolationResult(tuple(faults), stop_reason or _explain_no_fault(state))


def _add_reason(fault: LocatedFault, reason: str) -> LocatedFault:
    if fault.sure or reason in fault.because:
        return fault
    return replace(fault, because=f"{fault.because}; {reason}")


def _explain_no_fault(state: IsolationState) -> str:
    measurements = state.measurements
    if state.faults or measurements.pairs(bad=True) or state.nodes_near_limit():
        return ""
    return ALL_FAST if measurements.pairs(bad=False) else NOT_MEASURED


def _find_faults(state: IsolationState, stop_reason: str) -> list[LocatedFault]:
    nodes, measurements = state.layout.nodes, state.measurements
    if len(nodes) < 2 or (state.faults and not state.core_nodes()):
        return state.faults
    if not (measurements.pairs(bad=True) or measurements.pairs(bad=False)):
        return [LocatedFault("node", nodes, stop_reason or NOT_MEASURED, sure=False)]
    if not state.core_nodes():
        return [LocatedFault("node", nodes, TWO_NODES if len(nodes) == 2 else ALL_SLOW, sure=False)]
    if state.has_rival_group():
        return [LocatedFault("switch", nodes, RIVAL_GROUPS, sure=False)]
    return [
        *state.faults,
        *_find_node_faults(state),
        *_find_link_faults(state),
        *_find_switch_faults(state),
        *_find_nodes_near_limit(state),
    ]


def _find_node_faults(state: IsolationState) -> list[LocatedFault]:
    found = []
    explained = {node for members in state.find_bad_blocks().values() for node in members}
    for component in state.outer_components():
        if explained.issuperset(component):
            continue
        if len(component) > 1:
            because = "fast with each other, slow with all others; check what they share"
            because = f"{_format_nodes(component)}: {because}"
            found.append(LocatedFault("switch", tuple(component), because, sure=False))
        elif not state.is_decided(component):
            because = "not measured with two known-good nodes"
            found.append(LocatedFault("node", tuple(component), because, sure=False))
        else:
            found += state.bad_parts.get(component[0]) or [_make_node_fault(state, component[0])]
    return list({fault.place: fault for fault in found}.values())


def _format_nodes(nodes: Sequence[str]) -> str:
    return some_of(nodes, MAX_NAMED_NODES)


def _make_node_fault(state: IsolationState, node: str) -> LocatedFault:
    slow = [trial for trial in state.measurements.pairs(bad=True) if node in trial.nodes]
    partners = sorted({other for trial in slow for other in trial.nodes} - {node})
    return LocatedFault("node", (node,), f"slow with every partner ({', '.join(partners)})")


def _find_link_faults(state: IsolationState) -> list[LocatedFault]:
    """Slow pairs of the core. A node in several of them that is fast with others is left undecided."""
    found = []
    links = state.slow_links()
    near = set(state.nodes_near_limit())
    ends = Counter(node for trial in links for node in trial.nodes)
    for node, count in sorted(ends.items()):
        if count > 1:
            because = f"slow with {count} nodes, fast with others: close to the limit, or {count} bad links"
            found.append(LocatedFault("node", (node,), because, sure=False))
    for trial in links:
        a, b = trial.pair
        if ends[a] > 1 or ends[b] > 1 or not near.isdisjoint(trial.nodes):
            continue
        because = f"only the pair {a} and {b} is slow; each is fast with others"
        if not state.has_working_uplinks(trial):
            because = f"the pair {a} and {b} is slow: their link, or the uplinks between their switches"
            found.append(LocatedFault("link", (a, b), because, sure=False))
            continue
        sure = state.measurements.count_measures(trial) >= MIN_LINK_MEASURES
        because += "" if sure else "; too few measurements to confirm"
        found.append(LocatedFault("link", (a, b), because, sure=sure))
    return found


def _find_nodes_near_limit(state: IsolationState) -> list[LocatedFault]:
    """Nodes of which no pair is clearly fast and not every pair is slow; they may slow down the group."""
    because = "slower than most pairs with every node, but too close to the limit to decide"
    return [LocatedFault("node", (node,), because, sure=False) for node in state.nodes_near_limit()]


def _find_switch_faults(state: IsolationState) -> list[LocatedFault]:
    found = []
    for block, members in state.find_bad_blocks().items():
        sure = all(
            state.is_decided(component)
            for component in state.outer_components()
            if not set(component).isdisjoint(members)
        )
        because = f"all {len(members)} nodes of the block are slow with nodes of other blocks"
        found.append(LocatedFault("switch", tuple(members), because, block=block, sure=sure))
    return found
