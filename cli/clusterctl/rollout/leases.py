"""One operator at a time on a node, whatever controller he works from."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from clusterctl import console
from clusterctl.engine import lease_book
from clusterctl.engine.failure import Failure
from clusterctl.engine.failure_kinds import OTHER, kind_of
from clusterctl.engine.lease import Lease, lease_of
from clusterctl.engine.lease_nodes import LeaseNodes
from clusterctl.engine.lease_protocol import Answers, Note, Outcome, Step, carry_out, freeing, taking
from clusterctl.engine.process import terminated_like_interrupted
from clusterctl.errors import ClusterctlError
from clusterctl.rollout.session import Session

TASK = "Take the lease"


@contextlib.contextmanager
def held(session: Session, hosts: Sequence[str]) -> Iterator[Sequence[Failure]]:
    """Hold ``hosts`` while they are changed; they are given back however the block ends.

    Hands out the failures of hosts that could not be asked: then nothing is held, and nothing may be changed.
    Raises ClusterctlError (``engine.leased``, exit 2: who, where, what, since when) where others are at work.
    """
    if not hosts:
        yield ()
        return
    lease, do = lease_of(session.run, session.directory), _doing(session)
    with terminated_like_interrupted():
        outcome = carry_out(taking(lease, hosts), do)
        _say_left(lease, outcome)
        if outcome.refused:
            raise refusal(outcome.refused)
        if outcome.failed:
            yield [_failure(host, why) for host, why in sorted(outcome.failed.items())]
            return
        try:
            yield ()
        finally:
            _give_back(lease, hosts, do)


def recover(session: Session, hosts: Collection[str], declared: Collection[str]) -> None:
    """Give back what runs of this directory that died still hold on ``hosts``. Call it holding the mutex,
    and after their jobs have ended. Nodes that are no longer ``declared`` are forgotten."""
    do = _doing(session)
    for entry in lease_book.entries(session.directory):
        reachable = [host for host in entry.hosts if host in hosts]
        elsewhere = [host for host in entry.hosts if host in declared and host not in hosts]
        if reachable:
            console.say(f"giving back {', '.join(reachable)}, left by {entry.lease.holder}")
        _say_left(entry.lease, carry_out(freeing(entry.lease, reachable, unasked=elsewhere), do))


def nodes_of(session: Session) -> LeaseNodes:
    """The nodes of a session's cluster, to ask about leases."""
    return LeaseNodes(session.directory.hosts_file, session.run.directory, session.secret_vars, session.forks)


def refusal(refused: Mapping[str, Lease]) -> ClusterctlError:
    """Whose leases are in the way, and what to do about it."""
    by_run: dict[Lease, list[str]] = {}
    for host, lease in sorted(refused.items()):
        by_run.setdefault(lease, []).append(host)
    said = "; ".join(f"{', '.join(hosts)}: {lease.holder}" for lease, hosts in by_run.items())
    first = next(iter(by_run))
    hint = (
        f"Wait until it has ended. If it has died: clusterctl unlock {first.run}"
        if first.run
        else "See that nobody works there, then remove /root/.clusterctl/lease.json on it."
    )
    return ClusterctlError(
        f"somebody else is changing {', '.join(sorted(refused))}, and nothing was touched",
        code="engine.leased",
        where=said,
        hint=hint,
    )


def _doing(session: Session) -> Callable[[Step], Answers]:
    nodes = nodes_of(session)

    def do(step: Step) -> Answers:
        if isinstance(step, Note):
            lease_book.note(session.directory, step.lease, step.hosts)
            return {}
        return nodes(step)

    return do


def _give_back(lease: Lease, hosts: Sequence[str], do: Callable[[Step], Answers]) -> None:
    try:
        _say_left(lease, carry_out(freeing(lease, hosts), do))
    except BaseException as error:
        why = "interrupted" if isinstance(error, KeyboardInterrupt) else str(error)
        _say_left(lease, Outcome(left=dict.fromkeys(hosts, why)))
        raise


def _say_left(lease: Lease, outcome: Outcome) -> None:
    for host, why in outcome.left.items():
        console.say(f"{host}: the lease could not be given back: {why}")
    if outcome.left:
        console.say(f"the next apply from here gives it back; from elsewhere: clusterctl unlock {lease.run}")


def _failure(host: str, why: str) -> Failure:
    kind = kind_of(why) or OTHER
    return Failure(host, TASK, why, remedy=kind.remedy.format(host=host), code=kind.code)
