"""The program's entry: finds the command, and turns every failure into a sentence and an exit code."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from clusterctl.commands.shared.runner import META_KEY
from clusterctl.console import explain, lost_result, prepare_output, say
from clusterctl.errors import EXIT_GOOD, EXIT_INCOMPLETE, EXIT_INTERRUPTED, EXIT_USAGE, ExplainedError

# Command name -> (module in clusterctl.commands, one-line help). Modules are imported when asked for:
# start-up time is what a person feels on each call.
COMMANDS: dict[str, tuple[str, str]] = {
    "init": ("init", "Create a cluster directory to fill in."),
    "hosts": ("hosts", "Reach, pin, add, replace and quarantine hosts."),
    "preflight": ("preflight", "Check every host; change nothing."),
    "lock": ("lock", "Pin the images' tags to digests; also `images lock`."),
    "plan": ("plan", "Show what apply would change."),
    "apply": ("apply", "Change hosts to what the settings declare."),
    "leases": ("leases", "Release leases that runs hold on nodes."),
    "unlock": ("unlock", "Deprecated: use `leases release`."),
    "status": ("status", "Show what is installed and running on each host."),
    "mig": ("mig", "Divide GPUs by MIG as declared in hardware_mig."),
    "images": ("images", "Mirror, build, verify and prune images of the cluster's registry."),
    "registry": ("registry", "Configure, back up and upgrade the cluster's Harbor."),
    "validate": ("validate", "Prove the cluster fit, or name what is wrong."),
    "runs": ("runs", "List and show the runs of this cluster."),
    "report": ("report", "Render the report of a run."),
    "size": ("size", "Memory, parallelism and days that training a model needs."),
    "lab": ("lab", "Simulated GPU servers on this machine."),
    "explain": ("explain", "Explain an error's code: its causes and remedy."),
    "completion": ("completion", "Print the shell completion script."),
}


class LazyGroup(click.Group):
    """A click group whose commands are imported on first use."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"clusterctl.commands.{COMMANDS[cmd_name][0]}")
        command: click.Command = module.command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "-C",
    "--cluster-dir",
    type=click.Path(path_type=Path, file_okay=False),
    help="The cluster directory. Default: the current one, or the nearest parent that is one.",
)
@click.version_option(package_name="clusterctl", prog_name="clusterctl")
@click.pass_context
def cli(ctx: click.Context, cluster_dir: Path | None) -> None:
    """From bare GPU servers to a cluster proved fit for distributed training."""
    ctx.meta[META_KEY] = ctx.obj
    ctx.obj = cluster_dir


def run(arguments: Sequence[str] | None = None, *, runner: Callable[..., Any] | None = None) -> int:
    """Run the program and return its exit code; no exception leaves this function.

    ``runner`` stands in for `clusterctl.engine.playbook.run_playbook`.
    """
    try:
        outcome = cli.main(args=arguments, prog_name="clusterctl", standalone_mode=False, obj=runner)
    except click.ClickException as error:
        error.show()
        return EXIT_USAGE
    except ExplainedError as error:
        explain(error)
        return error.exit_code
    except (KeyboardInterrupt, click.exceptions.Abort):
        say("interrupted")
        return EXIT_INTERRUPTED
    except Exception as error:  # noqa: BLE001 - the last resort: a person gets a sentence, not a traceback
        if os.environ.get("CLUSTERCTL_TRACEBACK"):
            say(traceback.format_exc())
        internal = _internal(error)
        explain(internal)
        return internal.exit_code
    return outcome if isinstance(outcome, int) else EXIT_GOOD


def _internal(error: Exception) -> ExplainedError:
    return ExplainedError(
        f"clusterctl itself failed: {type(error).__name__}: {error}",
        code="internal.bug",
        hint="Set CLUSTERCTL_TRACEBACK=1, run it again, and report what it prints.",
        exit_code=EXIT_INCOMPLETE,
    )


def main() -> None:
    """Console-script entry."""
    prepare_output()
    code = run()
    if because := lost_result():
        explain(
            ExplainedError(
                f"standard output is not whole: {because}",
                code="output.lost",
                hint="Is the disk full? What the command did is done: see `clusterctl runs list`.",
                exit_code=EXIT_INCOMPLETE,
            )
        )
        code = code or EXIT_INCOMPLETE
    sys.exit(code)
