"""What is told for good while a playbook runs: equal facts of several hosts together, and never twice."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from clusterctl.engine.events import (
    Event,
    HostFinished,
    Interrupted,
    Status,
    TaskResult,
    TaskStarted,
    WaveFinished,
    WaveStarted,
)
from clusterctl.engine.failure import Failure
from clusterctl.engine.ledger import BAD, HostState, Ledger
from clusterctl.engine.wording import alike, counted, elapsed, listed

# So long the first of several hosts that fail alike waits for the others.
GATHER_S = 1.0
# Tasks that only prepare others; no person waits for one.
QUIET_ACTIONS = frozenset(
    ("gather_facts", "setup", "include_tasks", "import_tasks", "include_role", "meta", "set_fact", "assert",
     "include_vars", "validate_argument_spec", "debug")
)  # fmt: skip
# States for which the failing task's own words stand already.
SAID_BY_TASK = frozenset({HostState.FAILED, HostState.UNREACHABLE})


@dataclass(frozen=True)
class Told:
    """One fact, and what belongs to it by its word. ``bad`` is what a person must not overlook."""

    text: str
    more: Sequence[tuple[str, str]] = ()
    bad: bool = False


class Gathered:
    """Equal facts of several hosts; the first waits for the others. What to do is said once."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._since = 0.0
        self._facts: dict[tuple[str, ...], tuple[list[str], Told]] = {}
        self._known: set[tuple[str, ...]] = set()

    def add(self, host: str, told: Told) -> None:
        """Another host of which this is so; its name is left out of the words."""
        if not self._facts:
            self._since = self._clock()
        key = tuple(alike(text, host) for text in (told.text, *(text for _, text in told.more)))
        self._facts.setdefault(key, ([], told))[0].append(host)

    def take(self, *, at_once: bool = False) -> list[Told]:
        """What has waited long enough, in order, in the words of the first host that said it."""
        if not self._facts or not (at_once or self._clock() - self._since >= GATHER_S):
            return []
        taken = [
            Told(f"{listed(hosts)}: {told.text}", () if key in self._known else told.more, told.bad)
            for key, (hosts, told) in self._facts.items()
        ]
        self._known |= self._facts.keys()
        self._facts.clear()
        return taken


class Story:
    """What every display of one run knows: its parts, its present step, and what is to be told of them.

    ``clock`` gives seconds since the epoch, as the events do.
    """

    def __init__(self, title: str, clock: Callable[[], float]) -> None:
        self.title = title
        self.clock = clock
        self.began = clock()
        self.part = ""
        self.steps = 0
        self.step: TaskStarted | None = None
        self.hosts: Sequence[str] = ()
        self.interrupted = False
        self._part_began = self.began
        self._gathered = Gathered(clock)
        self._ended: list[HostFinished] = []

    def open(self, playbook: str, hosts: Sequence[str]) -> None:
        """A playbook begins, of the wave that was announced, or by its own name."""
        self.part = self.part or ("" if playbook == self.title else playbook)
        self.hosts, self.steps, self.step = hosts, 0, None
        self._part_began = self.clock()
        self._ended.clear()

    def take(self, event: Event, ledger: Ledger) -> list[Told]:
        """One more event; what of it is to be told at once."""
        match event:
            case WaveStarted():
                self.part = f"wave {event.number}/{event.of} ({event.name})" if event.of > 1 else event.name
            case TaskStarted() if event.action.rpartition(".")[2] not in QUIET_ACTIONS:
                self.steps, self.step = self.steps + 1, event
            case TaskResult(host=host, status=Status.FAILED | Status.UNREACHABLE) if host in ledger.hosts:
                failure = ledger.hosts[host].failure
                if failure is not None:
                    self._gathered.add(host, failing(failure, event.status))
            case HostFinished():
                self._ended.append(event)
            case Interrupted():
                self.interrupted = True
                return [
                    Told("interrupted: what runs is being ended; what a task began on a node may go on there")
                ]
            case WaveFinished(go=False):
                return [Told(f"stopped: {event.reason}", bad=True)]
        return []

    def due(self, *, at_once: bool = False) -> list[Told]:
        """Failures that have waited for others like them for long enough."""
        return self._gathered.take(at_once=at_once)

    def close(self) -> list[Told]:
        """The playbook has ended: all that was not told yet, and how the hosts left it."""
        what, self.part = self.part or self.title, ""
        told = self._gathered.take(at_once=True)
        return told + ending(what, self._ended, self.steps, self.clock() - self._part_began)


def failing(failure: Failure, status: str) -> Told:
    """A failure as what / where / hint."""
    more = (("where:", failure.where), ("hint: ", failure.remedy), ("code: ", failure.code))
    return Told(f"{status}: {failure.task}: {failure.headline}", more, bad=True)


def ending(what: str, ended: Sequence[HostFinished], steps: int, seconds: float) -> list[Told]:
    """How the hosts left a playbook: those that no task spoke for with their reason, then all in one line.

    Nothing where it was broken off before that was known: the error that did it is said elsewhere.
    """
    if not ended:
        return []
    reasons: dict[tuple[str, str], list[str]] = {}
    counts: dict[str, int] = {}
    for one in ended:
        counts[one.state] = counts.get(one.state, 0) + 1
        if one.because and one.state not in SAID_BY_TASK:
            reasons.setdefault((one.state, alike(one.because, one.host)), []).append(one.host)
    firsts = {(one.state, alike(one.because, one.host)): one.because for one in reversed(ended)}
    told = [
        Told(f"{listed(hosts)}: {key[0]}: {firsts[key]}", bad=key[0] in BAD) for key, hosts in reasons.items()
    ]
    said = ", ".join(f"{number} {state}" for state, number in sorted(counts.items(), key=_bad_last))
    bad = any(state in BAD for state in counts)
    return [*told, Told(f"{what}: {said}; {counted(steps, 'step')} in {elapsed(seconds)}", bad=bad)]


def _bad_last(item: tuple[str, int]) -> bool:
    return item[0] in BAD
