"""What runs playbooks, handed to the commands that run any."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import click

# Where `clusterctl.main` puts what its caller passed in.
META_KEY = "clusterctl.runner"


def pass_runner(command: Callable[..., Any]) -> Callable[..., Any]:
    """Gives a click command ``runner``: `run_playbook`, or what the caller of the program passed in."""

    @functools.wraps(command)
    def call(*arguments: Any, **options: Any) -> Any:
        from clusterctl.engine.playbook import run_playbook  # noqa: PLC0415 - main imports this module

        runner = click.get_current_context().meta.get(META_KEY) or run_playbook
        return command(*arguments, runner=runner, **options)

    return call
