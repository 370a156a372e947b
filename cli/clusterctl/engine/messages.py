"""Lasting messages of a running playbook: equal ones of several hosts together, and none twice."""

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
from clusterctl.engine.wording import alike, counted, elapsed, format_hosts

# How long the first of several hosts with the same failure waits for the others.
GATHER_S = 1.0
# Tasks that only prepare others; nobody waits for one.
QUIET_ACTIONS = frozenset(
    ("gather_pending", "setup", "include_tasks", "import_tasks", "include_role", "meta", "set_fact", "assert",
     "include_vars", "validate_argument_spec", "debug")
)  # fmt: skip
# States whose reason the failed task has printed already.
REPORTED_BY_TASK = frozenset({HostState.FAILED, HostState.UNREACHABLE})
# How a state is displayed; its name in JSON is stable.
DISPLAYED = {HostState.GOOD.value: "ok"}


@dataclass(frozen=True)
class Message:
    """``more`` are labelled lines below ``text``. ``bad``: it must not be overlooked."""

    text: str
    more: Sequence[tuple[str, str]] = ()
    bad: bool = False


class MessageAggregator:
    """Merges equal messages of several hosts; the first waits for the others. ``more`` is printed once."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._since = 0.0
        self._pending: dict[tuple[str, ...], tuple[list[str], Message]] = {}
        self._known: set[tuple[str, ...]] = set()

    def add(self, host: str, message: Message) -> None:
        """Adds a host to which the message applies; messages that differ only by its name are equal."""
        if not self._pending:
            self._since = self._clock()
        key = tuple(alike(text, host) for text in (message.text, *(text for _, text in message.more)))
        self._pending.setdefault(key, ([], message))[0].append(host)

    def take(self, *, at_once: bool = False) -> list[Message]:
        """Returns messages that have waited long enough, in order, with the words of their first host."""
        if not self._pending or not (at_once or self._clock() - self._since >= GATHER_S):
            return []
        taken = [
            Message(
                f"{format_hosts(hosts)}: {message.text}",
                () if key in self._known else message.more,
                message.bad,
            )
            for key, (hosts, message) in self._pending.items()
        ]
        self._known |= self._pending.keys()
        self._pending.clear()
        return taken


class ProgressReporter:
    """What every display of one run shows: its part, its present step, and the messages about them.

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
        self._aggregator = MessageAggregator(clock)
        self._ended: list[HostFinished] = []

    def open(self, playbook: str, hosts: Sequence[str]) -> None:
        """Starts a playbook: the part is the announced wave, or the playbook's name."""
        self.part = self.part or ("" if playbook == self.title else playbook)
        self.hosts, self.steps, self.step = hosts, 0, None
        self._part_began = self.clock()
        self._ended.clear()

    def take(self, event: Event, ledger: Ledger) -> list[Message]:
        """Records an event; returns messages to print immediately."""
        match event:
            case WaveStarted():
                self.part = f"wave {event.number}/{event.of} ({event.name})" if event.of > 1 else event.name
            case TaskStarted() if event.action.rpartition(".")[2] not in QUIET_ACTIONS:
                self.steps, self.step = self.steps + 1, event
            case TaskResult(host=host, status=Status.FAILED | Status.UNREACHABLE) if host in ledger.hosts:
                failure = ledger.hosts[host].failure
                if failure is not None:
                    self._aggregator.add(host, message_of_failure(failure, event.status))
            case HostFinished():
                self._ended.append(event)
            case Interrupted():
                self.interrupted = True
                return [
                    Message("interrupted: stopping; jobs that a task started on a node may continue there")
                ]
            case WaveFinished(go=False):
                return [Message(f"stopped: {event.reason}", bad=True)]
        return []

    def due(self, *, at_once: bool = False) -> list[Message]:
        """Returns failures that have waited long enough for equal ones."""
        return self._aggregator.take(at_once=at_once)

    def close(self) -> list[Message]:
        """Ends the playbook; returns pending messages and the final state of the hosts."""
        what, self.part = self.part or self.title, ""
        pending = self._aggregator.take(at_once=True)
        return pending + summary_of(what, self._ended, self.steps, self.clock() - self._part_began)


def message_of_failure(failure: Failure, status: str) -> Message:
    """A failure as what / where / hint."""
    more = (("where:", failure.where), ("hint: ", failure.remedy), ("code: ", failure.code))
    return Message(f"{status}: {failure.task}: {failure.headline}", more, bad=True)


def summary_of(what: str, ended: Sequence[HostFinished], steps: int, seconds: float) -> list[Message]:
    """The final states of hosts: reasons that no task has printed, then counts in one line.

    Empty if the playbook was aborted before the states were known: the error is reported elsewhere.
    """
    if not ended:
        return []
    reasons: dict[tuple[str, str], list[str]] = {}
    counts: dict[str, int] = {}
    for one in ended:
        counts[one.state] = counts.get(one.state, 0) + 1
        if one.because and one.state not in REPORTED_BY_TASK:
            reasons.setdefault((one.state, alike(one.because, one.host)), []).append(one.host)
    firsts = {(one.state, alike(one.because, one.host)): one.because for one in reversed(ended)}
    messages = [
        Message(f"{format_hosts(hosts)}: {key[0]}: {firsts[key]}", bad=key[0] in BAD)
        for key, hosts in reasons.items()
    ]
    totals = ", ".join(
        f"{number} {DISPLAYED.get(state, state)}" for state, number in sorted(counts.items(), key=_bad_last)
    )
    bad = any(state in BAD for state in counts)
    return [*messages, Message(f"{what}: {totals}; {counted(steps, 'step')} in {elapsed(seconds)}", bad=bad)]


def _bad_last(item: tuple[str, int]) -> bool:
    return item[0] in BAD
