"""What `registry backup`, `restore` and `upgrade` have in common: the question, and what is told."""

from __future__ import annotations

import re
from pathlib import Path

from clusterctl import console
from clusterctl.cluster.access import Passwords
from clusterctl.commands.shared.question import agreed
from clusterctl.engine.playbook import Runner
from clusterctl.errors import EXIT_CLUSTER_BAD, EXIT_GOOD, ClusterctlError
from clusterctl.rollout import opening, registry_host, tables
from clusterctl.rollout.registry_host import OperationResult, RegistryOperation

SHOWN = 3
# As harbor_backup names them.
NAME = re.compile(r"[0-9]{8}T[0-9]{6}Z")


def run(
    named: Path | None,
    operation: RegistryOperation,
    question: str,
    *,
    yes: bool,
    as_json: bool,
    passwords: Passwords,
    runner: Runner,
) -> int:
    """Ask, do it, tell how it ended. ``question`` may name {host}; empty asks nothing."""
    chosen = opening.select_for_registry(named)
    host = registry_host.harbor_host(chosen)
    if question and not operation.check and not agreed(question.format(host=host.name), yes=yes):
        if not yes:
            console.say("nothing was changed")
        return EXIT_CLUSTER_BAD
    result = registry_host.run_operation(
        chosen, host, operation, passwords=passwords, as_json=as_json, runner=runner
    )
    tables.tell_failures(result.failures)
    if as_json:
        console.emit(result.as_record())
    else:
        _tell(result, check=operation.check)
    if result.exit_code != EXIT_GOOD:
        console.say(f"full Ansible log: {registry_host.log_of(chosen, result)}")
    return result.exit_code


def require_name(name: str) -> None:
    """Refuse what is not a name of a backup. Raises ClusterctlError (``registry.no-backup``, exit 2)."""
    if not NAME.fullmatch(name):
        raise ClusterctlError(
            f"{name!r} is not a name of a backup",
            code="registry.no-backup",
            hint="They are named by their time, as 20260131T120000Z; leave it away for the newest.",
        )


def _tell(result: OperationResult, *, check: bool) -> None:
    answer = result.said
    if answer.get("files"):
        size = (
            f"{answer['files']} files, {answer.get('bytes', 0) / 1e9:.2f} GB"
            f" of Harbor {answer.get('version') or 'of an unknown release'}"
        )
        still = f"; read-only for {answer['read_only_s']} s" if "read_only_s" in answer else ""
        console.write(f"{answer['backup']} on {result.host}: {size}, verified{still}\n")
        if answer.get("database") == "external":
            console.say("the database is the site's own, and is not in it")
        if answer.get("storage", registry_host.HARBORS_FILES) != registry_host.HARBORS_FILES:
            console.say(f"images are in the site's own storage ({answer['storage']}), and are not in it")
    elif answer:
        console.write(f"{answer['backup']} on {result.host}\n")
    damaged = list(answer.get("damaged") or ())
    if damaged:
        more = f" and {len(damaged) - SHOWN} more" if len(damaged) > SHOWN else ""
        console.say(f"damaged in Harbor itself before the backup: {', '.join(damaged[:SHOWN])}{more}")
        console.say("push those layers again: a pull of an image that has one fails")
    if check and result.exit_code == EXIT_GOOD:
        console.say("nothing was changed; it could be started")
