"""`clusterctl hosts`: reach, pin, add, replace and quarantine hosts."""

from __future__ import annotations

import click

from clusterctl.commands.hosts import declared, keys


@click.group("hosts")
def command() -> None:
    """Reach, pin, add, replace and quarantine hosts."""


for one in (
    declared.list_,
    keys.scan_,
    declared.add,
    keys.replace_,
    declared.remove,
    declared.forget,
    declared.quarantine_,
    declared.release,
):
    command.add_command(one)
