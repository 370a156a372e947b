"""`clusterctl status`: what is installed and running on each host now."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import click
from rich.table import Table
from rich.text import Text

from clusterctl import console
from clusterctl.cluster import lock as lock_file
from clusterctl.cluster.access import Passwords, password_options
from clusterctl.cluster.inventory import Inventory
from clusterctl.cluster.lock import Lock
from clusterctl.cluster.opened import opened
from clusterctl.cluster.secret_files import describe
from clusterctl.cluster.spec import cluster_spec
from clusterctl.cluster.ssh import OpenSshTransport
from clusterctl.commands.shared.options import json_option, limit_option
from clusterctl.engine.lease import release_hint
from clusterctl.errors import EXIT_CLUSTER_BAD, EXIT_GOOD
from clusterctl.rollout import tables
from clusterctl.rollout.inspection import UNKNOWN, HostStatus, inspect
from clusterctl.rollout.training import pinned
from clusterctl.stack.facts import NodeFacts, system_of
from clusterctl.stack.judge import StackReport, judge_stacks

# "Debian GNU/Linux 12 (bookworm)" is "Debian 12" to those who look at a table.
OS_WORDS = re.compile(r" GNU/Linux| \([^)]*\)")


@click.command("status")
@limit_option
@json_option
@password_options
@click.pass_obj
def command(named: Path | None, *, limit: str | None, as_json: bool, passwords: Passwords) -> int:
    """Show what is installed and running on each host. Changes nothing.

    Hosts in quarantine are named and not contacted. What differs from clusterctl.lock, and what does not fit
    together, is named. Exit code 1 if a host cannot be reached.
    """
    inventory = opened(named)
    matching = inventory.matching(limit)
    names = [host.name for host in matching if host.quarantined is None]
    with OpenSshTransport(inventory.directory, inventory.hosts, passwords) as transport:
        found = inspect(
            names,
            transport,
            gpu_nodes=[host.name for host in inventory.gpu_nodes],
            image=cluster_spec(pinned(inventory).inventory).image,
        )
    found += [HostStatus(h.name, quarantined=h.quarantined) for h in matching if h.quarantined is not None]
    secrets = describe(inventory.directory)
    drift = _drift(inventory, found)
    if as_json:
        for one in found:
            console.emit({**one.as_record(), "secrets_at_rest": secrets, "drift": drift.of_host(one.host)})
    else:
        tables.show(_table(found))
        for run, hosts in _leases(found).items():
            holder = f"Run {run}" if run else "A lease that cannot be read"
            console.RESULTS.print(f"{holder} holds {', '.join(hosts)}. {release_hint(run)}")
        for sentence in drift.sentences:
            console.RESULTS.print(sentence, style="yellow")
        console.RESULTS.print(f"secrets at rest: {secrets}")
        if any(one.simulated for one in found):
            console.RESULTS.print("These devices report that they are simulated.", style="yellow")
    return EXIT_CLUSTER_BAD if any(one.unreachable for one in found) else EXIT_GOOD


def _drift(inventory: Inventory, found: Sequence[HostStatus]) -> StackReport:
    """How the stacks of the hosts that answered compare with the lock, and whether they fit together."""
    facts = {
        one.host: NodeFacts(
            os=system_of(one.os),
            kernel=one.kernel,
            driver=one.driver_loaded,
            fabric_manager=one.fabric_manager,
            toolkit=one.toolkit,
            docker=one.docker,
            containerd=one.containerd,
            seen_by="seen now",
        )
        for one in found
        if not one.unreachable and not one.quarantined
    }
    return judge_stacks(inventory, lock_file.read(inventory.directory) or Lock(), facts).limited_to(facts)


def _leases(found: Sequence[HostStatus]) -> dict[str, list[str]]:
    """The runs that change hosts now, with their hosts; empty is the run of leases that cannot be read."""
    holding: dict[str, list[str]] = {}
    for one in found:
        if one.lease:
            run = one.lease["run"]
            holding.setdefault("" if run == UNKNOWN else run, []).append(one.host)
    return holding


def _table(found: Sequence[HostStatus]) -> Table:
    heads = ("host", "OS", "kernel", "GPUs", "driver", "fabric manager", "toolkit", "docker", "image", "")
    table = tables.new_table(*heads)
    for one in found:
        table.add_row(
            one.host,
            OS_WORDS.sub("", one.os),
            one.kernel,
            "" if one.gpus is None else str(one.gpus),
            _driver(one),
            " ".join(part for part in (one.fabric_manager, one.fabric_manager_state) if part),
            one.toolkit,
            one.docker,
            "" if one.image is None else "yes" if one.image else Text("no", style="yellow"),
            _remark(one),
        )
    return table


def _driver(one: HostStatus) -> Text:
    """The running driver; said so where another one is installed, or none runs."""
    if one.driver_loaded == one.driver_installed:
        return Text(one.driver_loaded)
    loaded = one.driver_loaded or "none loaded"
    return Text(f"{loaded}, installed {one.driver_installed or 'none'}", style="yellow")


def _remark(one: HostStatus) -> Text:
    if one.quarantined:
        return Text(f"in quarantine: {one.quarantined}", style="yellow")
    if one.unreachable:
        return Text(f"unreachable: {one.unreachable}", style="red")
    return Text(f"busy: {one.busy}" if one.busy else "", style="yellow")
