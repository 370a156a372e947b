"""Options that several commands share, handed over as one value."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any

import click

from clusterctl.rollout import parts
from clusterctl.rollout.waves import MAX_WAVE

SECONDS = {"d": 86400, "h": 3600, "m": 60, "s": 1}
_DURATION = re.compile("".join(rf"(?:([0-9]{{1,6}}){unit})?" for unit in SECONDS))


def duration(text: str) -> float:
    """The type of an option: seconds, from numbers with units, the largest first; each must have a unit."""
    found = _DURATION.fullmatch(text)
    if not text or found is None:
        raise click.BadParameter(f"{text!r} is not a duration: write 90s, 30m, 1h30m or 2d")
    pairs = zip(found.groups(), SECONDS.values(), strict=True)
    return float(sum(int(number or 0) * seconds for number, seconds in pairs))


limit_option = click.option(
    "--limit", metavar="HOSTS", help="Only these hosts, groups or globs, separated by commas."
)
json_option = click.option(
    "--json", "as_json", is_flag=True, help="One JSON object per line on standard output."
)
yes_option = click.option("--yes", is_flag=True, help="Do not ask.")
force_busy_option = click.option(
    "--force-busy", is_flag=True, help="Also change hosts on which jobs are running."
)
canary_option = click.option(
    "--canary", type=click.IntRange(min=0), default=1, show_default=True, metavar="N",
    help="Canary size: the number of GPU nodes in the first wave; 0 for none.",
)  # fmt: skip
wait_option = click.option(
    "--wait", "wait_s", type=duration, default="0s", metavar="DURATION",
    help="Wait up to DURATION (90s, 30m, 2h) for hosts in use, before any host is changed.",
)  # fmt: skip


def site_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Gives a click command the options of apply and of plan, and hands it ``asked``: `parts.Asked`."""

    @functools.wraps(command)
    def call(
        *arguments: Any,
        only: str | None,
        limit: str | None,
        reboot: bool,
        force_busy: bool,
        full: bool,
        wave: int,
        **options: Any,
    ) -> Any:
        asked = parts.Asked(parts.parse(only), limit, reboot, force_busy, full, wave)
        return command(*arguments, asked=asked, **options)

    for option in (
        click.option("--full", is_flag=True, help="Run every task through Ansible, also on unchanged hosts."),
        click.option(
            "--wave",
            type=click.IntRange(1, MAX_WAVE),
            default=MAX_WAVE,
            show_default=True,
            metavar="N",
            help="Maximum hosts in parallel: they share the registry's link.",
        ),
        force_busy_option,
        click.option("--reboot", is_flag=True, help="Allow hosts that need it to be rebooted."),
        limit_option,
        click.option(
            "--only", metavar="PARTS", help=f"Only these, separated by commas: {', '.join(parts.PARTS)}."
        ),
    ):
        call = option(call)
    return call
