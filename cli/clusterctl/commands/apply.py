"""`clusterctl apply`: bring hosts to what the settings declare."""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import click

from clusterctl import console
from clusterctl.cluster.access import Passwords, password_options
from clusterctl.commands import plan as plan_command
from clusterctl.commands.preflight import show
from clusterctl.engine import mutex
from clusterctl.engine.ledger import HostState
from clusterctl.engine.playbook import TIME_LIMIT_S
from clusterctl.engine.process import terminated_like_interrupted
from clusterctl.engine.recovery import left_behind, recover
from clusterctl.engine.silence import SILENCE_LIMIT_S
from clusterctl.engine.wording import counted, hosts_by, listed
from clusterctl.errors import (
    EXIT_CLUSTER_BAD,
    EXIT_GOOD,
    EXIT_INCOMPLETE,
    EXIT_INTERRUPTED,
    ClusterctlError,
    worst,
)
from clusterctl.rollout import leases, opening, parts, pulls, site, tables
from clusterctl.rollout import offline as offline_apply
from clusterctl.rollout.drift.probe import DriftProbe, DriftReport, remove_call_logs, summarize_differences
from clusterctl.rollout.preflight import PreflightReport, look
from clusterctl.rollout.scope import require_something_to_do
from clusterctl.rollout.session import Limits, Session
from clusterctl.rollout.unfinished import Unfinished
from clusterctl.rollout.waves import WavePlan, plan_waves
from clusterctl.runs.store import RunStore

NOT_RECORDED = "how it ended is not in the run's record"


@click.command("apply")
@parts.options
@click.option(
    "--canary", type=click.IntRange(min=0), default=1, show_default=True, metavar="N",
    help="So many GPU nodes go first, alone; 0 for none.",
)  # fmt: skip
@click.option(
    "--silence-limit", "silence_min", type=click.FloatRange(min=0.01), default=SILENCE_LIMIT_S / 60,
    show_default=True, metavar="MINUTES", help="A host that says nothing for so long ends its wave.",
)  # fmt: skip
@click.option(
    "--wave-limit", "wave_h", type=click.FloatRange(min=0.01), default=TIME_LIMIT_S / 3600,
    show_default=True, metavar="HOURS", help="No wave takes longer.",
)  # fmt: skip
@click.option(
    "--offline", is_flag=True, help="Refuse what reaches out of the cluster, and prove that no node did."
)
@click.option("--check", "--dry-run", is_flag=True, help="Change nothing: the same as clusterctl plan.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line on standard output.")
@password_options
@click.pass_obj
def command(
    named: Path | None,
    *,
    only: str | None,
    limit: str | None,
    reboot: bool,
    force_busy: bool,
    full: bool,
    wave: int,
    canary: int,
    silence_min: float,
    wave_h: float,
    offline: bool,
    check: bool,
    yes: bool,
    as_json: bool,
    passwords: Passwords,
) -> int:
    """Bring hosts to what the settings declare: registry first, then a canary, then the rest.

    A host that fails, cannot be reached or falls silent stops the next wave. Running it again goes on
    from where it stopped. Exit code 3: done, but for hosts that were busy.

    Hosts on which an earlier apply with the same settings succeeded are inspected first by the drift probe;
    hosts that are unchanged need nothing more. --full runs every task through Ansible.

    --offline watches every packet with which a host that is changed turns to another. Exit code 1 where one
    turned to a host that is neither of the cluster nor in site_offline_hosts, 3 where not all was heard. Who
    is not watched, since nothing is changed there, is named.
    """
    asked = parts.Asked(parts.parse(only), limit, reboot, force_busy, full, wave)
    if check and offline:
        raise click.UsageError("--offline watches what apply changes, and --check changes nothing")
    if check:
        return plan_command.run(named, asked, as_json=as_json, passwords=passwords)
    if not yes and not asked.preflight_alone:
        _refuse_without_terminal()
    chosen = opening.select(named, limit)
    if not asked.preflight_alone:
        require_something_to_do(chosen.hosts, chosen.inventory, asked.tags)
    inside = offline_apply.require_settings(chosen.inventory, chosen.hosts, asked.tags) if offline else None
    watching = offline_apply.Watching()
    store = RunStore(chosen.directory)
    declined, limits = False, Limits(wave_h * 3600, silence_min * 60)
    with mutex.held(chosen.directory, "apply"), remove_call_logs(chosen.directory):
        with opening.session(chosen, "apply", asked.arguments, passwords=passwords, as_json=as_json,
                             extra_vars=asked.extra_vars) as session:  # fmt: skip
            _recover(store, session, chosen)
            drift = DriftProbe.for_run(session, chosen, asked, passwords)
            inspected = drift.inspect()
            _say_inspected(inspected)
            report = inspected.merged(look(drift.logging_session, inspected.rest(chosen.names)))
            if report.leases and not asked.preflight_alone:
                raise leases.refusal(report.leases)
            show(report, as_json=as_json)
            outcome, unfinished, code = (
                site.SiteOutcome(WavePlan((), {})),
                Unfinished(),
                _preflight_verdict(report),
            )
            if code == EXIT_GOOD and not asked.preflight_alone:
                plan = _plan(chosen, report, asked, canaries=canary, quiet=inspected.quiet)
                _announce(plan, chosen, report, asked)
                declined = not (yes or _agreed(plan))
                if not declined:
                    outcome, watching = _change(drift, plan, asked, limits=limits, inside=inside)
                    _complete(outcome, inspected, plan, chosen)
                    code = worst(outcome.exit_code, watching.exit_code)
            if not outcome.states:
                outcome.states |= report.unfit
            watching.add_others(chosen.names if offline else (), outcome.reasons | outcome.busy)
            pulled = _pulled(chosen, outcome)
            summary = {
                **site.summary(session.run.id, chosen.names, outcome, code),
                **pulls.summary(pulled),
                **watching.summary(),
            }
            ended = {"declined": True} if declined else {"open_jobs": outcome.open_jobs}
            _keep(store, session, code, {**summary, **ended}, unfinished)
        pulls.tell(pulled)
        offline_apply.tell(watching)
        if outcome.records:
            _tell(chosen, outcome, session, code, as_json=as_json)
        _record(drift, inspected.rest(chosen.names), outcome, unfinished)
        if unfinished.sentences:
            _keep(store, session, code, {**summary, **ended}, unfinished)
            summary |= unfinished.as_record()
    if as_json:
        console.emit(summary)
    return code


