"""The closing words of an apply: what was done, what was not, and what to do next."""

from __future__ import annotations

from clusterctl import console
from clusterctl.engine.ledger import HostState
from clusterctl.engine.wording import format_hosts
from clusterctl.errors import EXIT_GOOD, EXIT_INCOMPLETE
from clusterctl.rollout import offline, pulls, tables
from clusterctl.rollout.apply import ApplyResult


def tell(result: ApplyResult, *, as_json: bool) -> None:
    """Say how an apply ended; the table of hosts is for people."""
    if why := _unchanged(result):
        console.say(why)
    pulls.tell(result.pulled)
    offline.tell(result.watching)
    if result.outcome.records or result.outcome.busy:
        _tell_hosts(result, as_json=as_json)


def _unchanged(result: ApplyResult) -> str:
    """Why no host was to be changed; empty where hosts were, or would have been if they were not busy."""
    if result.report.interrupted:
        return "interrupted: nothing was changed"
    if result.report.errors:
        return "nothing was changed: fix what preflight found, or quarantine the host, and apply again"
    return "nothing was changed" if result.declined else ""


def _tell_hosts(result: ApplyResult, *, as_json: bool) -> None:
    """Failures in full, then the state of each host, then what to do next."""
    outcome = result.outcome
    tables.tell_failures(outcome.failures)
    if not as_json:
        tables.show(tables.hosts_table(result.hosts, outcome))
    if outcome.interrupted:
        console.say("interrupted: what a task started on a node may still run there")
        for one in outcome.records.values():
            for job in one.jobs.values():
                console.say(f"{one.name}: job {job.job_id} continues by itself; the next apply waits for it")
    elif outcome.stopped:
        later = any(not outcome.states.keys() & set(wave.hosts) for wave in outcome.plan.waves)
        console.say(f"stopped: {outcome.stopped}" + ("; later waves were not started" if later else ""))
    for host, why in outcome.reboots.items():
        console.say(f"{host} needs a reboot: {why} (clusterctl apply --reboot)")
    if outcome.exit_code == EXIT_INCOMPLETE:
        _tell_busy(result)
    if any(state is not HostState.GOOD for state in outcome.states.values()) or result.exit_code != EXIT_GOOD:
        console.say(f"full Ansible log: {result.log}")


def _tell_busy(result: ApplyResult) -> None:
    outcome = result.outcome
    stopped = (host for host, state in outcome.states.items() if state is HostState.BUSY)
    busy = format_hosts({*outcome.busy, *stopped})
    message = (
        f"done; skipped because busy: {busy}" if outcome.records else f"nothing was changed: {busy} busy"
    )
    console.say(f"{message} (clusterctl apply --wait 30m waits for busy hosts)")
