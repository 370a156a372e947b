"""The stage for a group that is slow though all its pairs are fast: smaller and smaller groups."""

from __future__ import annotations

from clustercheck.locate.case import Case, Stage
from clustercheck.locate.located import Named
from clustercheck.locate.trials import Trial

SMALLEST = 3  # nodes: what is fewer is a pair
EVERY_GROUP = "every measured group is slow, every pair is fast; any of the nodes may be the cause"
LARGEST = 8  # nodes of a slow group whose members are told apart one by one


def halve(case: Case) -> Stage:
    """Halves of slow groups until both halves are fast; then each member among others, or left out."""
    slow, smallest = [list(case.layout.nodes)], list[list[str]]()
    while slow:
        halves = {tuple(group): _halves(group) for group in slow}
        asked = [Trial(tuple(half)) for both in halves.values() for half in both]
        yield asked
        yield [trial for trial in asked if case.measured.is_bad(trial)]
        slow = []
        for whole, both in halves.items():
            bad = [half for half in both if case.measured.is_bad(Trial(tuple(half)))]
            slow += bad
            if not bad:
                smallest.append(list(whole))
    suspected = {node for group in smallest for node in group}
    others = [node for node in case.layout.nodes if node not in suspected]
    for group in smallest:
        if SMALLEST <= len(group) <= LARGEST:
            yield from (
                _among(case, group, others) if len(others) >= len(group) - 1 else _left_out(case, group)
            )


def _halves(group: list[str]) -> list[list[str]]:
    middle = len(group) // 2
    return [half for half in (group[:middle], group[middle:]) if len(half) >= SMALLEST]


def _among(case: Case, group: list[str], others: list[str]) -> Stage:
    """Each member in a group as large, of others alone: slow there, too, it is the one."""
    size, count = len(group) - 1, len(others)
    tried = {
        node: Trial((node, *(others[(n * size + k) % count] for k in range(size))))
        for n, node in enumerate(group)
    }
    yield list(tried.values())
    yield [trial for trial in tried.values() if case.measured.is_bad(trial)] * 2
    because = f"slow in every group of {len(group)} nodes, fast in pairs"
    bad = [node for node, trial in tried.items() if case.measured.is_bad(trial)]
    if len(bad) < len(group):
        case.found += [Named("node", (node,), because) for node in bad]
    else:
        case.found.append(Named("node", tuple(group), EVERY_GROUP, sure=False))


def _left_out(case: Case, group: list[str]) -> Stage:
    """The group without each member: fast without one alone, it is that one."""
    without = {node: Trial(tuple(other for other in group if other != node)) for node in group}
    if len(group) <= SMALLEST:
        return
    yield list(without.values())
    yield [trial for trial in without.values() if case.measured.is_bad(trial)]
    good = [node for node, trial in without.items() if case.measured.is_good(trial)]
    if len(good) == 1 and all(case.measured.times(trial) for trial in without.values()):
        because = "the group is fast without this node and slow without any other"
        case.found.append(Named("node", (good[0],), because))
