"""Stages that measure whole nodes: bad pairs again, suspects with known-good partners, and links."""

from __future__ import annotations

from collections import Counter

from clustercheck.locate.isolation_state import MIN_PARTNERS, IsolationState, Stage
from clustercheck.locate.rounds import round_robin
from clustercheck.locate.trials import MAX_ALL_PAIRS_NODES, Trial, list_ring_pairs, make_pair_trial

MAX_EXTRA_ROUNDS = 4  # rounds of other pairs if no neighbours were fast
MIN_LINK_MEASURES = 4  # of a slow link: outliers are common among thousands of pairs


def measure_ring(state: IsolationState) -> Stage:
    """Measures every pair of the ring and repeats the bad ones; of few nodes every pair."""
    nodes = state.layout.nodes
    if len(nodes) <= MAX_ALL_PAIRS_NODES:
        yield [make_pair_trial(nodes[a], nodes[b]) for pairs in round_robin(len(nodes)) for a, b in pairs]
        yield [*_pick_repeats(state), *state.slow_links()]
    else:
        yield list_ring_pairs(nodes)
        yield state.measurements.pairs(bad=True)


def _pick_repeats(state: IsolationState) -> list[Trial]:
    """Bad pairs of each node outside the core, enough to decide; those with known-good nodes first."""
    core = set(state.core_nodes())
    bad = state.measurements.pairs(bad=True)
    counts: Counter[str] = Counter()
    picked: list[Trial] = []
    for times in range(1, MIN_PARTNERS + 1):
        for node in (node for component in state.outer_components() for node in component):
            left = [trial for trial in bad if node in trial.nodes and trial not in picked]
            if left and counts[node] < times:
                trial = min(left, key=lambda t: (core.isdisjoint(t.nodes), sum(counts[n] for n in t.nodes)))
                picked.append(trial)
                counts.update(trial.nodes)
    return picked


def _pick_link_repeats(state: IsolationState) -> list[Trial]:
    """Slow core pairs, repeated until outliers are ruled out: all at once if its nodes have no other one."""
    ends = Counter(node for trial in state.slow_links() for node in trial.nodes)
    picked: list[Trial] = []
    for trial in state.slow_links():
        missing = max(0, MIN_LINK_MEASURES - state.measurements.count_measures(trial))
        is_only = all(ends[node] == 1 for node in trial.nodes)
        picked += [trial] * (missing if is_only else min(missing, 1))
    return picked


def measure_more_pairs(state: IsolationState) -> Stage:
    """Measures other pairs while no pair is fast."""
    nodes = state.layout.nodes
    for pairs in round_robin(len(nodes), MAX_EXTRA_ROUNDS + 1):
        if state.core_nodes():
            return
        trials = [make_pair_trial(nodes[a], nodes[b]) for a, b in pairs]
        yield [trial for trial in trials if not state.measurements.count_measures(trial)]


def measure_against_core(state: IsolationState) -> Stage:
    """Measures nodes outside the core with partners of it; a node that is fast with one joins the core."""
    while True:
        components = state.outer_components() if state.core_nodes() else []
        left = [min(MIN_PARTNERS, state.count_missing_partners(component)) for component in components]
        picked = [
            trial for _ in range(MIN_PARTNERS) for trial in _pick_partner_trials(state, components, left)
        ]
        if not picked:
            return
        yield picked


def _pick_partner_trials(state: IsolationState, components: list[list[str]], left: list[int]) -> list[Trial]:
    """One partner for each, or two for components of several nodes; reduces ``left`` accordingly."""
    picked, busy = [], set[str]()
    for number, component in enumerate(components):
        for _ in component[: left[number]]:
            if (trial := state.next_partner_trial(component, busy)) is not None:
                picked.append(trial)
                busy.update(trial.nodes)
                state.partner_trials.add(trial)
                left[number] -= 1
    return picked


def repeat_near_limit(state: IsolationState) -> Stage:
    """Repeats the pairs of nodes that came near the limit with every node, to rule out noise."""
    near = set(state.nodes_near_limit())
    yield [trial for trial in state.measurements.pairs(bad=False) if not near.isdisjoint(trial.nodes)]


def confirm_links(state: IsolationState) -> Stage:
    """Measures the ends of a slow link with other core nodes, and the link until outliers are ruled out."""
    ends = {node for trial in state.slow_links() for node in trial.nodes}
    picked, busy = [], set(ends)
    for node in sorted(ends):
        if (trial := state.next_partner_trial([node], busy - {node})) is not None:
            picked.append(trial)
            busy.update(trial.nodes)
    yield picked
    while repeats := _pick_link_repeats(state):
        before = sum(state.measurements.count_measures(trial) for trial in set(repeats))
        yield repeats
        if sum(state.measurements.count_measures(trial) for trial in set(repeats)) == before:
            return  # repeating failed
