"""`clusterctl registry`: the cluster's Harbor, what is declared of it, its secrets, its backups."""

from __future__ import annotations

import click

from clusterctl.commands.registry import apply, backup, plan, restore, rotate, upgrade


@click.group("registry")
def command() -> None:
    """Configure, back up and upgrade the cluster's Harbor."""


for one in (
    plan.command, apply.command, rotate.command, backup.command, restore.command, upgrade.command
):  # fmt: skip
    command.add_command(one)
