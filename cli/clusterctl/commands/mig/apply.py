"""`clusterctl mig apply`: divide GPUs as declared."""

from __future__ import annotations

from pathlib import Path

import click

from clusterctl.cluster.access import Passwords, password_options
from clusterctl.commands import apply
from clusterctl.commands.shared.options import (
    canary_option,
    force_busy_option,
    json_option,
    limit_option,
    wait_option,
    yes_option,
)
from clusterctl.commands.shared.runner import pass_runner
from clusterctl.engine.playbook import Runner
from clusterctl.rollout.apply_request import ApplyRequest
from clusterctl.rollout.parts import MIG, Asked
from clusterctl.rollout.waiting import Wait


@click.command("apply")
@limit_option
@force_busy_option
@canary_option
@wait_option
@yes_option
@json_option
@password_options
@pass_runner
@click.pass_obj
def command(
    named: Path | None,
    *,
    limit: str | None,
    force_busy: bool,
    canary: int,
    wait_s: float,
    yes: bool,
    as_json: bool,
    passwords: Passwords,
    runner: Runner,
) -> int:
    """Divide GPUs by MIG as declared, a canary first; the same as `apply --only mig`.

    Declared instances that are there stay; only those in the way are destroyed. Busy hosts are skipped (exit
    code 3). Running it again continues where it stopped.
    """
    request = ApplyRequest(
        cluster=named,
        asked=Asked(only=(MIG,), limit=limit, force_busy=force_busy),
        canaries=canary,
        wait=Wait(wait_s),
        as_json=as_json,
        passwords=passwords,
    )
    return apply.run(request, yes=yes, runner=runner)
