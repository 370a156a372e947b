"""`clusterctl registry backup`: images, database and secrets of Harbor, verified."""

from __future__ import annotations

from pathlib import Path

import click

from clusterctl.cluster.access import Passwords, password_options
from clusterctl.commands.registry import host
from clusterctl.commands.shared.options import json_option, yes_option
from clusterctl.commands.shared.runner import pass_runner
from clusterctl.engine.playbook import Runner
from clusterctl.rollout.registry_host import RegistryOperation

PLAYBOOK = "registry_backup.yml"
QUESTION = "Back up Harbor on {host}? It is read-only while its database is dumped."


@click.command("backup")
@click.option("--verify", is_flag=True, help="Take no backup: read an existing one completely and verify it.")
@click.option("--name", default="", metavar="NAME", help="With --verify: which backup. Default: the newest.")
@click.option("--check", "--dry-run", is_flag=True, help="Change nothing; check that it could start.")
@yes_option
@json_option
@password_options
@pass_runner
@click.pass_obj
def command(
    named: Path | None,
    *,
    verify: bool,
    name: str,
    check: bool,
    yes: bool,
    as_json: bool,
    passwords: Passwords,
    runner: Runner,
) -> int:
    """Back up Harbor on its host (harbor_backup_dir), and verify the backup.

    Images are copied while Harbor is in use; then it is read-only while its database is dumped, and
    writable again even if that fails. Layers in an earlier backup are not copied again. Exit code 1 if it
    failed, or if layers are damaged in Harbor.
    """
    if name and not verify:
        raise click.UsageError("--name needs --verify: it names the backup to read.")
    if name:
        host.require_name(name)
    if verify:
        told = {"clusterctl_registry_backup": "verify_backup", "harbor_backup_name": name}
        operation = RegistryOperation("registry backup --verify", PLAYBOOK, lasting=False, extra_vars=told)
        return host.run(named, operation, "", yes=True, as_json=as_json, passwords=passwords, runner=runner)
    operation = RegistryOperation("registry backup", PLAYBOOK, check=check)
    return host.run(named, operation, QUESTION, yes=yes, as_json=as_json, passwords=passwords, runner=runner)
