"""`clusterctl registry restore`: a backup of Harbor, put back on an empty host."""

from __future__ import annotations

from pathlib import Path

import click

from clusterctl.cluster.access import Passwords, password_options
from clusterctl.commands.registry import host
from clusterctl.commands.shared.options import json_option, yes_option
from clusterctl.commands.shared.runner import pass_runner
from clusterctl.engine.playbook import Runner
from clusterctl.rollout.registry_host import RegistryOperation

QUESTION = (
    "Whoever could write a backup decides what runs in the container of Harbor's database. "
    "Install Harbor on {host} and put {backup} back into it?"
)


@click.command("restore")
@click.option("--backup", "name", default="", metavar="NAME", help="Which backup. Default: the newest.")
@click.option("--check", "--dry-run", is_flag=True, help="Change nothing; check that it could start.")
@yes_option
@json_option
@password_options
@pass_runner
@click.pass_obj
def command(
    named: Path | None,
    *,
    name: str,
    check: bool,
    yes: bool,
    as_json: bool,
    passwords: Passwords,
    runner: Runner,
) -> int:
    """Restore a backup on an empty registry host: images and secrets, the database, then Harbor itself.

    The backup must be in harbor_backup_dir on that host, and harbor_version must be its release. A host
    with a Harbor or its data is refused. An interrupted restore is resumed; until it is complete, nothing
    else can be done with that Harbor. --check reads the whole backup. Restore only a backup that nobody else
    could write: its dump can run programs in the database's container. On a disk of that host, one that
    another than root may write or exchange is refused.
    """
    if name:
        host.require_name(name)
    told = {"harbor_backup_name": name} if name else {}
    operation = RegistryOperation("registry restore", "registry_restore.yml", check=check, extra_vars=told)
    question = QUESTION.replace("{backup}", name or "the newest backup there")
    return host.run(named, operation, question, yes=yes, as_json=as_json, passwords=passwords, runner=runner)
