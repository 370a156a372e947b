"""One operator at a time on a node, whatever controller he works from."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from clusterctl import console
from clusterctl.engine import lease_book
from clusterctl.engine.lease import Lease, lease_of
from clusterctl.engine.lease_nodes import LeaseNodes
from clusterctl.engine.lease_protocol import Answers, Note, Outcome, Step, carry_out, freeing, taking
from clusterctl.engine.process import terminated_like_interrupted
from clusterctl.errors import EXIT_CLUSTER_BAD, ClusterctlError
from clusterctl.rollout.session import Session


@contextlib.contextmanager
def held(session: Session, hosts: Sequence[str]) -> Iterator[None]:
    """Hold ``hosts`` while they are changed; they are given back however the block ends.

    Raises ClusterctlError (``engine.leased``, exit 2: who, where, what, since when;
    ``engine.lease-failed``, exit 1: a node could not be asked). Then nothing is held.
    """
    if not hosts:
        yield
        return
    lease, do = lease_of(session.run, session.directory), _doing(session)
    with terminated_like_interrupted():
        outcome = carry_out(taking(lease, hosts), do)
        _say_left(lease, outcome)
        if outcome.refused:
            raise refusal(outcome.refused)
        if outcome.failed:
            raise _failure(outcome)
        try:
            yield
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
        carry_out(freeing(entry.lease, reachable, unasked=elsewhere), do)


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


def _failure(outcome: Outcome) -> ClusterctlError:
    host, why = next(iter(sorted(outcome.failed.items())))
    others = f" (and {len(outcome.failed) - 1} more)" if len(outcome.failed) > 1 else ""
    return ClusterctlError(
        f"the lease on {host}{others} could not be taken, and nothing was changed: {why}",
        code="engine.lease-failed",
        where=", ".join(sorted(outcome.failed)),
        hint=f"Mend it, or go on without it: clusterctl hosts quarantine {host} --reason WHY.",
        exit_code=EXIT_CLUSTER_BAD,
    )
