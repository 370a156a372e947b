"""What fault isolation knows so far: the nodes that are fast with each other (the core), and the others."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from dataclasses import dataclass, field

from clustercheck.locate.faults import LocatedFault
from clustercheck.locate.measurements import Measurements
from clustercheck.locate.trials import GroupLayout, Trial, make_pair_trial

MIN_PARTNERS = 2  # known-good ones with which a suspect must be slow
MIN_PARTNERS_OF_GROUP = 4  # the same for nodes that are fast with each other: outliers are likelier
MIN_BAD_BLOCK = 4  # nodes: with fewer, as many bad nodes are as likely as a bad switch

# A stage yields trials, and continues when all of them have been run.
Stage = Generator[list[Trial], None, None]


def merge_stages(*stages: Stage) -> Stage:
    """Run independent stages side by side: their trials share rounds where nodes allow."""
    active = list(stages)
    while active:
        requested: list[Trial] = []
        for stage in tuple(active):
            trials = next(stage, None)
            if trials is None:
                active.remove(stage)
            else:
                requested += trials
        yield requested


@dataclass
class IsolationState:
    """The layout, the measurements, and what stages found beyond them.

    ``partner_trials`` are those of suspects with known-good partners, ``bad_parts`` the bad parts by node.
    """

    layout: GroupLayout
    measurements: Measurements
    partner_trials: set[Trial] = field(default_factory=set)
    bad_parts: dict[str, list[LocatedFault]] = field(default_factory=dict)
    faults: list[LocatedFault] = field(default_factory=list)
    has_compared_rails: bool = False

    def core_nodes(self) -> list[str]:
        """The largest set of nodes that are fast with each other; empty if no pair is fast."""
        largest = self.measurements.fast_components()[0]
        return largest if len(largest) > 1 else []

    def outer_components(self) -> list[list[str]]:
        """The nodes outside the core, grouped by those that are fast with each other."""
        components = self.measurements.fast_components()
        return components[1:] if self.core_nodes() else components

    def has_rival_group(self) -> bool:
        """Whether the core is not a majority and other nodes are fast with each other too."""
        core = self.core_nodes()
        return 2 * len(core) <= len(self.layout.nodes) and any(len(c) > 1 for c in self.outer_components())

    def slow_links(self) -> list[Trial]:
        """Slow pairs of two core nodes: each of them is fast with others."""
        core = set(self.core_nodes())
        return [trial for trial in self.measurements.pairs(bad=True) if core.issuperset(trial.nodes)]

    def nodes_near_limit(self) -> list[str]:
        """Core nodes that came near the limit with every core node they were measured with."""
        fast = {node for trial in self._clearly_fast_pairs() for node in trial.nodes}
        return [node for node in self.core_nodes() if node not in fast]

    def _clearly_fast_pairs(self) -> list[Trial]:
        return [t for t in self.measurements.pairs(bad=False) if not self.measurements.is_near_limit(t)]

    def has_working_uplinks(self, link: Trial) -> bool:
        """Whether the link lies within one block, or other pairs show that both ends' uplinks are fast."""
        blocks = [self.layout.blocks.get(node) for node in link.pair]
        if None in blocks or blocks[0] == blocks[1]:
            return True
        routes = [{self.layout.blocks.get(node) for node in t.nodes} for t in self._clearly_fast_pairs()]
        return all(any(block in route and len(route) > 1 for route in routes) for block in blocks)

    def is_decided(self, component: list[str]) -> bool:
        """Whether it was slow with enough new core nodes; if no new ones are left, with two."""
        return not self.count_missing_partners(component) or (
            self.next_partner_trial(component) is None
            and self._count_slow_partners(component, self.measurements.pairs(bad=True)) >= MIN_PARTNERS
        )

    def count_missing_partners(self, component: list[str]) -> int:
        """How many more known-good partners it must be slow with to be a culprit."""
        slow = self._count_slow_partners(component, self.partner_trials)
        return max(0, _required_partners(component) - slow)

    def next_partner_trial(
        self, component: list[str], busy: frozenset[str] | set[str] = frozenset()
    ) -> Trial | None:
        """A trial with a new partner of the core, of which there is one; the first is of its own block, later
        ones are not.
        """
        tries = sum(not set(component).isdisjoint(trial.nodes) for trial in self.partner_trials)
        node, core = component[tries % len(component)], self.core_nodes()
        if tries >= 2 * _required_partners(component):
            return None
        start = 7919 * len(self.partner_trials) % len(core)
        block = self.layout.blocks.get(node)
        fallback = None
        for partner in (*core[start:], *core[:start]):
            is_wanted = block is None or (self.layout.blocks.get(partner) == block) is (tries == 0)
            if partner == node or partner in busy or (fallback and not is_wanted):
                continue
            trial = make_pair_trial(node, partner)
            if trial not in self.partner_trials and not self.measurements.count_measures(trial):
                if is_wanted:
                    return trial
                fallback = trial
        return fallback

    def find_bad_blocks(self) -> dict[str, list[str]]:
        """Blocks that lie outside the core as a whole and are not fast with any node of a good block."""
        core = set(self.core_nodes())
        found = {
            block: members
            for block, members in self.layout.nodes_by_block().items()
            if len(members) >= MIN_BAD_BLOCK and core.isdisjoint(members)
        }
        inside = {node for members in found.values() for node in members}
        beyond = {node for c in self.outer_components() if not inside.issuperset(c) for node in c}
        return {block: members for block, members in found.items() if beyond.isdisjoint(members)}

    def find_suspects(self) -> list[str]:
        """Single nodes that are slow with known-good partners, except those of a bad block."""
        explained = {node for members in self.find_bad_blocks().values() for node in members}
        single = [
            component for component in self.outer_components() if len(component) == 1 and self.core_nodes()
        ]
        return [c[0] for c in single if c[0] not in explained and self.is_decided(c)]

    def _count_slow_partners(self, component: list[str], trials: Iterable[Trial]) -> int:
        core, members = set(self.core_nodes()), set(component)
        bad = [t for t in trials if self.measurements.is_bad(t) and not members.isdisjoint(t.nodes)]
        return len({node for trial in bad for node in trial.nodes if node in core})


def _required_partners(component: list[str]) -> int:
    return MIN_PARTNERS if len(component) == 1 else MIN_PARTNERS_OF_GROUP
