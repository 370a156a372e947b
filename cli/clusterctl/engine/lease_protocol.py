"""In which order a run takes its nodes, and what it releases: pure, no node is reached from here.

The first node is the same for all who want it, and is asked alone: two runs that want the same nodes meet
there, and one of them goes home with nothing. Runs whose nodes only overlap may refuse each other; neither
waits while it holds anything, so nobody waits for ever.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from clusterctl.engine.lease import Lease


@dataclass(frozen=True)
class RecordHolders:
    """Write down, durably, which nodes may hold this lease from now on; none: it is over."""

    lease: Lease
    hosts: tuple[str, ...]


@dataclass(frozen=True)
class Acquire:
    """Ask nodes for a lease. A batch is asked only when every node of those before it was taken."""

    lease: Lease
    batches: tuple[tuple[str, ...], ...]

    @property
    def hosts(self) -> tuple[str, ...]:
        """All nodes, in order."""
        return tuple(host for batch in self.batches for host in batch)


@dataclass(frozen=True)
class Release:
    """Ask nodes to give up exactly this lease."""

    lease: Lease
    hosts: tuple[str, ...]


@dataclass(frozen=True)
class LeaseAnswer:
    """What a node said: ``holder`` is whose lease is on it afterwards, ``jobs`` are what still runs there, on
    one that was not taken because of it, or shown. ``failed`` says why it said nothing: then it may have done
    what it was asked, or not, or will. ``code`` is that of the failure."""

    taken: bool = False
    freed: bool = False
    holder: Lease | None = None
    failed: str = ""
    code: str = ""
    jobs: tuple[str, ...] = ()


@dataclass(frozen=True)
class LeaseOutcome:
    """``refused`` by whom, ``working`` on which jobs of an earlier run, ``failed`` why, by node. ``left`` are
    nodes that may hold our lease still, ``lost`` those that did not when it was released: who does."""

    refused: Mapping[str, Lease] = field(default_factory=dict)
    working: Mapping[str, Sequence[str]] = field(default_factory=dict)
    failed: Mapping[str, LeaseAnswer] = field(default_factory=dict)
    left: Mapping[str, str] = field(default_factory=dict)
    lost: Mapping[str, Lease | None] = field(default_factory=dict)

    @property
    def held(self) -> bool:
        """Whether every node is ours."""
        return not self.refused and not self.working and not self.failed


Step = RecordHolders | Acquire | Release
LeaseAnswers = Mapping[str, LeaseAnswer]
Steps = Generator[Step, LeaseAnswers, LeaseOutcome]
NO_ANSWER = LeaseAnswer(failed="it gave no answer")
IN_DOUBT = "it did not report whether the lease was acquired"


def lease_order(hosts: Iterable[str]) -> tuple[str, ...]:
    """The order of all who keep to this protocol: by name, whatever the order of their inventories."""
    return tuple(sorted(set(hosts)))


def acquire_step(lease: Lease, hosts: Iterable[str]) -> Acquire:
    """The first node alone, which is where two who want the same meet; then all others at once."""
    first, *others = lease_order(hosts)
    return Acquire(lease, ((first,), tuple(others)) if others else ((first,),))


def acquire_steps(lease: Lease, hosts: Iterable[str]) -> Steps:
    """Take every node, or none: what was asked is freed on any refusal, failure or interruption."""
    order = lease_order(hosts)
    yield RecordHolders(lease, order)
    try:
        answers = yield acquire_step(lease, order)
    except (Exception, KeyboardInterrupt):
        yield from release_steps(lease, order, doubtful=order)
        raise
    if all(host in answers and answers[host].taken for host in order):
        return LeaseOutcome()
    refused, working, failed = classify_answers(answers)
    if not refused and not working and not failed:
        failed = {host: NO_ANSWER for host in order if host not in answers}
    asked = (host for host in answers if host not in refused and host not in working)
    freed = yield from release_steps(lease, asked, doubtful=failed)
    return LeaseOutcome(refused, working, failed, freed.left)


def classify_answers(
    answers: LeaseAnswers,
) -> tuple[dict[str, Lease], dict[str, Sequence[str]], dict[str, LeaseAnswer]]:
    """Nodes that were not taken: held by whom, at work on what, or why they did not say."""
    not_taken = {host: answer for host, answer in answers.items() if not answer.taken}
    refused = {host: answer.holder for host, answer in not_taken.items() if answer.holder}
    working: dict[str, Sequence[str]]
    working = {host: answer.jobs for host, answer in not_taken.items() if answer.jobs and host not in refused}
    silent = {
        host: answer for host, answer in not_taken.items() if host not in refused and host not in working
    }
    return refused, working, {host: answer if answer.failed else NO_ANSWER for host, answer in silent.items()}


def release_steps(
    lease: Lease, hosts: Iterable[str], *, doubtful: Collection[str] = (), unasked: Iterable[str] = ()
) -> Steps:
    """Give nodes back; what could not be asked is ``left``, and what is ``doubtful`` and was not there: it
    may be taken yet. ``unasked`` may hold the lease too, and are not asked now."""
    wanted = lease_order(hosts)
    answers = (yield Release(lease, wanted)) if wanted else {}
    left, lost = {}, {}
    for host in wanted:
        answer = answers.get(host, NO_ANSWER)
        if answer.failed or (host in doubtful and not answer.freed):
            left[host] = answer.failed or IN_DOUBT
        elif not answer.freed:
            lost[host] = answer.holder
    yield RecordHolders(lease, (*left, *unasked))
    return LeaseOutcome(left=left, lost=lost)


def run_steps(steps: Steps, do: Callable[[Step], LeaseAnswers]) -> LeaseOutcome:
    """Go through the steps; what ``do`` raises, the steps hear of first."""
    try:
        step = next(steps)
        while True:
            try:
                answers = do(step)
            except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - the steps raise it again
                step = steps.throw(error)
            else:
                step = steps.send(answers)
    except StopIteration as end:
        outcome: LeaseOutcome = end.value
        return outcome
