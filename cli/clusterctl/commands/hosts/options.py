"""What the commands of `clusterctl hosts` have in common: options, and the question before a change."""

from __future__ import annotations

import sys

import click

from clusterctl import console

limit_option = click.option(
    "--limit", metavar="HOSTS", help="Only these hosts, groups or globs, separated by commas."
)
json_option = click.option(
    "--json", "as_json", is_flag=True, help="One JSON object per line on standard output."
)
yes_option = click.option("--yes", is_flag=True, help="Do not ask.")


def agreed(question: str, *, yes: bool) -> bool:
    """Whether the person agrees; without a terminal only ``yes`` does."""
    if yes:
        return True
    if not sys.stdin.isatty():
        console.say(f"{question} There is no terminal to ask on: give --yes, or --expect for a key.")
        return False
    return console.confirm(question)