def _keep(
    store: RunStore, session: Session, code: int, summary: dict[str, Any], unfinished: Unfinished
) -> None:
    """Have how it ended on disk, or say that it is not."""
    with unfinished.instead_of_failing(NOT_RECORDED):
        store.finish(session.run, code, {**summary, **unfinished.as_record()})


def _say_inspected(inspected: DriftReport) -> None:
    if inspected.quiet:
        number = counted(len(inspected.quiet), "host")
        console.say(f"{number} unchanged since the last apply, by the drift probe")
    changed = {host: summarize_differences(why) for host, why in inspected.differing.items()}
    for what, hosts in hosts_by(changed).items():
        console.say(f"{listed(hosts)}: changed since the last apply: {what}")


def _change(
    drift: DriftProbe,
    plan: WavePlan,
    asked: parts.Asked,
    *,
    limits: Limits,
    inside: offline_apply.Allowed | None,
) -> tuple[site.SiteOutcome, offline_apply.Watching]:
    """The waves, while their hosts are held, and watched where that is asked."""
    session, watching = drift.session, offline_apply.Watching()
    with leases.held(session, plan.hosts) as ours:
        drift.discard(() if ours.failures else plan.hosts)
        if ours.failures:
            outcome = site.not_begun(session, plan, ours.failures)
        else:
            with offline_apply.watched(session, plan.hosts, inside) as watching:
                outcome = site.apply_waves(
                    drift.logging_session, plan, tags=asked.tags, limits=limits, again=ours.again
                )
    outcome.add_leases(ours)
    return outcome, watching


def _record(
    drift: DriftProbe, hosts: Sequence[str], outcome: site.SiteOutcome, unfinished: Unfinished
) -> None:
    """Record those of ``hosts`` that are good now, so that the next apply need not run Ansible there."""
    if outcome.interrupted:
        return
    well = (HostState.GOOD, HostState.UNTOUCHED)
    good = [name for name in hosts if outcome.states.get(name) in well]
    ok = {name: outcome.records[name].ok if name in outcome.records else 0 for name in good}
    not_recorded: dict[str, str] = {}
    with (
        unfinished.instead_of_failing("the next apply runs Ansible on every host"),
        terminated_like_interrupted(),
    ):
        not_recorded = drift.record(ok)
    for why, alike in hosts_by(not_recorded).items():
        console.say(f"{listed(alike)}: the next apply runs Ansible there: {why}")


def _recover(store: RunStore, session: Session, chosen: opening.Selection) -> None:
    recover(
        store,
        left_behind(store, session.run),
        inventory=chosen.directory.hosts_file,
        hosts=chosen.names,
        declared=[host.name for host in chosen.inventory.hosts],
        forks=session.forks,
        run_directory=session.run.directory,
        say=console.say,
        secret_vars=session.secret_vars,
    )
    leases.recover(session, chosen.names, [host.name for host in chosen.inventory.hosts])


