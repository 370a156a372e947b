"""One operator at a time on a node, whatever controller he works from."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from clusterctl import console
from clusterctl.engine import lease_book
from clusterctl.engine.failure import Failure
from clusterctl.engine.failure_kinds import BY_CODE, OTHER
from clusterctl.engine.journal import cut_off
from clusterctl.engine.lease import Lease, lease_of, release_command, release_hint
from clusterctl.engine.lease_nodes import LeaseNodes
from clusterctl.engine.lease_protocol import (
    Acquire,
    LeaseAnswer,
    LeaseAnswers,
    LeaseOutcome,
    RecordHolders,
    Step,
    acquire_step,
    acquire_steps,
    classify_answers,
    release_steps,
    run_steps,
)
from clusterctl.engine.process import terminated_like_interrupted
from clusterctl.engine.wording import format_hosts, hosts_by
from clusterctl.errors import ClusterctlError
from clusterctl.rollout.session import Session

TASK = "Take the lease"


class HostsInUseError(ClusterctlError):
    """Hosts cannot be held yet, with why; nothing is held, and nothing was touched."""

    def __init__(self, what: str, *, hosts: Mapping[str, str], **options: Any) -> None:
        super().__init__(what, **options)
        self.hosts = hosts


@dataclass
class Holding:
    """What a run holds while it changes ``hosts``.

    ``failures`` are those of hosts that could not be asked: then nothing is held, and nothing may be changed.
    Afterwards ``kept`` are hosts that may hold the lease still, with why, and ``lost`` those that no longer
    held it, with what had become of it.
    """

    lease: Lease | None
    failures: Sequence[Failure] = ()
    kept: dict[str, str] = field(default_factory=dict)
    lost: dict[str, str] = field(default_factory=dict)
    asks: Callable[[Acquire], LeaseAnswers] = lambda _step: {}

    def again(self, hosts: Sequence[str]) -> list[Failure]:
        """Take hosts once more, before they are changed; the failures of those that are not ours any more."""
        if self.lease is None:
            return []
        answers = self.asks(acquire_step(self.lease, hosts))
        refused, working, failed = classify_answers(answers)
        return [
            *(lost(host, f"taken from us by {holder.holder}") for host, holder in refused.items()),
            *(_at_work(host, jobs) for host, jobs in working.items()),
            *(_failure(host, answer) for host, answer in failed.items()),
        ]


@contextlib.contextmanager
def held(session: Session, hosts: Sequence[str]) -> Iterator[Holding]:
    """Hold ``hosts`` while they are changed. However the block ends they are released, except those on
    which our work may continue by itself; errors in that are printed, and never takes the block's place.

    Raises HostsInUseError (``engine.leased``, exit 2: who, where, what, since when) where others are at work,
    and (``engine.job-left``, exit 2) where what an earlier run started still runs.
    """
    if not hosts:
        yield Holding(None)
        return
    lease, do = lease_of(session.run, session.directory), _doing(session)
    with terminated_like_interrupted():
        outcome = run_steps(acquire_steps(lease, hosts), do)
        _say_left(lease, outcome.left)
        if outcome.refused:
            raise refusal(outcome.refused)
        if outcome.working:
            raise _still_at_work(outcome.working)
        if outcome.failed:
            yield Holding(lease, [_failure(host, answer) for host, answer in sorted(outcome.failed.items())],
                          kept=dict(outcome.left))  # fmt: skip
            return
        holding = Holding(lease, asks=do)
        try:
            yield holding
        finally:
            _give_back(session, lease, holding, hosts, do)


def recover(session: Session, hosts: Collection[str], declared: Collection[str]) -> None:
    """Release what runs of this directory that died still hold on ``hosts``. Call it holding the mutex,
    and after their jobs have ended. Nodes that are no longer ``declared`` are forgotten."""
    do = _doing(session)
    for entry in lease_book.entries(session.directory):
        reachable = [host for host in entry.hosts if host in hosts]
        elsewhere = [host for host in entry.hosts if host in declared and host not in hosts]
        if reachable:
            console.say(f"releasing the lease on {', '.join(reachable)}, left by {entry.lease.holder}")
        _say_left(entry.lease, run_steps(release_steps(entry.lease, reachable, unasked=elsewhere), do).left)


def nodes_of(session: Session) -> LeaseNodes:
    """The nodes of a session's cluster, to ask about leases."""
    return LeaseNodes(
        session.directory.hosts_file,
        session.run.directory,
        session.secret_vars,
        session.forks,
        runner=session.runner,
    )


