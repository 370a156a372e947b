"""What a search knows while it goes on: who is in the core that is fast together, and who is outside."""

from __future__ import annotations

from collections.abc import Collection, Generator
from dataclasses import dataclass, field

from clustercheck.locate.located import Named
from clustercheck.locate.measured import Measured
from clustercheck.locate.trials import Layout, Trial, trial_of

PARTNERS = 2  # known-good ones with whom a suspect is slow, before it is blamed
PARTNERS_OF_MANY = 4  # with whom nodes are slow that are fast together: outliers are likelier than that
SMALLEST_BLOCK = 4  # nodes: of fewer, a bad switch is as likely as so many bad nodes

# A stage asks for trials, and goes on when all of them have been run.
Stage = Generator[list[Trial], None, None]


def together(*stages: Stage) -> Stage:
    """Stages that need nothing of each other: what they ask for is run at once, where nodes allow."""
    going = list(stages)
    while going:
        asked: list[Trial] = []
        for stage in tuple(going):
            wanted = next(stage, None)
            if wanted is None:
                going.remove(stage)
            else:
                asked += wanted
        yield asked


@dataclass
class Case:
    """The layout, the measures, and what stages have found beyond what the measures of pairs say.

    ``asked`` are the trials of suspects with known-good partners, ``parts`` what is bad within a node.
    """

    layout: Layout
    measured: Measured
    asked: set[Trial] = field(default_factory=set)
    parts: dict[str, list[Named]] = field(default_factory=dict)
    found: list[Named] = field(default_factory=list)
    has_compared_rails: bool = False

    def core(self) -> list[str]:
        """The most nodes that are fast with each other; empty where nobody is fast with anyone."""
        largest = self.measured.components()[0]
        return largest if len(largest) > 1 else []

    def outside(self) -> list[list[str]]:
        """The others, those together that are fast with each other."""
        components = self.measured.components()
        return components[1:] if self.core() else components

    def has_rival(self) -> bool:
        """Whether others are fast together as well, and the core is no majority: who is right?"""
        core = self.core()
        return 2 * len(core) <= len(self.layout.nodes) and any(len(c) > 1 for c in self.outside())

    def links(self) -> list[Trial]:
        """Slow pairs of two nodes of the core: each is fast with others."""
        core = set(self.core())
        return [trial for trial in self.measured.pairs(bad=True) if core.issuperset(trial.nodes)]

    def near(self, but: Collection[Trial] = ()) -> list[str]:
        """Nodes of the core that came near the limit with everybody of it that they met, but for these."""
        core = set(self.core())
        fast: dict[str, bool] = {}
        for trial in (*self.measured.pairs(bad=True), *self.measured.pairs(bad=False)):
            if trial not in but and core.issuperset(trial.nodes):
                is_fast = not self.measured.is_near(trial)
                for node in trial.nodes:
                    fast[node] = fast.get(node, False) or is_fast
        return [node for node in self.core() if fast.get(node) is False]

    def blocks_meet(self, link: Trial) -> bool:
        """Whether each end's block was well off with others by another pair; so it is within one block."""
        blocks = [self.layout.blocks.get(node) for node in link.pair]
        if None in blocks or blocks[0] == blocks[1]:
            return True
        good = [t for t in self.measured.pairs(bad=False) if not self.measured.is_near(t)]
        ways = [{self.layout.blocks.get(node) for node in t.nodes} for t in good]
        return all(any(block in way and len(way) > 1 for way in ways) for block in blocks)

    def is_decided(self, component: list[str]) -> bool:
        """Whether it was slow with enough of the core that it had not met; where there are none, with two."""
        return not self.missing(component) or (
            self.fresh(component) is None and self._slow_with(component, None) >= PARTNERS
        )

    def missing(self, component: list[str]) -> int:
        """With how many more known-good ones it must be slow before it is blamed."""
        asked = [t for t in self.asked if not set(component).isdisjoint(t.nodes)]
        return max(0, _enough(component) - self._slow_with(component, asked))

    def fresh(self, component: list[str], busy: frozenset[str] | set[str] = frozenset()) -> Trial | None:
        """A trial of it with a partner of the core that it has not met: first of its own block, then not."""
        tries = sum(not set(component).isdisjoint(trial.nodes) for trial in self.asked)
        node, core = component[tries % len(component)], self.core()
        if tries >= 2 * _enough(component) or not core or node in busy:
            return None
        begin = 7919 * len(self.asked) % len(core)
        block = self.layout.blocks.get(node)
        met = None
        for partner in (*core[begin:], *core[:begin]):
            is_wanted = block is None or (self.layout.blocks.get(partner) == block) is (tries == 0)
            if partner == node or partner in busy or (met and not is_wanted):
                continue
            trial = trial_of(node, partner)
            if trial not in self.asked and not self.measured.times(trial):
                if is_wanted:
                    return trial
                met = trial
        return met

    def bad_blocks(self) -> dict[str, list[str]]:
        """Blocks of which every node is outside the core, and fast with no node of a good block."""
        core = set(self.core())
        found = {
            block: members
            for block, members in self.layout.members().items()
            if core and len(members) >= SMALLEST_BLOCK and core.isdisjoint(members)
        }
        inside = {node for members in found.values() for node in members}
        beyond = {node for c in self.outside() if not inside.issuperset(c) for node in c}
        return {block: members for block, members in found.items() if beyond.isdisjoint(members)}

    def suspects(self) -> list[str]:
        """Nodes that are slow with known-good partners, each by itself, and not for their switch."""
        excused = {node for members in self.bad_blocks().values() for node in members}
        alone = [component for component in self.outside() if len(component) == 1 and self.core()]
        return [c[0] for c in alone if c[0] not in excused and self.is_decided(c)]

    def _slow_with(self, component: list[str], trials: list[Trial] | None) -> int:
        core, members = set(self.core()), set(component)
        pairs = self.measured.pairs(bad=True) if trials is None else trials
        bad = [t for t in pairs if self.measured.is_bad(t) and not members.isdisjoint(t.nodes)]
        return len({node for trial in bad for node in trial.nodes if node in core})


def _enough(component: list[str]) -> int:
    return PARTNERS if len(component) == 1 else PARTNERS_OF_MANY
