"""Stages that look at nodes from outside: pairs that were bad, suspects with known-good partners, links."""

from __future__ import annotations

from clustercheck.locate.case import PARTNERS, Case, Stage
from clustercheck.locate.rounds import round_robin
from clustercheck.locate.trials import neighbours, trial_of

MORE_MATCHINGS = 4  # where no neighbours were fast: rounds of other pairs before it is given up
LINK_MEASURES = 4  # of a link before it is blamed: outliers are common where there are thousands of pairs


def meet_neighbours(case: Case) -> Stage:
    """Every pair of the ring, and the bad ones again."""
    yield neighbours(case.layout.nodes)
    yield case.measured.pairs(bad=True)


def meet_others(case: Case) -> Stage:
    """Other pairs, while nobody is fast with anyone."""
    nodes = case.layout.nodes
    for pairs in round_robin(len(nodes), MORE_MATCHINGS + 1):
        if case.core():
            return
        trials = [trial_of(nodes[a], nodes[b]) for a, b in pairs]
        yield [trial for trial in trials if not case.measured.times(trial)]


def meet_the_core(case: Case) -> Stage:
    """Whoever is outside the core with two partners of it, one by one; who is fast with one is in."""
    while True:
        wanted, busy = [], set[str]()
        for component in case.outside() if case.core() else []:
            if case.is_decided(component):
                continue
            for _ in component[:PARTNERS]:
                if (trial := case.fresh(component, busy)) is not None:
                    wanted.append(trial)
                    busy.update(trial.nodes)
                    case.asked.add(trial)
        if not wanted:
            return
        yield wanted


def confirm_links(case: Case) -> Stage:
    """The ends of a slow link with others of the core, and the link until it is no outlier."""
    ends = {node for trial in case.links() for node in trial.nodes}
    wanted, busy = [], set(ends)
    for node in sorted(ends):
        if (trial := case.fresh([node], busy - {node})) is not None:
            wanted.append(trial)
            busy.update(trial.nodes)
    yield wanted
    while doubtful := [t for t in case.links() if case.measured.times(t) < LINK_MEASURES]:
        before = sum(case.measured.times(trial) for trial in doubtful)
        yield doubtful
        if sum(case.measured.times(trial) for trial in doubtful) == before:
            return  # they could not be measured again
