"""The environment in which a playbook runs: ours, not what the operator's shell happens to hold."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from clusterctl.interpreter import ansible_environment


def playbook_environment(
    content: Path, environment: Mapping[str, str] | None = None, *, calls: Path | None = None
) -> dict[str, str]:
    """Environment for an ansible-playbook process that reports its events.

    ``calls`` is the file for what is asked of hosts, where anybody wants that.
    """
    kept = {
        **ansible_environment(content, environment),
        "ANSIBLE_CALLBACK_PLUGINS": str(content / "plugins" / "callback"),
        "ANSIBLE_CALLBACKS_ENABLED": "clusterctl_events",
        "PYTHONUNBUFFERED": "1",
    }
    if calls is not None:
        kept["ANSIBLE_CALLBACKS_ENABLED"] = "clusterctl_events,clusterctl_calls"
        kept["CLUSTERCTL_CALLS"] = str(calls)
        # From ansible-core 2.21 on a result has the arguments of its module only on request.
        kept["ANSIBLE_INJECT_INVOCATION"] = "true"
    return kept
