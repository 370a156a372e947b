"""`clusterctl registry rotate`: new secrets for robot accounts."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path

import click

from clusterctl import console
from clusterctl.cluster.suggestion import did_you_mean
from clusterctl.commands.registry import output
from clusterctl.commands.registry.reached import reached, settings
from clusterctl.commands.shared.options import json_option, yes_option
from clusterctl.commands.shared.question import agreed
from clusterctl.engine import mutex
from clusterctl.engine.wording import counted
from clusterctl.errors import EXIT_CLUSTER_BAD, ClusterctlError
from clusterctl.registry.harbor import projects, reconcile, robots
from clusterctl.registry.harbor.declared import Robot
from clusterctl.registry.harbor.robot_accounts import FOR_EVER
from clusterctl.registry.harbor.site import Found, Site
from clusterctl.registry.harbor.vault import now


@click.command("rotate")
@click.argument("names", nargs=-1, metavar="[ROBOT]...")
@click.option("--all", "every", is_flag=True, help="All declared robots.")
@click.option(
    "--expiring",
    type=click.IntRange(0, 36500),
    metavar="DAYS",
    help="Robots that expire within this many days, or have expired.",
)
@yes_option
@json_option
@click.pass_obj
def command(
    named: Path | None, *, names: tuple[str, ...], every: bool, expiring: int | None, yes: bool, as_json: bool
) -> int:
    """Give robot accounts a new secret, and a new expiry: the declared lifetime from today.

    A robot of a project is named PROJECT+ROBOT. The old secret is void immediately: copy the new one to the
    nodes with clusterctl apply. An interrupted run is completed by clusterctl registry apply. Nothing else
    of a robot changes. Robots that were not created here are skipped unless they are named.
    """
    if bool(names) + every + (expiring is not None) != 1:
        raise click.UsageError("Name robots, or give one of --all and --expiring.")
    found = settings(named)
    declared = _chosen(found.declared.registry_robots, names)
    with mutex.held(found.cluster, "registry rotate"), reached(found) as site:
        reconcile.configure(site)
        there = _look(site, declared)
        if expiring is not None:
            end = (now() + timedelta(days=expiring)).timestamp()
            declared = [
                one for one in declared if FOR_EVER < there[one.key].get("expires_at", FOR_EVER) < end
            ]
        plan = reconcile.ReconcilePlan()
        plan.add(robots.renewals(site, declared, there, named=bool(names)))
        output.tell_remarks(plan.remarks)
        question = f"Make the secrets of {counted(len(plan.changes), 'robot')} void and give them new ones?"
        if plan.changes and not agreed(question, yes=yes):
            console.say("nothing was changed")
            return EXIT_CLUSTER_BAD
        applied = reconcile.apply(site, plan, output.each_outcome(as_json=as_json))
        calls = site.client.calls
    output.tell_end(applied, calls, nothing="nothing to do", as_json=as_json)
    return applied.exit_code


def _chosen(declared: Iterable[Robot], names: tuple[str, ...]) -> list[Robot]:
    by_key = {one.key: one for one in declared}
    for name in names:
        if name not in by_key:
            raise ClusterctlError(
                f"no robot {name} is declared",
                code="registry.no-robot",
                where="registry_robots",
                hint=did_you_mean(name, by_key) or f"Declared: {', '.join(by_key) or 'none'}.",
            )
    return [by_key[name] for name in dict.fromkeys(names)] if names else list(by_key.values())


def _look(site: Site, declared: Iterable[Robot]) -> dict[str, Found]:
    """The robots as Harbor has them. Raises ClusterctlError where one is not there yet."""
    chosen = tuple(declared)
    with site.client.keeping():
        projects.look(site, (), [one.project for one in chosen if one.project])
        there = robots.look(site, chosen, ())
    if site.unread:
        why = "; ".join(f"the project {name} cannot be read: {why}" for name, why in site.unread.items())
        raise ClusterctlError(
            site.public(why),
            code="registry.api-refused",
            where=site.client.access.url,
            hint="Name the robots that are to have a new secret, without those of these projects.",
            exit_code=EXIT_CLUSTER_BAD,
        )
    missing = [one.key for one in chosen if one.key not in there]
    if missing:
        raise ClusterctlError(
            f"Harbor does not have these robots yet: {', '.join(missing)}",
            code="registry.no-robot",
            where=site.client.access.url,
            hint="Make them first: clusterctl registry apply",
        )
    return there
