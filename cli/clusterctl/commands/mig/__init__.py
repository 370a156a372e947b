"""`clusterctl mig`: the MIG layout of GPUs, declared in hardware_mig."""

from __future__ import annotations

import click

from clusterctl.commands.mig import apply, plan, status


@click.group("mig")
def command() -> None:
    """Divide GPUs by MIG as declared in hardware_mig."""


for one in (plan.command, apply.command, status.command):
    command.add_command(one)
