"""The environment in which Ansible runs: ours, not what the operator's shell happens to hold."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from clusterctl.cluster.inventory import KEPT_VARIABLES

# No program of ours may be asked for a password on a screen that nobody watches.
DROPPED = frozenset({"SSH_ASKPASS", "SSH_ASKPASS_REQUIRE", "PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP"})


def ignored_variables(environment: Mapping[str, str]) -> list[str]:
    """The operator's ANSIBLE_* variables that are not passed on."""
    return sorted(key for key in environment if key.startswith("ANSIBLE_") and key not in KEPT_VARIABLES)


def is_utf8(environment: Mapping[str, str]) -> bool:
    """Whether the locale that these variables choose is a UTF-8 one; Ansible refuses any other."""
    chosen = environment.get("LC_ALL") or environment.get("LC_CTYPE") or environment.get("LANG") or ""
    return chosen.lower().replace("-", "").endswith("utf8")


def ansible_environment(
    content: Path, environment: Mapping[str, str] | None = None, *, calls: Path | None = None
) -> dict[str, str]:
    """Environment for an Ansible process that runs the content at ``content``.

    ``calls`` is the file for what is asked of hosts, where anybody wants that.
    """
    given = dict(os.environ if environment is None else environment)
    dropped = DROPPED | set(ignored_variables(given))
    kept = {key: value for key, value in given.items() if key not in dropped}
    if not is_utf8(kept):
        kept["LC_ALL"] = "C.UTF-8"
    kept.update(
        ANSIBLE_CONFIG=str(content / "ansible.cfg"),
        ANSIBLE_CALLBACK_PLUGINS=str(content / "plugins" / "callback"),
        ANSIBLE_CALLBACKS_ENABLED="clusterctl_events",
        ANSIBLE_NOCOLOR="1",
        PYTHONUNBUFFERED="1",
    )
    if calls is not None:
        kept.update(
            ANSIBLE_CALLBACKS_ENABLED="clusterctl_events,clusterctl_calls",
            CLUSTERCTL_CALLS=str(calls),
        )
    return kept
