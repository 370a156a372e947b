"""`clusterctl mig plan`: what would change, and the declared layouts as other programs write them."""

from __future__ import annotations

from pathlib import Path

import click

from clusterctl import console
from clusterctl.cluster.access import Passwords, password_options
from clusterctl.cluster.mig_formats import FORMATS
from clusterctl.commands import plan
from clusterctl.commands.shared.options import json_option, limit_option
from clusterctl.commands.shared.runner import pass_runner
from clusterctl.engine.playbook import Runner
from clusterctl.rollout import mig, opening
from clusterctl.rollout.parts import MIG, Asked


@click.command("plan")
@limit_option
@click.option(
    "--format", "output", type=click.Choice(list(FORMATS)),
    help="Print the declared layouts in this format; no host is contacted.",
)  # fmt: skip
@json_option
@password_options
@pass_runner
@click.pass_obj
def command(
    named: Path | None,
    *,
    limit: str | None,
    output: str | None,
    as_json: bool,
    passwords: Passwords,
    runner: Runner,
) -> int:
    """Show, GPU by GPU, what `mig apply` would change. Changes nothing.

    --format prints the layouts for others: a configuration of nvidia-mig-parted, the lines of Slurm's
    gres.conf and slurm.conf, or the labels of Kubernetes nodes. It needs hardware_gpu_count.
    """
    if output:
        if as_json:
            raise click.UsageError("--format prints a file of its own, and --json lines")
        console.write(FORMATS[output](mig.declared_layouts(opening.select(named, limit).hosts)))
        return 0
    return plan.run(
        named, Asked(only=(MIG,), limit=limit), as_json=as_json, passwords=passwords, runner=runner
    )
