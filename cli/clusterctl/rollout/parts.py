"""The parts of a site that --only can name; all but preflight are tags in playbooks/site.yml."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import click

from clusterctl.cluster.inventory import Host
from clusterctl.cluster.settings.booleans import is_true
from clusterctl.cluster.suggestion import did_you_mean
from clusterctl.errors import ClusterctlError
from clusterctl.rollout.waves import MAX_WAVE

PREFLIGHT = "preflight"
TAGS = ("driver", "runtime", "registry", "images")
PARTS = (PREFLIGHT, *TAGS)
# What must be allowed, and the setting that allows it for good.
FLAGS = {"reboot": "nvidia_driver_reboot", "force_busy": "nvidia_driver_force_busy"}


def parse(only: str | None) -> tuple[str, ...]:
    """The parts of a comma-separated list, in our order; none where nothing is named, which is all.

    Raises ClusterctlError (``apply.unknown-part``, exit 2).
    """
    named = [part.strip() for part in (only or "").split(",") if part.strip()]
    for part in named:
        if part not in PARTS:
            raise ClusterctlError(
                f"there is no part {part!r}",
                code="apply.unknown-part",
                where=f"--only {only}",
                hint=f"{did_you_mean(part, PARTS)} Parts are: {', '.join(PARTS)}.".lstrip(),
            )
    return tuple(part for part in PARTS if part in named)


@dataclass(frozen=True)
class Asked:
    """What apply and plan are asked to do; both hand the same variables to Ansible."""

    only: tuple[str, ...] = ()
    limit: str | None = None
    reboot: bool = False
    force_busy: bool = False
    full: bool = False
    wave: int = MAX_WAVE

    @property
    def preflight_alone(self) -> bool:
        """Whether there is nothing to do but to look."""
        return self.only == (PREFLIGHT,)

    @property
    def tags(self) -> tuple[str, ...]:
        """The tags of the parts; none for the whole site."""
        return tuple(part for part in self.only if part != PREFLIGHT)

    @property
    def arguments(self) -> list[str]:
        """How the run records what it was asked."""
        said = ["--only", ",".join(self.only)] if self.only else []
        said += ["--limit", self.limit] if self.limit else []
        said += ["--full"] if self.full else []
        said += ["--wave", str(self.wave)] if self.wave != MAX_WAVE else []
        return said + [f"--{flag.replace('_', '-')}" for flag in FLAGS if getattr(self, flag)]

    @property
    def extra_vars(self) -> dict[str, bool]:
        """A flag that is given beats the settings; one that is not leaves the word to them."""
        return {variable: True for flag, variable in FLAGS.items() if getattr(self, flag)}

    def allowed(self, flag: str, host: Host) -> bool:
        """Whether ``reboot`` or ``force_busy`` is allowed on a host, by the flag or by its settings."""
        return bool(getattr(self, flag)) or is_true(host.value(FLAGS[flag], False))


def options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options of apply and of plan that make an `Asked`."""
    for option in (
        click.option(
            "--full", is_flag=True, help="Every task through Ansible, on hosts where nothing has changed too."
        ),
        click.option(
            "--wave",
            type=click.IntRange(1, MAX_WAVE),
            default=MAX_WAVE,
            show_default=True,
            metavar="N",
            help="No more hosts than this at once: they share the registry's link.",
        ),
        click.option("--force-busy", is_flag=True, help="Change hosts on which jobs are running, too."),
        click.option("--reboot", is_flag=True, help="Allow hosts that need it to be rebooted."),
        click.option(
            "--limit", metavar="HOSTS", help="Only these hosts, groups or globs, separated by commas."
        ),
        click.option("--only", metavar="PARTS", help=f"Only these, separated by commas: {', '.join(PARTS)}."),
    ):
        command = option(command)
    return command
