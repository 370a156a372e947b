"""`clusterctl hosts scan|replace`: log in to hosts, and trust their keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.text import Text

from clusterctl import console
from clusterctl.cluster.access import Passwords, password_options
from clusterctl.cluster.inventory import Host, Inventory
from clusterctl.cluster.opened import opened
from clusterctl.commands.shared.options import json_option, limit_option, yes_option
from clusterctl.commands.shared.question import agreed
from clusterctl.engine import mutex
from clusterctl.engine.wording import counted
from clusterctl.errors import EXIT_CLUSTER_BAD, EXIT_GOOD
from clusterctl.live_area import LiveArea

if TYPE_CHECKING:
    from clusterctl.cluster.pinning import Proposal
    from clusterctl.cluster.scan import Reached

LIMIT_S = 15.0
expect_option = click.option(
    "--expect",
    multiple=True,
    metavar="HOST=SHA256:...",
    help="Trust this host key, and no other. May be repeated.",
)
timeout_option = click.option(
    "--timeout", "limit_s", type=click.FloatRange(1, 600), default=LIMIT_S, show_default=True,
    metavar="SECONDS", help="Time limit per host, in seconds.",
)  # fmt: skip


@click.command("scan")
@limit_option
@expect_option
@timeout_option
@yes_option
@json_option
@password_options
@click.pass_obj
def scan_(
    named: Path | None,
    *,
    limit: str | None,
    expect: tuple[str, ...],
    limit_s: float,
    yes: bool,
    as_json: bool,
    passwords: Passwords,
) -> int:
    """Log in to every host; show and pin new host keys.

    Hosts are contacted in parallel, and nothing is sent to a host whose key is not pinned. Exit code 1 if a
    host was not reached.
    """
    from clusterctl.cluster import pinning, scan  # noqa: PLC0415 - paramiko is slow to import

    inventory = opened(named)
    hosts = inventory.matching(limit)
    expected = pinning.expected_fingerprints(expect, [host.name for host in hosts])
    first = _reached(inventory, hosts, passwords, limit_s)
    seen = {host.node: pinning.against_expected(host, expected) for host in first}
    proposals = [pinning.proposal(host, expected) for host in seen.values() if host.state == scan.UNPINNED]
    trusted = pinning.pin_confirmed(
        inventory.directory, proposals, lambda asked: _confirm_pins(asked, yes=yes)
    )
    if trusted:
        again = [host for host in hosts if host.name in trusted]
        seen |= {host.node: host for host in _reached(inventory, again, passwords, limit_s)}
    return _report(list(seen.values()), as_json=as_json)


@click.command("replace")
@click.argument("node", metavar="HOST")
@expect_option
@timeout_option
@yes_option
@json_option
@password_options
@click.pass_obj
def replace_(
    named: Path | None,
    *,
    node: str,
    expect: tuple[str, ...],
    limit_s: float,
    yes: bool,
    as_json: bool,
    passwords: Passwords,
) -> int:
    """Trust the new key of a machine that was re-imaged or swapped, and remove the old one."""
    from clusterctl.cluster import pinning  # noqa: PLC0415 - paramiko is slow to import

    inventory = opened(named)
    host = inventory.host(node)
    expected = pinning.expected_fingerprints(expect, [node])
    with mutex.held(inventory.directory, "hosts replace"):
        return _replace(inventory, host, expected, passwords, limit_s=limit_s, yes=yes, as_json=as_json)


def _replace(
    inventory: Inventory,
    host: Host,
    expected: Mapping[str, set[str]],
    passwords: Passwords,
    *,
    limit_s: float,
    yes: bool,
    as_json: bool,
) -> int:
    from clusterctl.cluster import pinning, scan  # noqa: PLC0415 - paramiko is slow to import

    node = host.name
    found = pinning.against_expected(scan.look_at_keys(inventory.directory, host, limit_s), expected)
    if found.state not in (scan.UNPINNED, scan.CHANGED):
        if found.state == scan.OK:
            console.say(
                f"{node} has the key that is pinned: {scan.format_keys(found.keys)}. Nothing to replace."
            )
        return _report([found], as_json=as_json, quiet=found.state == scan.OK)
    proposal = pinning.proposal(found, expected)
    console.say(f"{node}, pinned:  {scan.format_keys(found.pinned) or 'nothing'}")
    console.say(f"{node}, offered: {scan.format_keys(proposal.keys)}")
    if not proposal.vouched and not agreed(f"Trust the offered key of {node} from now on?", yes=yes):
        return _report([found], as_json=as_json)
    pinning.pin_confirmed(inventory.directory, [replace(proposal, vouched=True)], lambda _: True)
    return _report(_reached(inventory, [host], passwords, limit_s), as_json=as_json)


def _reached(
    inventory: Inventory, hosts: Sequence[Host], passwords: Passwords, limit_s: float
) -> list[Reached]:
    """Look at hosts, with their number on a terminal meanwhile; the table that follows says the rest."""
    from clusterctl.cluster import scan  # noqa: PLC0415 - paramiko is slow to import

    if not console.is_live():
        return scan.scan(inventory.directory, hosts, passwords, limit_s=limit_s)
    area, answered = LiveArea(console.MESSAGES), 0

    def count(_: Reached | None = None) -> None:
        nonlocal answered
        area.draw([Text(f"contacting {counted(len(hosts), 'host')}: {answered} done")])
        answered += 1

    area.open()
    try:
        count()
        return scan.scan(inventory.directory, hosts, passwords, limit_s=limit_s, on_host=count)
    finally:
        area.close()


def _confirm_pins(asked: Sequence[Proposal], *, yes: bool) -> bool:
    from clusterctl.cluster import hosts_table  # noqa: PLC0415

    for line in hosts_table.fingerprint_lines(asked):
        console.say(f"  {line}")
    kinds = {
        kind for one in asked for key in one.keys for kind in ("ed25519", "ecdsa", "rsa") if kind in key.type
    }
    files = " or ".join(f"/etc/ssh/ssh_host_{kind}_key.pub" for kind in sorted(kinds))
    console.say(f"Compare them with the hosts' consoles: ssh-keygen -lf {files}")
    return agreed(f"Trust and pin these keys of {counted(len(asked), 'host')}?", yes=yes)


def _report(reached: Sequence[Reached], *, as_json: bool, quiet: bool = False) -> int:
    from clusterctl.cluster import hosts_table, scan  # noqa: PLC0415

    bad = [host for host in reached if host.state != scan.OK and host.quarantined is None]
    code = EXIT_CLUSTER_BAD if bad else EXIT_GOOD
    if as_json:
        for host in reached:
            console.emit(host.as_record())
        answering = sum(host.state == scan.OK for host in reached)
        console.emit({"type": "summary", "hosts": len(reached), "answering": answering, "exit": code})
        return code
    if not quiet:
        hosts_table.show(hosts_table.reach_table(reached))
    for remark in hosts_table.remarks(reached):
        console.RESULTS.print(remark)
    return code