def refusal(refused: Mapping[str, Lease]) -> HostsInUseError:
    """Whose leases are in the way, and what to do about it."""
    by_run = hosts_by(dict(sorted(refused.items())))
    message = "; ".join(f"{', '.join(hosts)}: {lease.holder}" for lease, hosts in by_run.items())
    first = next(iter(by_run))
    hint = f"Wait until it has finished. {release_hint(first.run)}" if first.run else release_hint("")
    return HostsInUseError(
        f"another run holds {', '.join(sorted(refused))}, and nothing was touched",
        hosts={host: lease.holder for host, lease in refused.items()},
        code="engine.leased",
        where=message,
        hint=hint,
    )


def _doing(session: Session) -> Callable[[Step], LeaseAnswers]:
    nodes = nodes_of(session)

    def do(step: Step) -> LeaseAnswers:
        if isinstance(step, RecordHolders):
            lease_book.note(session.directory, step.lease, step.hosts)
            return {}
        return nodes(step)

    return do


def _give_back(
    session: Session, lease: Lease, holding: Holding, hosts: Sequence[str], do: Callable[[Step], LeaseAnswers]
) -> None:
    """As well as can be: the run has its outcome already."""
    try:
        at_work = cut_off(session.run.journal)
        kept = {host: at_work[host] for host in hosts if host in at_work}
        _say_kept(lease, kept)
        holding.kept |= kept
        others = [host for host in hosts if host not in kept]
        outcome = run_steps(release_steps(lease, others, unasked=kept), do)
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - whatever it is, the work is done
        why = "interrupted" if isinstance(error, KeyboardInterrupt) else str(error)
        outcome = LeaseOutcome(left={host: why for host in hosts if host not in holding.kept})
    _say_left(lease, outcome.left)
    holding.kept |= outcome.left
    for host, holder in outcome.lost.items():
        holding.lost[host] = f"taken from us by {holder.holder}" if holder else "released by another run"
        console.say(f"{host}: its lease was {holding.lost[host]}, while it was changed")


def _say_kept(lease: Lease, kept: Mapping[str, str]) -> None:
    for why, hosts in hosts_by(kept).items():
        console.say(f"{format_hosts(hosts)}: the lease is kept, and other runs refused: {why}")
    if kept:
        console.say(f"the next apply from here resumes there; from elsewhere, when it has finished: "
                    f"{release_command(lease.run)}")  # fmt: skip


def _say_left(lease: Lease, left: Mapping[str, str]) -> None:
    for host, why in left.items():
        console.say(f"{host}: the lease could not be released: {why}")
    if left:
        console.say(f"the next apply from here releases it; from elsewhere: {release_command(lease.run)}")


def _still_at_work(working: Mapping[str, Sequence[str]]) -> HostsInUseError:
    hosts = sorted(working)
    return HostsInUseError(
        f"what an earlier run started still runs on {', '.join(hosts)}, and nothing was touched",
        hosts={host: f"job {', '.join(working[host])} of an earlier run" for host in hosts},
        code="engine.job-left",
        where="; ".join(f"{host}: job {', '.join(working[host])}" for host in hosts),
        hint="Wait until it has finished, then apply again; the directory that started it waits by itself.",
    )


def lost(host: str, how: str) -> Failure:
    """The failure of a host that was not ours to the end: what it is now, two runs have decided."""
    remedy = "Ask the operator of the other run what was changed; when it has finished, apply again."
    return Failure(host, TASK, f"its lease was {how}", remedy=remedy, code="engine.lease-lost")


def _at_work(host: str, jobs: Sequence[str]) -> Failure:
    message = f"job {', '.join(jobs)}, which an earlier run started, still runs on it"
    return Failure(host, TASK, message, remedy="Wait until it has finished.", code="engine.job-left")


def _failure(host: str, answer: LeaseAnswer) -> Failure:
    kind = BY_CODE.get(answer.code, OTHER)
    return Failure(host, TASK, answer.failed, remedy=kind.remedy.format(host=host), code=kind.code)
