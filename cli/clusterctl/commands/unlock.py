"""`clusterctl unlock RUN`: the old name of `clusterctl leases release RUN`."""

from __future__ import annotations

import click

from clusterctl.commands.leases import release

command = click.Command(
    "unlock",
    params=release.params,
    callback=release.callback,
    help=release.help,
    deprecated="Use clusterctl leases release.",
)
