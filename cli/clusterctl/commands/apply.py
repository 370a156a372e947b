"""`clusterctl apply`: change hosts to what the settings declare."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from clusterctl import console
from clusterctl.cluster.access import Passwords, password_options
from clusterctl.commands import plan as plan_command
from clusterctl.commands import preflight
from clusterctl.commands.shared.options import (
    canary_option,
    json_option,
    site_options,
    wait_option,
    yes_option,
)
from clusterctl.commands.shared.runner import pass_runner
from clusterctl.engine.playbook import TIME_LIMIT_S, Runner
from clusterctl.engine.silence import SILENCE_LIMIT_S
from clusterctl.engine.wording import counted
from clusterctl.errors import ClusterctlError
from clusterctl.rollout import closing, parts
from clusterctl.rollout.apply import apply
from clusterctl.rollout.apply_request import ApplyRequest, Caller
from clusterctl.rollout.session import WaveLimits
from clusterctl.rollout.waiting import Wait
from clusterctl.rollout.waves import WavePlan


@click.command("apply")
@site_options
@canary_option
@click.option(
    "--silence-limit", "silence_min", type=click.FloatRange(min=0.01), default=SILENCE_LIMIT_S / 60,
    show_default=True, metavar="MINUTES",
    help="A host without output for this long ends its wave; a task fails at 90 % of it.",
)  # fmt: skip
@click.option(
    "--wave-limit", "wave_h", type=click.FloatRange(min=0.01), default=TIME_LIMIT_S / 3600,
    show_default=True, metavar="HOURS", help="Maximum duration of a wave.",
)  # fmt: skip
@wait_option
@click.option(
    "--offline", is_flag=True, help="Refuse sources outside the cluster, and prove that none was contacted."
)
@click.option("--check", "--dry-run", is_flag=True, help="Change nothing: the same as clusterctl plan.")
@yes_option
@json_option
@password_options
@pass_runner
@click.pass_obj
def command(
    named: Path | None,
    *,
    asked: parts.Asked,
    canary: int,
    silence_min: float,
    wave_h: float,
    wait_s: float,
    offline: bool,
    check: bool,
    yes: bool,
    as_json: bool,
    passwords: Passwords,
    runner: Runner,
) -> int:
    """Change hosts to what the settings declare: registry first, then a canary, then the rest.

    A host that fails, cannot be reached or falls silent stops the next wave. Running it again continues
    where it stopped. Exit code 3: done; busy hosts were skipped.

    --wait waits until no job runs on the hosts and no other run holds them, before it changes any. After the
    limit, busy hosts are skipped, and a host that another run holds refuses the apply, as without --wait.

    Hosts on which an earlier apply with the same settings succeeded are inspected first by the drift probe;
    hosts that are unchanged need nothing more. --full runs every task through Ansible.

    --offline records the outbound traffic of each host while it is changed. Exit code 1 if a host contacted
    an address that is neither in the cluster nor in site_offline_hosts, 3 if recording was incomplete.
    Hosts that are not recorded, because nothing changes there, are named.
    """
    if check and offline:
        raise click.UsageError("--offline watches what apply changes, and --check changes nothing")
    if wait_s and (check or asked.preflight_alone):
        raise click.UsageError("--wait is for hosts that are to be changed, and this changes none")
    if check:
        return plan_command.run(named, asked, as_json=as_json, passwords=passwords, runner=runner)
    request = ApplyRequest(
        cluster=named,
        asked=asked,
        canaries=canary,
        limits=WaveLimits(wave_h * 3600, silence_min * 60),
        offline=offline,
        wait=Wait(wait_s),
        as_json=as_json,
        passwords=passwords,
    )
    return run(request, yes=yes, runner=runner)


def run(request: ApplyRequest, *, yes: bool, runner: Runner) -> int:
    """Apply with what a person sees and is asked; ``yes`` has agreed before."""
    if not yes and not request.asked.preflight_alone:
        _refuse_without_terminal()
    result = apply(
        request,
        runner=runner,
        caller=Caller(
            lambda report: preflight.show(report, as_json=request.as_json),
            lambda plan: yes or _agreed(plan),
        ),
        on_result=lambda result: closing.tell(result, as_json=request.as_json),
    )
    if request.as_json:
        console.emit(result.summary)
    return result.exit_code


def _agreed(plan: WavePlan) -> bool:
    return not plan.hosts or console.confirm(f"Change {counted(len(plan.hosts), 'host')}?")


def _refuse_without_terminal() -> None:
    """Before any host is touched, not after minutes of preflight."""
    if not sys.stdin.isatty():
        raise ClusterctlError(
            "apply asks before it changes hosts, and there is no terminal to ask on",
            code="apply.not-confirmed",
            hint="Add --yes in scripts, or see first what would change: clusterctl plan",
        )
