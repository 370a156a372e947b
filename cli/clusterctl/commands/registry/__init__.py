"""`clusterctl registry`: the cluster's Harbor, what is declared of it, and its secrets."""

from __future__ import annotations

import click

from clusterctl.commands.registry import apply, plan, rotate


@click.group("registry")
def command() -> None:
    """What is declared of the cluster's Harbor: projects, upstreams, robots, schedules."""


for one in (plan.command, apply.command, rotate.command):
    command.add_command(one)
