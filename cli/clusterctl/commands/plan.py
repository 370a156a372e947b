"""`clusterctl plan`: show what apply would change."""

from __future__ import annotations

from pathlib import Path

import click

from clusterctl import console
from clusterctl.cluster.access import Passwords, password_options
from clusterctl.commands import preflight
from clusterctl.commands.shared.options import json_option, site_options
from clusterctl.commands.shared.runner import pass_runner
from clusterctl.engine.ledger import BAD
from clusterctl.engine.playbook import Runner
from clusterctl.engine.wording import counted
from clusterctl.rollout import opening, parts, pulls, site, tables
from clusterctl.rollout.drift.probe import DriftProbe
from clusterctl.rollout.scope import require_something_to_do
from clusterctl.rollout.waves import Wave, WavePlan, plan_waves
from clusterctl.runs.syslog import anchored_store


@click.command("plan")
@site_options
@json_option
@password_options
@pass_runner
@click.pass_obj
def command(
    named: Path | None,
    *,
    asked: parts.Asked,
    as_json: bool,
    passwords: Passwords,
    runner: Runner,
) -> int:
    """Show, host by host, what apply would change. Changes nothing.

    Like apply it first inspects, with the drift probe, the hosts on which an earlier apply with the same
    settings succeeded.
    """
    return run(named, asked, as_json=as_json, passwords=passwords, runner=runner)


def run(
    named: Path | None, asked: parts.Asked, *, as_json: bool, passwords: Passwords, runner: Runner
) -> int:
    """Check mode over all hosts of a kind at once: nothing can break, so there is no canary.

    Each kind has a process of its own, since Ansible ends a playbook where all hosts of one play fail.
    """
    if asked.preflight_alone:
        return preflight.run(named, asked.limit, as_json=as_json, passwords=passwords, runner=runner)
    chosen = opening.select(named, asked.limit)
    require_something_to_do(chosen.hosts, chosen.inventory, asked.tags)
    for name, why in chosen.outside.items():
        console.say(f"{name}: skipped, {why}")
    hosts = tuple(name for name in chosen.names if name not in chosen.outside)
    with opening.session(chosen, "plan", asked.arguments, passwords=passwords, as_json=as_json,
                         extra_vars=asked.extra_vars, runner=runner) as session:  # fmt: skip
        inspected = DriftProbe.for_run(session, chosen, asked, passwords).inspect()
        rest = inspected.rest(hosts)
        plan = WavePlan(
            _waves(chosen, rest, max(len(rest), 1), canaries=0),
            {**chosen.quarantined, **chosen.outside},
        )
        outcome = site.apply_waves(session, plan, tags=asked.tags, check=True)
        outcome.add_quiet(inspected.quiet, inspected.reasons)
        code = outcome.exit_code
        summary = site.summary(session.run.id, chosen.names, outcome, code)
        pulled = _pulls(chosen, rest, asked, outcome)
        summary |= pulls.summary(pulled)
        anchored_store(chosen.inventory).finish(session.run, code, summary)
    if as_json:
        for one in outcome.records.values():
            texts = tables.diff_texts(one)
            for change in dict.fromkeys(one.changes):
                diffs = [text for title, text in texts if title == change]
                console.emit({"type": "change", "host": one.name, "task": change, "diff": diffs})
        console.emit(summary)
        return code
    good = {name: one for name, one in outcome.records.items() if outcome.states[name] not in BAD}
    tables.show(tables.planned(good))
    for pull in pulled:
        console.RESULTS.print(f"images, {pulls.predicted(pull)}", soft_wrap=True)
    tables.tell_failures(outcome.failures)
    for name, state in outcome.states.items():
        if state in BAD and outcome.records[name].failure is None:
            console.say(f"{name}: {state.value}: {outcome.reasons[name]}")
    for name, why in outcome.reboots.items():
        console.say(f"{name} would need a reboot: {why}")
    would = sum(1 for one in good.values() if one.changes)
    console.RESULTS.print(
        f"plan for {counted(len(hosts), 'host')}: "
        f"{counted(summary['changed'], 'change')} on {counted(would, 'host')}, "
        f"{summary['failed']} failed, {summary['unreachable']} unreachable",
    )
    return code


def _waves(
    chosen: opening.Selection, hosts: tuple[str, ...], size: int, canaries: int = 1
) -> tuple[Wave, ...]:
    return plan_waves(
        hosts,
        registry=[host.name for host in chosen.inventory.registry_hosts],
        gpu_nodes=[host.name for host in chosen.inventory.gpu_nodes],
        canaries=canaries,
        size=size,
    ).waves


def _pulls(
    chosen: opening.Selection, hosts: tuple[str, ...], asked: parts.Asked, outcome: site.SiteOutcome
) -> list[pulls.WavePull]:
    """What the waves of an apply would pull, and the least time that would take."""
    waves = _waves(chosen, hosts, asked.wave)
    by_name, locked = {host.name: host for host in chosen.hosts}, pulls.locked_layers(chosen.directory)
    return pulls.of_waves(waves, by_name, outcome.records, locked)
