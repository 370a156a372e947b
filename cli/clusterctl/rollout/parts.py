"""The parts of a site that --only can name; all but preflight are tags in playbooks/site.yml."""

from __future__ import annotations

from dataclasses import dataclass

from clusterctl.cluster.inventory import Host
from clusterctl.cluster.settings.booleans import is_true
from clusterctl.cluster.suggestion import did_you_mean
from clusterctl.errors import ClusterctlError
from clusterctl.rollout.waves import MAX_WAVE

PREFLIGHT = "preflight"
MIG = "mig"
TAGS = ("driver", MIG, "runtime", "registry", "images")
PARTS = (PREFLIGHT, *TAGS)
# What must be allowed, and the setting that allows it for good.
FLAGS = {"reboot": "nvidia_driver_reboot", "force_busy": "nvidia_driver_force_busy"}


def parse(only: str | None) -> tuple[str, ...]:
    """The parts of a comma-separated list, in our order; none if nothing is named, which is all.

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
        lines = ["--only", ",".join(self.only)] if self.only else []
        lines += ["--limit", self.limit] if self.limit else []
        lines += ["--full"] if self.full else []
        lines += ["--wave", str(self.wave)] if self.wave != MAX_WAVE else []
        return lines + [f"--{flag.replace('_', '-')}" for flag in FLAGS if getattr(self, flag)]

    @property
    def extra_vars(self) -> dict[str, bool]:
        """A flag that is given beats the settings; one that is not leaves the word to them."""
        return {variable: True for flag, variable in FLAGS.items() if getattr(self, flag)}

    def allowed(self, flag: str, host: Host) -> bool:
        """Whether ``reboot`` or ``force_busy`` is allowed on a host, by the flag or by its settings."""
        return bool(getattr(self, flag)) or is_true(host.value(FLAGS[flag], False))
