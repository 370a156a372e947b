"""`clusterctl registry plan`: how Harbor differs from what is declared."""

from __future__ import annotations

from pathlib import Path

import click

from clusterctl import console
from clusterctl.commands.registry import output
from clusterctl.commands.registry.reached import adopt_option, prove_option, prune_option, reached, settings
from clusterctl.commands.shared.options import json_option
from clusterctl.registry.harbor import reconcile


@click.command("plan")
@prune_option
@prove_option
@adopt_option
@json_option
@click.pass_obj
def command(named: Path | None, *, prune: bool, prove: bool, adopt: bool, as_json: bool) -> int:
    """Show, object by object, how Harbor differs from what is declared. Changes nothing.

    Undeclared objects are named and not changed. Exit code 1 if a declaration can never be met: the message
    gives the reason.
    """
    found = settings(named)
    with reached(found, prune=prune, prove=prove, adopt=adopt) as site:
        reconcile.configure(site, reading=True)
        plan = reconcile.plan(site, found.declared)
        calls = site.client.calls
    code = plan.exit_code
    if as_json:
        output.emit_plan(plan)
        console.emit(output.summary(plan, code, calls))
        return code
    output.show_plan(plan)
    console.write(output.sentence(plan) + "\n")
    return code
