"""`clusterctl hosts list|add|remove|quarantine|release`: what is declared, and the quarantine."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from clusterctl import console
from clusterctl.cluster import hosts_file, names, quarantine
from clusterctl.cluster.directory import ClusterDirectory, find_cluster_directory
from clusterctl.cluster.groups import GPU_NODES, KNOWN_GROUPS
from clusterctl.cluster.inventory import Host, forget_cached
from clusterctl.cluster.opened import opened
from clusterctl.cluster.state_files import locked
from clusterctl.cluster.suggestion import did_you_mean
from clusterctl.commands.shared.options import json_option, limit_option, yes_option
from clusterctl.commands.shared.question import agreed
from clusterctl.engine import mutex
from clusterctl.errors import EXIT_CLUSTER_BAD, EXIT_GOOD, ClusterctlError


@click.command("list")
@limit_option
@json_option
@click.pass_obj
def list_(named: Path | None, limit: str | None, as_json: bool) -> None:
    """List declared hosts: addresses, groups, pinned keys, quarantine. Contacts no host."""
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


@click.command("add")
@click.argument("name")
@click.argument("address")
@click.option(
    "--group", default=GPU_NODES, show_default=True, metavar="GROUP", help="The group it belongs to."
)
@click.option("--user", metavar="USER", help="The user to log in as, if not the group's.")
@click.option("--port", type=click.IntRange(1, 65535), metavar="PORT", help="The SSH port, if not 22.")
@click.pass_obj
def add(
    named: Path | None, *, name: str, address: str, group: str, user: str | None, port: int | None
) -> None:
    """Add a host to hosts.yml. Comments and order are kept."""
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


@click.command("remove")
@click.argument("node", metavar="HOST")
@yes_option
@click.pass_obj
def remove(named: Path | None, node: str, yes: bool) -> int:
    """Remove a host from hosts.yml, with its pinned key and its quarantine."""
    inventory = opened(named)
    host = inventory.host(node)
    with mutex.held(inventory.directory, "hosts remove"):
        return _remove(inventory.directory, host, yes=yes)


forget = click.Command(
    "forget", params=remove.params, callback=remove.callback, help=remove.help, hidden=True,
    deprecated="Use clusterctl hosts remove.",
)  # fmt: skip


def _remove(directory: ClusterDirectory, host: Host, *, yes: bool) -> int:
    from clusterctl.cluster import scan  # noqa: PLC0415 - paramiko is slow to import

    node = host.name
    hosts_file.without_host(hosts_file.read_text(directory), node)  # refused before it is asked
    own = [p for p in sorted((directory.root / names.HOST_VARS).glob(f"{node}*")) if node in (p.name, p.stem)]
    kept = f"; {', '.join(p.name for p in own)} in host_vars is kept as .forgotten" if own else ""
    if not agreed(f"Remove {node} ({host.address}) from {', '.join(host.groups)}{kept}?", yes=yes):
        return EXIT_CLUSTER_BAD
    with locked(directory):  # somebody may have edited it while the question stood
        hosts_file.write_text(directory, hosts_file.without_host(hosts_file.read_text(directory), node))
    scan.forget_keys(directory, host)
    for path in own:
        path.rename(path.with_name(f"{path.name}.forgotten"))
    quarantine.release(directory, node)
    forget_cached()
    console.say(f"{node} is removed from hosts.yml. The host itself was not touched.")
    return EXIT_GOOD


@click.command("quarantine")
@click.argument("node", metavar="HOST")
@click.option("--reason", required=True, help="Why; every command shows it.")
@click.option(
    "--until", default="", metavar="YYYY-MM-DD", help="The last day; without it, until `hosts release`."
)
@click.pass_obj
def quarantine_(named: Path | None, node: str, reason: str, until: str) -> None:
    """Exclude a host from every command. It stays in the inventory."""
    inventory = opened(named)
    name = inventory.host(node).name
    with mutex.held(inventory.directory, "hosts quarantine"):
        entry = quarantine.put(inventory.directory, name, reason, until)
    console.say(f"{node} is in quarantine: {entry.reason}. To end it: clusterctl hosts release {node}")


@click.command("release")
@click.argument("node", metavar="HOST")
@click.pass_obj
def release(named: Path | None, node: str) -> None:
    """End a host's quarantine."""
    directory = find_cluster_directory(named)
    entry = quarantine.release(directory, node)
    if entry is None:
        raise ClusterctlError(
            f"{node} is not in quarantine",
            code="quarantine.unknown",
            where=str(directory.quarantine_file),
            hint="clusterctl hosts list shows the hosts that are.",
        )
    console.say(f"{node} is no longer in quarantine; the reason was: {entry.reason}")
