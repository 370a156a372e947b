"""`clusterctl completion SHELL`: prints what the shell must source."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from clusterctl import console
from clusterctl.errors import ClusterctlError


@click.command("completion", help="Print the completion script, for the shell to source.")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Print the script on standard output."""
    completer = get_completion_class(shell)
    if completer is None:
        raise ClusterctlError(f"there is no completion for {shell}", code="completion.unknown-shell")
    root = ctx.find_root().command
    console.write(completer(root, {}, "clusterctl", "_CLUSTERCTL_COMPLETE").source() + "\n")
