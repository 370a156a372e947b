"""Stages that look at nodes from outside: pairs that were bad, suspects with known-good partners, links."""

from __future__ import annotations

from collections import Counter

from clustercheck.locate.case import PARTNERS, Case, Stage
from clustercheck.locate.rounds import round_robin
from clustercheck.locate.trials import FEW, Trial, neighbours, trial_of

MORE_MATCHINGS = 4  # where no neighbours were fast: rounds of other pairs before it is given up
LINK_MEASURES = 4  # of a link before it is blamed: outliers are common where there are thousands of pairs


def meet_neighbours(case: Case) -> Stage:
    """Every pair of the ring, and the bad ones again; of few nodes every pair, and so many as tell."""
    nodes = case.layout.nodes
    if len(nodes) <= FEW:
        yield [trial_of(nodes[a], nodes[b]) for pairs in round_robin(len(nodes)) for a, b in pairs]
        yield [*_with_partners(case), *case.links()]
    else:
        yield neighbours(nodes)
        yield case.measured.pairs(bad=True)


def _with_partners(case: Case) -> list[Trial]:
    """Bad pairs of each node outside the core, as many as tell; with known-good nodes first, and in turn."""
    core = set(case.core())
    bad = [trial for trial in case.measured.pairs(bad=True) if not core.issuperset(trial.nodes)]
    asked: Counter[str] = Counter()
    wanted: list[Trial] = []
    for times in range(1, PARTNERS + 1):
        for node in (node for component in case.outside() for node in component):
            left = [trial for trial in bad if node in trial.nodes and trial not in wanted]
            if left and asked[node] < times:
                trial = min(left, key=lambda t: (core.isdisjoint(t.nodes), sum(asked[n] for n in t.nodes)))
                wanted.append(trial)
                asked.update(trial.nodes)
    return wanted


def _links_again(case: Case) -> list[Trial]:
    """Slow pairs of the core until they are no outliers: at once where each is its nodes' only one."""
    ends = Counter(node for trial in case.links() for node in trial.nodes)
    wanted: list[Trial] = []
    for trial in case.links():
        missing = max(0, LINK_MEASURES - case.measured.times(trial))
        is_alone = all(ends[node] == 1 for node in trial.nodes)
        wanted += [trial] * (missing if is_alone else min(missing, 1))
    return wanted


def meet_others(case: Case) -> Stage:
    """Other pairs, while nobody is fast with anyone."""
    nodes = case.layout.nodes
    for pairs in round_robin(len(nodes), MORE_MATCHINGS + 1):
        if case.core():
            return
        trials = [trial_of(nodes[a], nodes[b]) for a, b in pairs]
        yield [trial for trial in trials if not case.measured.times(trial)]


def meet_the_core(case: Case) -> Stage:
    """Whoever is outside the core with partners of it; who is fast with one is in."""
    while True:
        undecided = [c for c in case.outside() if not case.is_decided(c)] if case.core() else []
        left = [min(PARTNERS, case.missing(component)) for component in undecided]
        wanted = [trial for _ in range(PARTNERS) for trial in _one_turn(case, undecided, left)]
        if not wanted:
            return
        yield wanted


def _one_turn(case: Case, undecided: list[list[str]], left: list[int]) -> list[Trial]:
    """A partner for each, or for two of those that are fast with each other; takes off what is ``left``."""
    wanted, busy = [], set[str]()
    for number, component in enumerate(undecided):
        for _ in component[: left[number]]:
            if (trial := case.fresh(component, busy)) is not None:
                wanted.append(trial)
                busy.update(trial.nodes)
                case.asked.add(trial)
                left[number] -= 1
    return wanted


def meet_again(case: Case) -> Stage:
    """The pairs of nodes that came near the limit with everybody: noise is no cause."""
    near = set(case.near())
    yield [trial for trial in case.measured.pairs(bad=False) if not near.isdisjoint(trial.nodes)]


def confirm_links(case: Case) -> Stage:
    """The ends of a slow link with others of the core, and the link until it is no outlier."""
    ends = {node for trial in case.links() for node in trial.nodes}
    wanted, busy = [], set(ends)
    for node in sorted(ends):
        if (trial := case.fresh([node], busy - {node})) is not None:
            wanted.append(trial)
            busy.update(trial.nodes)
    yield wanted
    while again := _links_again(case):
        before = sum(case.measured.times(trial) for trial in set(again))
        yield again
        if sum(case.measured.times(trial) for trial in set(again)) == before:
            return  # they could not be measured again
