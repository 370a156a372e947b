"""The stage for a group that is slow while all its pairs are fast: it measures ever smaller groups."""

from __future__ import annotations

from clustercheck.locate.faults import LocatedFault
from clustercheck.locate.isolation_state import IsolationState, Stage
from clustercheck.locate.trials import Trial

MIN_GROUP = 3  # nodes
EVERY_GROUP = "every measured group is slow, every pair is fast; any of the nodes may be the cause"
MAX_GROUP = 8  # nodes: members of a larger slow group are not measured one by one


def bisect_slow_groups(state: IsolationState) -> Stage:
    """Halves slow groups until both halves are fast, then measures each member of the smallest ones."""
    slow, smallest = [list(state.layout.nodes)], list[list[str]]()
    while slow:
        halves = {tuple(group): _split_group(group) for group in slow}
        trials = [Trial(tuple(half)) for pair in halves.values() for half in pair]
        yield trials
        yield [trial for trial in trials if state.measurements.is_bad(trial)]
        slow = []
        for whole, pair in halves.items():
            bad = [half for half in pair if state.measurements.is_bad(Trial(tuple(half)))]
            slow += bad
            if not bad:
                smallest.append(list(whole))
    suspected = {node for group in smallest for node in group}
    others = [node for node in state.layout.nodes if node not in suspected]
    for group in smallest:
        if not MIN_GROUP <= len(group) <= MAX_GROUP:
            continue
        if len(others) >= len(group) - 1:
            yield from _measure_among_others(state, group, others)
        else:
            yield from _measure_without_each(state, group)


def _split_group(group: list[str]) -> list[list[str]]:
    middle = len(group) // 2
    return [half for half in (group[:middle], group[middle:]) if len(half) >= MIN_GROUP]


def _measure_among_others(state: IsolationState, group: list[str], others: list[str]) -> Stage:
    """Measures each member in a group of the same size with other nodes; if slow there too, it is faulty."""
    size, count = len(group) - 1, len(others)
    trials = {
        node: Trial((node, *(others[(n * size + k) % count] for k in range(size))))
        for n, node in enumerate(group)
    }
    yield list(trials.values())
    yield [trial for trial in trials.values() if state.measurements.is_bad(trial)] * 2
    because = f"slow in every group of {len(group)} nodes, fast in pairs"
    bad = [node for node, trial in trials.items() if state.measurements.is_bad(trial)]
    if len(bad) < len(group):
        state.faults += [LocatedFault("node", (node,), because) for node in bad]
    else:
        state.faults.append(LocatedFault("node", tuple(group), EVERY_GROUP, sure=False))


def _measure_without_each(state: IsolationState, group: list[str]) -> Stage:
    """Measures the group without each member; the member without which it is fast is faulty."""
    without = {node: Trial(tuple(other for other in group if other != node)) for node in group}
    if len(group) <= MIN_GROUP:
        return
    yield list(without.values())
    yield [trial for trial in without.values() if state.measurements.is_bad(trial)]
    good = [node for node, trial in without.items() if not state.measurements.is_bad(trial)]
    if len(good) == 1 and all(state.measurements.count_measures(trial) for trial in without.values()):
        because = "the group is fast without this node and slow without any other"
        state.faults.append(LocatedFault("node", (good[0],), because))
