"""`clusterctl registry apply`: make Harbor what is declared."""

from __future__ import annotations

from pathlib import Path

import click

from clusterctl import console
from clusterctl.commands.registry import output
from clusterctl.commands.registry.reached import adopt_option, prove_option, prune_option, reached, settings
from clusterctl.commands.shared.options import json_option, yes_option
from clusterctl.commands.shared.question import agreed
from clusterctl.engine import mutex
from clusterctl.errors import EXIT_CLUSTER_BAD
from clusterctl.registry.harbor import reconcile


@click.command("apply")
@prune_option
@prove_option
@adopt_option
@yes_option
@json_option
@click.pass_obj
def command(named: Path | None, *, prune: bool, prove: bool, adopt: bool, yes: bool, as_json: bool) -> int:
    """Configure Harbor as the settings declare.

    A second run changes nothing. If an object fails, the others are still configured. An upstream that
    Harbor cannot reach is deferred, with what depends on it: exit code 3; run it again later. Secrets of
    robots are generated here and kept in .clusterctl/secrets/registry-robots.json, or passed to
    registry_robots_secret_command.
    """
    found = settings(named)
    with (
        mutex.held(found.cluster, "registry apply"),
        reached(found, prune=prune, prove=prove, adopt=adopt) as site,
    ):
        reconcile.configure(site)
        plan = reconcile.plan(site, found.declared)
        if plan.changes and not as_json:
            output.show_plan(plan)
        elif not as_json:
            output.tell_remarks(plan.remarks)
        if plan.changes and not agreed(output.question(plan, found.access.url), yes=yes):
            console.say("nothing was changed")
            return EXIT_CLUSTER_BAD
        applied = reconcile.apply(site, plan, output.each_outcome(as_json=as_json))
        calls = site.client.calls
    output.tell_end(applied, calls, nothing=output.sentence(plan), as_json=as_json)
    return applied.exit_code
