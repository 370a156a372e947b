"""`clusterctl registry upgrade`: Harbor to the declared release, after a verified backup."""

from __future__ import annotations

from pathlib import Path

import click

from clusterctl.cluster.access import Passwords, password_options
from clusterctl.commands.registry import host
from clusterctl.commands.shared.options import json_option, yes_option
from clusterctl.commands.shared.runner import pass_runner
from clusterctl.engine.playbook import Runner
from clusterctl.rollout.registry_host import RegistryOperation

QUESTION = "Back up Harbor on {host} and upgrade it to the declared release? It is down for minutes."


@click.command("upgrade")
@click.option(
    "--database-backed-up",
    is_flag=True,
    help="With harbor_external_database: confirm that you backed it up; backups of Harbor do not contain it.",
)
@click.option("--check", "--dry-run", is_flag=True, help="Change nothing; check that it could start.")
@yes_option
@json_option
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
    """Upgrade Harbor to harbor_version, with the installer that is declared for it.

    An upgrade path that Harbor does not document is refused before anything is changed. The backup is
    verified first; Harbor's own tool migrates a copy of the settings, and may refuse: the old release then
    keeps running. An interrupted upgrade is continued by the next upgrade or apply. The only way back is
    registry restore.
    """
    told = {"harbor_database_backed_up": True} if database_backed_up else {}
    operation = RegistryOperation("registry upgrade", "registry_upgrade.yml", check=check, extra_vars=told)
    return host.run(named, operation, QUESTION, yes=yes, as_json=as_json, passwords=passwords, runner=runner)
