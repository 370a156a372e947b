"""`clusterctl leases release RUN`: free the nodes of a run whose controller has died."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from clusterctl import console
from clusterctl.cluster.access import Passwords, password_options
from clusterctl.commands.shared.options import json_option, yes_option
from clusterctl.commands.shared.runner import pass_runner
from clusterctl.engine.lease import Lease, Life, life
from clusterctl.engine.lease_nodes import LeaseNodes
from clusterctl.engine.lease_protocol import LeaseAnswer, RecordHolders, release_steps, run_steps
from clusterctl.engine.playbook import Runner
from clusterctl.engine.wording import hosts_by
from clusterctl.errors import EXIT_GOOD, EXIT_INCOMPLETE, ClusterctlError
from clusterctl.rollout import opening
from clusterctl.rollout.leases import nodes_of
from clusterctl.runs.syslog import anchored_store


@click.group("leases")
def command() -> None:
    """Release leases that runs hold on nodes."""


@command.command("release")
@click.argument("run", metavar="RUN")
@yes_option
@click.option("--dead", is_flag=True, help="Confirm that the run's process has died.")
@json_option
@password_options
@pass_runner
@click.pass_obj
def release(
    named: Path | None,
    run: str,
    *,
    yes: bool,
    dead: bool,
    as_json: bool,
    passwords: Passwords,
    runner: Runner,
) -> int:
    """Release every lease of RUN, whoever started it: for a run whose controller has died.

    When apply refuses, it names the run. Leases of a run that is alive on this machine, and of nodes on
    which one of its jobs still runs, are kept. All declared nodes are contacted, also those in quarantine.
    Exit code 3 if a node could not be reached or its lease not released: it may still hold it.
    """
    if not yes and not sys.stdin.isatty():
        raise ClusterctlError(
            "`leases release` asks before it frees nodes, and there is no terminal to ask on",
            code="unlock.not-confirmed",
            hint="Add --yes in scripts.",
        )
    chosen = opening.everyone(named)
    with opening.session(
        chosen, "unlock", [run], passwords=passwords, as_json=as_json, runner=runner
    ) as session:
        nodes = nodes_of(session)
        found = nodes.show(chosen.names)
        unasked = {host: answer.failed for host, answer in found.items() if answer.failed}
        for host, why in unasked.items():
            console.say(f"{host}: it could not be asked: {why}")
        ours = {host: answer for host, answer in found.items() if answer.holder and answer.holder.run == run}
        if not ours and not unasked:
            raise _nothing_of(run, found)
        alive = _alive({host: answer.holder for host, answer in ours.items() if answer.holder}, dead=dead)
        for host, refusal in alive.items():
            console.say(f"{host}: not released: {refusal.what}, {refusal.where}. {refusal.hint}")
        jobs = {
            host: f"job {', '.join(answer.jobs)} still runs on it"
            for host, answer in ours.items()
            if answer.jobs and host not in alive
        }
        for host, why in jobs.items():
            console.say(f"{host}: not released: {why}; run this again when it has finished")
        at_work = {host: refusal.what for host, refusal in alive.items()} | jobs
        holding = {
            host: answer.holder for host, answer in ours.items() if answer.holder and host not in at_work
        }
        # A run has one lease; if nodes say otherwise, each is freed of what it showed, or not.
        leases = hosts_by(holding)
        left = unasked | at_work
        if holding and _agreed(leases, yes=yes):
            for lease, hosts in leases.items():
                left |= _free(lease, hosts, nodes)
        else:
            console.say("nothing was freed")
            left |= dict.fromkeys(holding, "it was not to be freed")
        freed = [host for host in holding if host not in left]
        code = EXIT_INCOMPLETE if left else EXIT_GOOD
        summary = {"type": "summary", "run": session.run.id, "unlocked": run, "freed": freed,
                   "left": left, "exit": code}  # fmt: skip
        anchored_store(chosen.inventory).finish(session.run, code, summary)
    if as_json:
        console.emit(summary)
    elif freed:
        console.RESULTS.print(f"freed of {run}: {', '.join(freed)}")
    return code


def _free(lease: Lease, hosts: Sequence[str], nodes: LeaseNodes) -> Mapping[str, str]:
    """Free nodes of a lease; returns those that may hold it still. The book is for runs from here to keep."""
    left = run_steps(
        release_steps(lease, hosts), lambda step: {} if isinstance(step, RecordHolders) else nodes(step)
    ).left
    for host, why in left.items():
        console.say(f"{host}: it may hold the lease still: {why}")
    return left


def _agreed(leases: Mapping[Lease, Sequence[str]], *, yes: bool) -> bool:
    """Show whose it is, since when and where, and ask."""
    for lease, hosts in leases.items():
        console.say(f"{lease.holder}, holds {', '.join(hosts)}")
        console.say(f"it was started from {lease.directory} on {lease.where}; its jobs may still run")
    return yes or console.confirm("Has it died, and should its leases be released?")


def _alive(holding: Mapping[str, Lease], *, dead: bool) -> dict[str, ClusterctlError]:
    """The nodes whose lease is of a process that may live, with why they are not released.

    What a lease says is its node's word, and counts for the nodes that show the same. Raises the first
    refusal where no node is left.
    """
    found = {
        host: refusal
        for lease, hosts in hosts_by(holding).items()
        if (refusal := _refusal(lease, dead=dead)) is not None
        for host in hosts
    }
    if found and len(found) == len(holding):
        raise next(iter(found.values()))
    return found


def _refusal(lease: Lease, *, dead: bool) -> ClusterctlError | None:
    where = f"process {lease.pid} on this machine"
    match life(lease):
        case Life.HERE:
            return ClusterctlError(
                f"{lease.holder} is still at work",
                code="unlock.alive",
                where=where,
                hint="Wait until it has finished, or end it with Ctrl-C: it releases idle nodes.",
            )
        case Life.UNSEEN if not dead:
            return ClusterctlError(
                f"whether {lease.holder} is still at work cannot be seen from here",
                code="unlock.unseen",
                where=f"{where}, of another user or in another container",
                hint="Look there, or as root. If it has certainly died: add --dead.",
            )
        case _:
            return None


def _nothing_of(run: str, found: Mapping[str, LeaseAnswer]) -> ClusterctlError:
    others = {answer.holder.holder for answer in found.values() if answer.holder}
    return ClusterctlError(
        f"no node holds a lease of {run}",
        code="unlock.no-lease",
        where=", ".join(found),
        hint=f"There is: {'; '.join(sorted(others))}." if others else "No lease at all is on them.",
    )
