"""`clusterctl hosts`: reach, pin, add, replace and quarantine hosts."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from clusterctl import console
from clusterctl.cluster import hosts_file, quarantine
from clusterctl.cluster.access import Passwords, password_options
from clusterctl.cluster.directory import ClusterDirectory, find_cluster_directory
from clusterctl.cluster.groups import GPU_NODES, KNOWN_GROUPS
from clusterctl.cluster.inventory import Host, Inventory, forget_cached
from clusterctl.cluster.opened import opened
from clusterctl.cluster.settings.options import did_you_mean
from clusterctl.cluster.state_files import locked
from clusterctl.engine import mutex
from clusterctl.errors import EXIT_CLUSTER_BAD, EXIT_GOOD, ClusterctlError

if TYPE_CHECKING:
    from clusterctl.cluster.pinning import Proposal
    from clusterctl.cluster.scan import Reached

LIMIT_S = 15.0
limit_option = click.option(
    "--limit", metavar="HOSTS", help="Only these hosts, groups or globs, separated by commas."
)
json_option = click.option(
    "--json", "as_json", is_flag=True, help="One JSON object a line on standard output."
)
yes_option = click.option("--yes", is_flag=True, help="Do not ask.")
expect_option = click.option(
    "--expect",
    multiple=True,
    metavar="HOST=SHA256:...",
    help="Trust this host key, and no other. May be repeated.",
)
timeout_option = click.option(
    "--timeout", "limit_s", type=click.FloatRange(1, 600), default=LIMIT_S, show_default=True,
    metavar="SECONDS", help="Seconds that each host may take.",
)  # fmt: skip


@click.group("hosts")
def command() -> None:
    """Reach, pin, add, replace and quarantine hosts."""


@command.command("list")
@limit_option
@json_option
@click.pass_obj
def list_(named: Path | None, limit: str | None, as_json: bool) -> None:
    """What is declared: addresses, groups, pinned keys, quarantine. Asks no host."""
    from clusterctl.cluster import hosts_table, scan  # noqa: PLC0415 - paramiko is slow to import

    inventory = opened(named)
    hosts = inventory.matching(limit)
    pins = scan.pins(inventory.directory, hosts)
    out = quarantine.active(inventory.directory)
    if not as_json:
        hosts_table.show(hosts_table.inventory_table(hosts, pins, out))
        return
    for host in hosts:
        entry = out.get(host.name)
        console.emit(
            {
                "type": "host",
                "host": host.name,
                "address": host.address,
                "port": host.port,
                "user": host.user,
                "groups": host.groups,
                "pinned": pins[host.name],
                "quarantined": asdict(entry) if entry else None,
            }
        )


@command.command("scan")
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
    """Log in to every host at once; show and pin the host keys that are new.

    Nothing is sent to a host whose key is not pinned. Exit code 1 where a host was not reached.
    """
    from clusterctl.cluster import pinning, scan  # noqa: PLC0415 - paramiko is slow to import

    inventory = opened(named)
    hosts = inventory.matching(limit)
    expected = pinning.expected_fingerprints(expect, [host.name for host in hosts])
    first = scan.scan(inventory.directory, hosts, passwords, limit_s=limit_s, on_host=_progress(len(hosts)))
    seen = {host.node: pinning.against_expected(host, expected) for host in first}
    proposals = [pinning.proposal(host, expected) for host in seen.values() if host.state == scan.UNPINNED]
    trusted = pinning.pin_confirmed(
        inventory.directory, proposals, lambda asked: _confirm_pins(asked, yes=yes)
    )
    if trusted:
        again = [host for host in hosts if host.name in trusted]
        for host in scan.scan(
            inventory.directory, again, passwords, limit_s=limit_s, on_host=_progress(len(again))
        ):
            seen[host.node] = host
    return _report(list(seen.values()), as_json=as_json)


@command.command("add")
@click.argument("name")
@click.argument("address")
@click.option(
    "--group", default=GPU_NODES, show_default=True, metavar="GROUP", help="The group it belongs to."
)
@click.option("--user", metavar="USER", help="The user to log in as, where it is not that of the group.")
@click.option(
    "--port", type=click.IntRange(1, 65535), metavar="PORT", help="The SSH port, where it is not 22."
)
@click.pass_obj
def add(
    named: Path | None, *, name: str, address: str, group: str, user: str | None, port: int | None
) -> None:
    """Write a new host into hosts.yml; comments and order there stay."""
    directory = find_cluster_directory(named)
    for word, what in ((address, "address"), (user or "user", "user name")):
        if word.startswith("-") or not word or any(c.isspace() or not c.isprintable() for c in word):
            raise ClusterctlError(f"{word!r} is no {what}", code="hosts.add", where=name)
    variables: dict[str, str | int] = {"ansible_host": address}
    if port is not None:
        variables["ansible_port"] = port
    if user is not None:
        variables["ansible_user"] = user
    with mutex.held(directory, "hosts add"), locked(directory):
        text = hosts_file.read_text(directory)
        if group not in KNOWN_GROUPS and group not in hosts_file.group_names(text):
            raise ClusterctlError(
                f"there is no group {group}",
                code="hosts.group",
                where=str(directory.hosts_file),
                hint=did_you_mean(group, KNOWN_GROUPS) or f"Groups: {', '.join(KNOWN_GROUPS)}.",
            )
        hosts_file.write_text(directory, hosts_file.with_host(text, group, name, variables))
    forget_cached()
    console.say(f"{name} ({address}) is in {group}. Next: clusterctl hosts scan --limit {name}")


@command.command("replace")
@click.argument("node")
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
    """Trust the new host key of a machine that was re-imaged or swapped; the old one is forgotten."""
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
            console.say(f"{node} has the key that is pinned: {scan.listed(found.keys)}. Nothing to replace.")
        return _report([found], as_json=as_json, quiet=found.state == scan.OK)
    proposal = pinning.proposal(found, expected)
    console.say(f"{node}, pinned:  {scan.listed(found.pinned) or 'nothing'}")
    console.say(f"{node}, offered: {scan.listed(proposal.keys)}")
    if not proposal.vouched and not _agreed(f"Trust the offered key of {node} from now on?", yes=yes):
        return _report([found], as_json=as_json)
    pinning.pin_confirmed(inventory.directory, [replace(proposal, vouched=True)], lambda _: True)
    return _report(scan.scan(inventory.directory, [host], passwords, limit_s=limit_s), as_json=as_json)


@command.command("forget")
@click.argument("node")
@yes_option
@click.pass_obj
def forget(named: Path | None, node: str, yes: bool) -> int:
    """Take a host out of hosts.yml, with its pinned key and its quarantine."""
    inventory = opened(named)
    host = inventory.host(node)
    with mutex.held(inventory.directory, "hosts forget"):
        return _forget(inventory.directory, host, yes=yes)


def _forget(directory: ClusterDirectory, host: Host, *, yes: bool) -> int:
    from clusterctl.cluster import scan  # noqa: PLC0415 - paramiko is slow to import

    node = host.name
    changed = hosts_file.without_host(hosts_file.read_text(directory), node)
    own = [p for p in sorted((directory.root / "host_vars").glob(f"{node}*")) if node in (p.name, p.stem)]
    kept = f"; {', '.join(p.name for p in own)} in host_vars is kept as .forgotten" if own else ""
    if not _agreed(f"Take {node} ({host.address}) out of {', '.join(host.groups)}{kept}?", yes=yes):
        return EXIT_CLUSTER_BAD
    scan.forget_keys(directory, host)
    with locked(directory):
        hosts_file.write_text(directory, changed)
    for path in own:
        path.rename(path.with_name(f"{path.name}.forgotten"))
    quarantine.release(directory, node)
    forget_cached()
    console.say(f"{node} is forgotten. The host itself was not touched.")
    return EXIT_GOOD


@command.command("quarantine")
@click.argument("node")
@click.option("--reason", required=True, help="Why; every command shows it.")
@click.option(
    "--until", default="", metavar="YYYY-MM-DD", help="The last day; without it, until `hosts release`."
)
@click.pass_obj
def quarantine_(named: Path | None, node: str, reason: str, until: str) -> None:
    """Take a host out for every command; it stays in the inventory, visibly."""
    inventory = opened(named)
    name = inventory.host(node).name
    with mutex.held(inventory.directory, "hosts quarantine"):
        entry = quarantine.put(inventory.directory, name, reason, until)
    console.say(f"{node} is in quarantine: {entry.reason}. Back in: clusterctl hosts release {node}")


@command.command("release")
@click.argument("node")
@click.pass_obj
def release(named: Path | None, node: str) -> None:
    """Take a host back in."""
    directory = find_cluster_directory(named)
    entry = quarantine.release(directory, node)
    if entry is None:
        raise ClusterctlError(
            f"{node} is not in quarantine",
            code="quarantine.unknown",
            where=str(directory.quarantine_file),
            hint="clusterctl hosts list shows who is.",
        )
    console.say(f"{node} is in again; it was out for: {entry.reason}")


def _progress(number: int):  # type: ignore[no-untyped-def]  # noqa: ANN202
    answered = 0

    def on_host(reached: Reached) -> None:
        nonlocal answered
        answered += 1
        if number > 8 or console.is_live():
            console.say(f"  {answered}/{number}  {reached.node}: {reached.state}")

    return on_host


def _confirm_pins(asked: Sequence[Proposal], *, yes: bool) -> bool:
    from clusterctl.cluster import hosts_table  # noqa: PLC0415

    for line in hosts_table.fingerprint_lines(asked):
        console.say(f"  {line}")
    console.say("Compare them with the hosts' consoles: ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub")
    return _agreed(f"Trust and pin these keys of {len(asked)} host{'s' if len(asked) > 1 else ''}?", yes=yes)


def _agreed(question: str, *, yes: bool) -> bool:
    if yes:
        return True
    if not sys.stdin.isatty():
        console.say(f"{question} There is nobody to ask: give --yes, or --expect where a key is meant.")
        return False
    return click.confirm(question, err=True)


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
        console.RESULTS.print(remark, markup=False)
    return code
