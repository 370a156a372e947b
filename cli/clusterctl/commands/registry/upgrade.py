"""`clusterctl registry upgrade`: Harbor to the declared release, after a verified backup."""

from __future__ import annotations

from pathlib import Path

import click

from clusterctl.cluster.access import Passwords, password_options
from clusterctl.commands.hosts.options import yes_option
from clusterctl.commands.registry import host
from clusterctl.commands.shared.runner import pass_runner
from clusterctl.engine.playbook import Runner
from clusterctl.rollout.registry_host import RegistryOperation

QUESTION = "Back up Harbor on {host} and bring it to the declared release? It is down for minutes."


@click.command("upgrade")
@click.option(
    "--database-backed-up",
    is_flag=True,
    help="With harbor_external_database: your word that it was backed up; no backup of Harbor has it.",
)
@click.option("--check", "--dry-run", is_flag=True, help="Change nothing; see that it could be begun.")
@yes_option
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line on standard output.")
@password_options
@pass_runner
@click.pass_obj
def command(
    named: Path | None,
    *,
    database_backed_up: bool,
    check: bool,
    yes: bool,
    as_json: bool,
    passwords: Passwords,
    runner: Runner,
) -> int:
    """Bring Harbor to the release that harbor_version declares, with its installer declared beside it.

    A step that Harbor does not document is refused before anything is touched. The backup is read again as
    a whole first; Harbor's own tool migrates a copy of the settings, and may refuse: what was there runs on
    then. One that was interrupted goes on with the next upgrade or apply. There is no way back but registry
    restore.
    """
    told = {"harbor_database_backed_up": True} if database_backed_up else {}
    operation = RegistryOperation("registry upgrade", "registry_upgrade.yml", check=check, extra_vars=told)
    return host.run(named, operation, QUESTION, yes=yes, as_json=as_json, passwords=passwords, runner=runner)
