"""Options that several commands share, handed over as one value."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import click

from clusterctl.rollout import parts
from clusterctl.rollout.waves import MAX_WAVE


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
        click.option("--force-busy", is_flag=True, help="Also change hosts on which jobs are running."),
        click.option("--reboot", is_flag=True, help="Allow hosts that need it to be rebooted."),
        click.option(
            "--limit", metavar="HOSTS", help="Only these hosts, groups or globs, separated by commas."
        ),
        click.option(
            "--only", metavar="PARTS", help=f"Only these, separated by commas: {', '.join(parts.PARTS)}."
        ),
    ):
        call = option(call)
    return call