def _complete(
    outcome: site.SiteOutcome, inspected: DriftReport, plan: WavePlan, chosen: opening.Selection
) -> None:
    """Add the hosts that no wave touched."""
    outcome.add_quiet(inspected.quiet, inspected.reasons)
    outcome.busy |= {h: why for h, why in plan.left_out.items() if h not in chosen.outside}
    outcome.states |= dict.fromkeys(chosen.outside, HostState.UNTOUCHED)
    outcome.reasons |= chosen.outside


def _pulled(chosen: opening.Selection, outcome: site.SiteOutcome) -> list[pulls.WavePull]:
    """What the waves pulled, against what the links allow."""
    hosts = {host.name: host for host in chosen.hosts}
    return [one for one in pulls.of_waves(outcome.plan.waves, hosts, outcome.records) if one.seconds]


def _preflight_verdict(report: PreflightReport) -> int:
    if report.interrupted:
        console.say("interrupted: nothing was changed")
        return EXIT_INTERRUPTED
    if report.errors:
        console.say("nothing was changed: mend what preflight found, or quarantine the host, and apply again")
        return EXIT_CLUSTER_BAD
    return EXIT_GOOD


def _plan(
    chosen: opening.Selection,
    report: PreflightReport,
    asked: parts.Asked,
    *,
    canaries: int,
    quiet: Collection[str],
) -> WavePlan:
    inventory = chosen.inventory
    busy = {
        host.name: f"busy: {report.busy[host.name]}"
        for host in chosen.hosts
        if host.name in report.busy and not asked.allowed("force_busy", host)
    }
    return plan_waves(
        [name for name in chosen.names if name not in quiet],
        registry=[host.name for host in inventory.registry_hosts],
        gpu_nodes=[host.name for host in inventory.gpu_nodes],
        left_out={**busy, **chosen.outside},
        canaries=canaries,
        size=asked.wave,
    )


def _announce(plan: WavePlan, chosen: opening.Selection, report: PreflightReport, asked: parts.Asked) -> None:
    """One line of what is about to be done to how many hosts; then who stays out, who may reboot."""
    what = ", ".join(asked.tags or parts.TAGS)
    waves = "; ".join(f"{wave.name}: {listed(wave.hosts)}" for wave in plan.waves) or "none"
    hosts, number = counted(len(plan.hosts), "host"), counted(len(plan.waves), "wave")
    if plan.hosts or plan.left_out:
        console.say(f"apply {what} to {hosts} in {number}: {waves}")
    for host, why in plan.left_out.items():
        hint = "" if host in chosen.outside else " (--force-busy goes on all the same)"
        console.say(f"{host}: left out, {why}{hint}")
    if not asked.tags or "driver" in asked.tags:
        nodes = [host for host in chosen.inventory.gpu_nodes if host.name in plan.hosts]
        may = [host.name for host in nodes if asked.allowed("reboot", host)]
        if may:
            console.say(f"hosts that may be rebooted: {listed(may)}")
        disturbed = [h.name for h in nodes if h.name in report.busy]
        if disturbed:
            console.say(f"hosts that are busy, and are changed all the same: {listed(disturbed)}")


def _agreed(plan: WavePlan) -> bool:
    agreed = not plan.hosts or click.confirm(f"Change {counted(len(plan.hosts), 'host')}?", err=True)
    if not agreed:
        console.say("nothing was changed")
    return agreed


def _refuse_without_terminal() -> None:
    """Before any host is touched, not after minutes of preflight."""
    if not sys.stdin.isatty():
        raise ClusterctlError(
            "apply asks before it changes hosts, and there is no terminal to ask on",
            code="apply.not-confirmed",
            hint="Add --yes in scripts, or see first what would change: clusterctl plan",
        )


def _tell(
    chosen: opening.Selection, outcome: site.SiteOutcome, session: Session, code: int, *, as_json: bool
) -> None:
    """Failures in full, then how each host stands, then what to do next."""
    tables.tell_failures(outcome.failures)
    if not as_json:
        tables.show(tables.hosts_table(chosen.names, outcome))
    if outcome.interrupted:
        console.say("interrupted: what a task began on a node may still run there")
        for one in outcome.records.values():
            for job in one.jobs.values():
                console.say(f"{one.name}: job {job.job_id} goes on by itself; the next apply waits for it")
    elif outcome.stopped:
        later = any(not outcome.states.keys() & set(wave.hosts) for wave in outcome.plan.waves)
        console.say(f"stopped: {outcome.stopped}" + ("; later waves were not begun" if later else ""))
    for host, why in outcome.reboots.items():
        console.say(f"{host} wants a reboot: {why} (clusterctl apply --reboot)")
    if outcome.exit_code == EXIT_INCOMPLETE:
        console.say("done, but for the hosts that are busy")
    if any(state is not HostState.GOOD for state in outcome.states.values()) or code != EXIT_GOOD:
        console.say(f"the whole of what Ansible said: {session.run.path('ansible.log')}")
