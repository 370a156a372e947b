"""`clusterctl images`: images by digest, from their sources into the cluster's registry."""

from __future__ import annotations

import click

from clusterctl.commands import lock
from clusterctl.commands.images import build, bundle, listing, mirror, prune, verify


@click.group("images")
def command() -> None:
    """Mirror, build, verify and prune images of the cluster's registry."""


for one in (listing, lock, mirror, verify, prune, bundle, build):
    command.add_command(one.command)
