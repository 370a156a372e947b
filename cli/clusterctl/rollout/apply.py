"""One apply from its request to its result: earlier runs settled, hosts changed, the next apply prepared."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from clusterctl import console
from clusterctl.engine import mutex
from clusterctl.engine.ledger import HostState
from clusterctl.engine.playbook import ANSIBLE_LOG, Runner, run_playbook
from clusterctl.engine.process import terminated_like_interrupted
from clusterctl.engine.recovery import left_behind, recover
from clusterctl.engine.wording import counted, format_hosts, hosts_by
from clusterctl.rollout import leases, offline, opening, pulls, site
from clusterctl.rollout.apply_request import ApplyRequest, Caller
from clusterctl.rollout.change import ChangeResult, Changing
from clusterctl.rollout.drift.probe import DriftProbe, DriftReport, remove_call_logs, summarize_differences
from clusterctl.rollout.preflight import PreflightReport
from clusterctl.rollout.scope import require_something_to_do
from clusterctl.rollout.session import Session
from clusterctl.rollout.unfinished import Unfinished
from clusterctl.runs.store import Run, RunStore
from clusterctl.runs.syslog import anchored_store

NOT_RECORDED = "how it ended is not in the run's record"


@dataclass(frozen=True)
class ApplyResult:
    """How an apply ended. ``declined``: the person did not confirm. ``log`` is Ansible's own output."""

    hosts: tuple[str, ...]
    exit_code: int
    report: PreflightReport
    outcome: site.SiteOutcome
    declined: bool
    watching: offline.Watching
    pulled: Sequence[pulls.WavePull]
    log: Path
    summary: Mapping[str, Any]


def apply(
    request: ApplyRequest,
    *,
    runner: Runner = run_playbook,
    caller: Caller = Caller(),  # noqa: B008 - frozen
    on_result: Callable[[ApplyResult], None] = lambda _result: None,
) -> ApplyResult:
    """Bring the hosts of a cluster to what its settings declare.

    ``on_result`` is called when the change has ended, before hosts are asked for the sake of the next apply.
    Raises ClusterctlError where nothing was changed: for the request, the settings, hosts in use.
    """
    asked = request.asked
    chosen = opening.select(request.cluster, asked.limit)
    if not asked.preflight_alone:
        require_something_to_do(chosen.hosts, chosen.inventory, asked.tags)
    allowed = (
        offline.require_settings(chosen.inventory, chosen.hosts, asked.tags) if request.offline else None
    )
    store, unfinished = anchored_store(chosen.inventory), Unfinished()
    with mutex.held(chosen.directory, "apply"), remove_call_logs(chosen.directory):
        with opening.session(chosen, "apply", asked.arguments, passwords=request.passwords,
                             as_json=request.as_json, extra_vars=asked.extra_vars,
                             runner=runner) as session:  # fmt: skip
            _recover(store, session, chosen)
            probe = DriftProbe.for_run(session, chosen, asked, request.passwords)
            inspected = probe.inspect()
            _say_inspected(inspected)
            change = Changing(request, probe, inspected, allowed, caller).run()
            result = _result(request, session, chosen, change)
            kept = {**result.summary, **_ended(change)}
            _keep(store, session.run, result.exit_code, kept, unfinished)
        on_result(result)
        _record(probe, inspected.rest(chosen.names), change.outcome, unfinished)
        if unfinished.sentences:
            _keep(store, session.run, result.exit_code, kept, unfinished)
    return replace(result, summary={**result.summary, **unfinished.as_record()})


def _result(
    request: ApplyRequest, session: Session, chosen: opening.Selection, change: ChangeResult
) -> ApplyResult:
    """The result; hosts that no wave touched are in it, too."""
    outcome, watching = change.outcome, change.watching
    if not outcome.states:
        outcome.states |= change.report.unfit
    watching.add_others(chosen.names if request.offline else (), outcome.reasons | outcome.busy)
    pulled = _pulled(chosen, outcome)
    summary = {
        **site.summary(session.run.id, chosen.names, outcome, change.exit_code),
        **pulls.summary(pulled),
        **watching.summary(),
    }
    return ApplyResult(
        hosts=chosen.names,
        exit_code=change.exit_code,
        report=change.report,
        outcome=outcome,
        declined=change.declined,
        watching=watching,
        pulled=pulled,
        log=session.run.path(ANSIBLE_LOG),
        summary=summary,
    )


def _pulled(chosen: opening.Selection, outcome: site.SiteOutcome) -> list[pulls.WavePull]:
    """What the waves pulled, against what the links allow."""
    hosts = {host.name: host for host in chosen.hosts}
    return [one for one in pulls.of_waves(outcome.plan.waves, hosts, outcome.records) if one.seconds]


def _ended(change: ChangeResult) -> dict[str, Any]:
    return {"declined": True} if change.declined else {"open_jobs": change.outcome.open_jobs}


def _keep(store: RunStore, run: Run, code: int, summary: dict[str, Any], unfinished: Unfinished) -> None:
    """Write to disk how it ended, or say that it is not there."""
    with unfinished.collect_errors(NOT_RECORDED):
        store.finish(run, code, {**summary, **unfinished.as_record()})


def _say_inspected(inspected: DriftReport) -> None:
    if inspected.quiet:
        number = counted(len(inspected.quiet), "host")
        console.say(f"{number} unchanged since the last apply, by the drift probe")
    changed = {host: summarize_differences(why) for host, why in inspected.differing.items()}
    for what, hosts in hosts_by(changed).items():
        console.say(f"{format_hosts(hosts)}: changed since the last apply: {what}")


def _record(
    probe: DriftProbe, hosts: Collection[str], outcome: site.SiteOutcome, unfinished: Unfinished
) -> None:
    """Record those of ``hosts`` that are good now, so that the next apply need not run Ansible there."""
    if outcome.interrupted:
        return
    well = (HostState.GOOD, HostState.UNTOUCHED)
    good = [name for name in hosts if outcome.states.get(name) in well]
    ok = {name: outcome.records[name].ok if name in outcome.records else 0 for name in good}
    not_recorded: dict[str, str] = {}
    with (
        unfinished.collect_errors("the next apply runs Ansible on every host"),
        terminated_like_interrupted(),
    ):
        not_recorded = probe.record(ok)
    for why, alike in hosts_by(not_recorded).items():
        console.say(f"{format_hosts(alike)}: the next apply runs Ansible there: {why}")


def _recover(store: RunStore, session: Session, chosen: opening.Selection) -> None:
    """Settle what earlier runs of this directory left on nodes: jobs first, then leases."""
    declared = {host.name for host in chosen.inventory.hosts}
    recover(
        store,
        left_behind(store, session.run, declared),
        inventory=chosen.directory.hosts_file,
        hosts=chosen.names,
        declared=declared,
        forks=session.forks,
        run_directory=session.run.directory,
        say=console.say,
        secret_vars=session.secret_vars,
        runner=session.runner,
    )
    leases.recover(session, chosen.names, declared)
