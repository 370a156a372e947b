"""`clusterctl apply`: change hosts to what the settings declare."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import click

from clusterctl import console
from clusterctl.cluster.access import Passwords, password_options
from clusterctl.commands import plan as plan_command
from clusterctl.commands import preflight
from clusterctl.commands.shared.options import site_options
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

SECONDS = {"d": 86400, "h": 3600, "m": 60, "s": 1}
_DURATION = re.compile("".join(rf"(?:([0-9]{{1,6}}){unit})?" for unit in SECONDS))


def duration(text: str) -> float:
    """The type of an option: seconds, from numbers with units, the largest first; each must have a unit."""
    found = _DURATION.fullmatch(text)
    if not text or found is None:
        raise click.BadParameter(f"{text!r} is not a duration: write 90s, 30m, 1h30m or 2d")
    pairs = zip(found.groups(), SECONDS.values(), strict=True)
    return float(sum(int(number or 0) * seconds for number, seconds in pairs))


@click.command("apply")
@site_options
@click.option(
    "--canary", type=click.IntRange(min=0), default=1, show_default=True, metavar="N",
    help="Canary size: the number of GPU nodes in the first wave; 0 for none.",
)  # fmt: skip
@click.option(
    "--silence-limit", "silence_min", type=click.FloatRange(min=0.01), default=SILENCE_LIMIT_S / 60,
    show_default=True, metavar="MINUTES", help="A host without output for this long ends its wave.",
)  # fmt: skip
@click.option(
    "--wave-limit", "wave_h", type=click.FloatRange(min=0.01), default=TIME_LIMIT_S / 3600,
    show_default=True, metavar="HOURS", help="Maximum duration of a wave.",
)  # fmt: skip
@click.option(
    "--wait", "wait_s", type=duration, default="0s", metavar="DURATION",
    help="Wait up to DURATION (90s, 30m, 2h) for hosts in use, before any host is changed.",
)  # fmt: skip
@click.option(
    "--offline", is_flag=True, help="Refuse sources outside the cluster, and prove that none was contacted."
)
@click.option("--check", "--dry-run", is_flag=True, help="Change nothing: the same as clusterctl plan.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line on standard output.")
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
