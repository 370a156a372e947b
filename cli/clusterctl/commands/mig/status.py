"""`clusterctl mig status`: the layout of each GPU now, against the declared one."""

from __future__ import annotations

from pathlib import Path

import click
from rich.text import Text

from clustercheck.model import Verdict
from clustercheck.parse.plain_text import in_ranges
from clusterctl import console
from clusterctl.cluster.access import Passwords, password_options
from clusterctl.cluster.opened import opened
from clusterctl.cluster.ssh import OpenSshTransport
from clusterctl.commands.shared.options import json_option, limit_option
from clusterctl.errors import EXIT_CLUSTER_BAD, EXIT_GOOD, EXIT_INCOMPLETE
from clusterctl.rollout import tables
from clusterctl.rollout.mig import GpuLayout, inspect_layouts

STYLES = {Verdict.FAIL: "red", Verdict.NOT_RUN: "yellow"}


@click.command("status")
@limit_option
@json_option
@password_options
@click.pass_obj
def command(named: Path | None, *, limit: str | None, as_json: bool, passwords: Passwords) -> int:
    """Show the MIG layout of each GPU, and whether it is the declared one. Changes nothing.

    Exit code 1 if a GPU is not as declared, 3 if one could not be judged: a host that cannot be reached, or
    instances that nobody declared.
    """
    inventory = opened(named)
    hosts = [host.name for host in inventory.matching(limit) if host.quarantined is None]
    with OpenSshTransport(inventory.directory, inventory.hosts, passwords) as transport:
        found = inspect_layouts(inventory, hosts, transport)
    if as_json:
        for one in found:
            console.emit(one.as_record())
    else:
        _show(found)
    verdicts = {one.verdict for one in found}
    if Verdict.FAIL in verdicts:
        return EXIT_CLUSTER_BAD
    return EXIT_INCOMPLETE if Verdict.NOT_RUN in verdicts else EXIT_GOOD


def _show(found: list[GpuLayout]) -> None:
    """GPUs of a host that are alike share a line."""
    rows: dict[tuple[str, str, str, Verdict, str], list[int | None]] = {}
    for one in found:
        rows.setdefault((one.host, one.layout, one.declared, one.verdict, one.because), []).append(one.gpu)
    table = tables.new_table("host", "GPU", "MIG", "declared", "")
    for (host, layout, declared, verdict, because), gpus in rows.items():
        indices = in_ranges((gpu for gpu in gpus if gpu is not None), ",")
        table.add_row(
            host, indices, Text(layout), Text(declared), Text(because, style=STYLES.get(verdict, ""))
        )
    tables.show(table)
