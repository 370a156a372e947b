"""`clusterctl completion SHELL`: prints what the shell must source."""

from __future__ import annotations

import click
from click.shell_completion import BashComplete, get_completion_class

from clusterctl import console
from clusterctl.errors import ClusterctlError

# Bash completes ./clusterctl, too, by the same function; click's would run that file, whoever put it there.
ASKED_AS_TYPED = "response=$(env COMP_WORDS="
ASKED_IF_INSTALLED = f"type -P %(prog_name)s >/dev/null || return 0\n    {ASKED_AS_TYPED}"


class InstalledBashComplete(BashComplete):
    """Completion by the installed program, as in zsh and fish, and not by what was typed."""

    source_template = BashComplete.source_template.replace(ASKED_AS_TYPED, ASKED_IF_INSTALLED).replace(
        " $1)", " %(prog_name)s)"
    )


@click.command("completion", help="Print the completion script, for the shell to source.")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Print the script on standard output."""
    completer = InstalledBashComplete if shell == "bash" else get_completion_class(shell)
    if completer is None:
        raise ClusterctlError(f"there is no completion for {shell}", code="completion.unknown-shell")
    root = ctx.find_root().command
    console.write(completer(root, {}, "clusterctl", "_CLUSTERCTL_COMPLETE").source() + "\n")
