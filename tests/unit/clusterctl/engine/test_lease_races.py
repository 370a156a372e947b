"""A thousand races for the same nodes, each from a seed: what operators do is cut into single steps, and
anything may happen between two of them, or in one. Real protocol, nodes played by data."""

from __future__ import annotations

import random
from collections.abc import Generator
from dataclasses import dataclass, field

import pytest

from clusterctl.engine.lease import Lease
from clusterctl.engine.lease_protocol import (
    Acquire,
    LeaseAnswer,
    LeaseAnswers,
    LeaseOutcome,
    RecordHolders,
    Release,
    Steps,
    acquire_steps,
    release_steps,
)

RACES = 1000
STEPS_A_RACE = 2000
Play = Generator[None, None, None]


@dataclass
class World:
    """Nodes, what each cluster directory has written down, who believes what, and what is still under way."""

    rng: random.Random
    trouble: float
    nodes: dict[str, Lease | None]
    owners: dict[str, Lease] = field(default_factory=dict)
    late: list[tuple[Acquire | Release, str]] = field(default_factory=list)
    came_late: set[tuple[Lease, str]] = field(default_factory=set)
    ended: set[Lease] = field(default_factory=set)
    dead: set[Lease] = field(default_factory=set)
    refused: int = 0
    worked: int = 0

    def does(self, step: Acquire | Release, node: str) -> LeaseAnswer:
        """What clusterctl's module does on a node, in one go."""
        holder, lease = self.nodes[node], step.lease
        if isinstance(step, Acquire):
            if holder is None:
                self.nodes[node] = holder = lease
            return LeaseAnswer(taken=holder == lease, holder=holder)
        if holder != lease:
            return LeaseAnswer(holder=holder)
        assert self.owners.get(node) != lease, f"{node} was freed under the hands of {lease.run}"
        self.nodes[node] = None
        return LeaseAnswer(freed=True)

    def late_one_comes(self) -> None:
        """A request that its sender has given up, perhaps long ago."""
        step, node = self.late.pop(self.rng.randrange(len(self.late)))
        if self.does(step, node).taken:
            self.came_late.add((step.lease, node))

    def asked(self, step: Acquire | Release) -> Generator[None, None, LeaseAnswers]:
        """A step, node by node: a request or an answer may be lost, a request come late, Ctrl-C come in."""
        answers: dict[str, LeaseAnswer] = {}
        for batch in step.batches if isinstance(step, Acquire) else (step.hosts,):
            for node in self.rng.sample(batch, len(batch)):
                yield
                fate = self.rng.random() / self.trouble if self.trouble else 1.0
                if fate < 0.2:
                    raise KeyboardInterrupt
                if fate < 0.4:
                    answers[node] = LeaseAnswer(failed="the request was lost")
                    continue
                if fate < 0.6:
                    self.late.append((step, node))
                    answers[node] = LeaseAnswer(failed="it will be done when nobody waits for it")
                    continue
                answers[node] = self.does(step, node)
                if fate < 1.0:
                    answers[node] = LeaseAnswer(failed="the answer was lost")
            if isinstance(step, Acquire) and not all(answers[node].taken for node in batch):
                break
        return answers

    def works(self, lease: Lease, nodes: tuple[str, ...]) -> Play:
        """Change nodes for a while: they must be the run's own, all the time, and nobody else's."""
        for node in nodes:
            assert node not in self.owners, f"{node} belongs to two"
            self.owners[node] = lease
        for _ in range(self.rng.randint(1, 8)):
            assert all(self.nodes[node] == lease for node in nodes), "the lease went away"
            yield
        for node in nodes:
            del self.owners[node]
        self.worked += 1


@dataclass
class Operator:
    """One controller with a cluster directory: what it remembers is on its disk, and survives it."""

    name: str
    wants: tuple[str, ...]
    book: dict[Lease, tuple[str, ...]] = field(default_factory=dict)
    run: Lease | None = None
    runs: int = 0

    def applies(self, world: World) -> Play:
        """One apply: what dead runs of this directory hold, then the nodes, the work, and back."""
        for lease, hosts in list(self.book.items()):
            yield from self.carries_out(world, release_steps(lease, hosts))
        self.runs += 1
        self.run = lease = Lease(f"{self.name}-{self.runs}", world.rng.randbytes(4).hex(), *["x"] * 4)
        try:
            outcome = yield from self.carries_out(world, acquire_steps(lease, self.wants))
            if outcome.held:
                yield from world.works(lease, self.wants)
                yield from self.carries_out(world, release_steps(lease, self.wants))
            else:
                world.refused += 1
                assert outcome.refused or outcome.failed, "a refusal says why"
            mine = {node for node, holder in world.nodes.items() if holder == lease}
            assert mine <= set(self.book.get(lease, ())), f"{mine} kept, and nobody knows"
        finally:
            world.ended.add(lease)

    def carries_out(self, world: World, steps: Steps) -> Generator[None, None, LeaseOutcome]:
        """As `carry_out` does, with the world turning between single steps."""
        try:
            step = next(steps)
            while True:
                if isinstance(step, RecordHolders):
                    self.book[step.lease] = step.hosts
                    if not step.hosts:
                        del self.book[step.lease]
                    yield
                    step = steps.send({})
                    continue
                try:
                    answers = yield from world.asked(step)
                except KeyboardInterrupt as error:
                    step = steps.throw(error)
                else:
                    step = steps.send(answers)
        except StopIteration as end:
            return end.value


def unlocks(world: World, lease: Lease) -> Play:
    """`clusterctl unlock`, from anywhere: for a run that is known to be over."""
    helper = Operator("somebody", ())
    holding = [node for node, holder in world.nodes.items() if holder == lease]
    yield from helper.carries_out(world, release_steps(lease, holding))


class Race:
    """Operators who try again and again; any of them may die at any step, and come back."""

    def __init__(self, seed: int, *, trouble: float, deaths: float) -> None:
        rng = random.Random(seed)  # noqa: S311 - a race that can be run again
        names = [f"gpu{number:02}" for number in range(1, rng.randint(1, 8) + 1)]
        self.world = World(rng, trouble, dict.fromkeys(names))
        self.deaths = deaths
        self.operators = [Operator(f"ops{n}", self._some(names)) for n in range(rng.randint(2, 4))]
        self.plays: dict[str, Play] = {}
        self.tries = {operator.name: rng.randint(1, 4) for operator in self.operators}

    def _some(self, names: list[str]) -> tuple[str, ...]:
        """All nodes, or with --limit some of them, in the order of that operator's own inventory."""
        rng = self.world.rng
        return tuple(rng.sample(names, len(names) if rng.random() < 0.6 else rng.randint(1, len(names))))

    def go(self) -> None:
        rng, world = self.world.rng, self.world
        for _ in range(STEPS_A_RACE):
            for operator in self.operators:
                if operator.name not in self.plays and self.tries[operator.name]:
                    self.tries[operator.name] -= 1
                    self.plays[operator.name] = operator.applies(world)
            if world.late and rng.random() < 0.2:
                world.late_one_comes()
            gone = [lease for lease in world.nodes.values() if lease in world.dead]
            if gone and rng.random() < 0.02 and "unlock" not in self.plays:
                self.plays["unlock"] = unlocks(world, gone[0])
            if not self.plays:
                return
            name = rng.choice(sorted(self.plays))
            if rng.random() < self.deaths and name != "unlock":
                self._dies(name)
            else:
                self._moves(name)
        pytest.fail("the race has no end")

    def _moves(self, name: str) -> None:
        try:
            next(self.plays[name])
        except (StopIteration, KeyboardInterrupt):
            del self.plays[name]

    def _dies(self, name: str) -> None:
        """SIGKILL: not one step more; what it believed to own is nobody's, and its leases stay."""
        self.plays.pop(name).close()
        lease = next(operator.run for operator in self.operators if operator.name == name)
        if lease is not None:
            self.world.dead.add(lease)
            for node in [node for node, owner in self.world.owners.items() if owner == lease]:
                assert self.world.nodes[node] == lease, "its death freed nothing"
                del self.world.owners[node]

    def settles(self) -> None:
        """Afterwards, on nodes that answer: each who has died comes back once, and then nothing is held."""
        self.world.trouble = self.deaths = 0.0
        while self.world.late:
            self.world.late_one_comes()
        self._unlocks_what_no_directory_knows()
        before = self.world.worked
        for operator in self.operators:
            self.tries[operator.name] = 1
            self.go()
        assert self.world.worked > before, "somebody can always continue"
        for operator in self.operators:
            self.tries[operator.name] = 1
            self.go()
        held = {node: lease.run for node, lease in self.world.nodes.items() if lease}
        assert held == {}
        assert all(not operator.book for operator in self.operators)
        assert self.world.worked >= before + len(self.operators), "nobody is in anybody's way any more"

    def _unlocks_what_no_directory_knows(self) -> None:
        """Only a request that came later than its directory's next run leaves such a lease."""
        known = {
            (lease, host) for one in self.operators for lease, hosts in one.book.items() for host in hosts
        }
        for node, lease in self.world.nodes.items():
            if lease is not None and (lease, node) not in known:
                assert (lease, node) in self.world.came_late, f"{lease.run} on {node}: nobody knows of it"
                for _ in unlocks(self.world, lease):
                    pass


@pytest.mark.parametrize("block", range(10))
def test_nobody_ever_shares_a_node_and_nothing_is_held_for_ever(block: int) -> None:
    worked = refused = 0
    for seed in range(block, RACES, 10):
        race = Race(seed, trouble=seed % 4 * 0.1, deaths=seed % 3 * 0.02)
        try:
            race.go()
            race.settles()
        except AssertionError as error:
            error.add_note(f"seed {seed}")
            raise
        worked, refused = worked + race.world.worked, refused + race.world.refused
    assert worked > RACES / 10
    assert refused > RACES / 10, "they do get in each other's way"


def test_of_two_who_want_the_same_nodes_one_goes_on_at_once() -> None:
    for seed in range(200):
        race = Race(seed, trouble=0.0, deaths=0.0)
        for operator in race.operators:
            operator.wants = tuple(race.world.rng.sample(list(race.world.nodes), len(race.world.nodes)))
        race.tries = dict.fromkeys(race.tries, 1)
        race.go()
        assert race.world.worked >= 1, seed
        assert race.world.worked + race.world.refused == len(race.operators)
