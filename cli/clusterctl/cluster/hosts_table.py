"""Hosts as tables for people."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from rich import box
from rich.table import Table
from rich.text import Text

from clusterctl.cluster.inventory import Host
from clusterctl.cluster.pinning import Proposal
from clusterctl.cluster.quarantine import QuarantineEntry
from clusterctl.cluster.scan import NOT_TRIED, OK, Reached
from clusterctl.console import RESULTS, CleanConsole

# A shell that takes longer than this is a heavy .bashrc: it is paid for at every task.
SLOW_SHELL_S = 1.0
UNBOUNDED = 200


def reach_table(reached: Iterable[Reached]) -> Table:
    """Who answers, and how."""
    table = _table("host", "address", "user", "SSH", "sudo", "OS", "python", "login")
    for host in reached:
        good = host.state == OK
        login = "" if host.login_s is None else f"{host.login_s:.2f} s"
        slow = host.shell_s is not None and host.shell_s > SLOW_SHELL_S
        state = Text("ok" if good else host.state, style="green" if good else "bold red")
        if host.quarantined is not None:
            state.append(" (quarantined)", style="yellow")
        table.add_row(
            host.node,
            _place(host.address, host.port),
            host.user,
            state,
            Text(host.sudo),
            Text(host.os.replace("GNU/Linux ", "")),
            Text(host.python),
            Text(login, style="yellow" if slow else ""),
        )
    return table


def remarks(reached: Iterable[Reached]) -> list[str]:
    """One sentence for each host that wants attention: why, and what to do."""
    lines = []
    for host in reached:
        if host.state != OK:
            because = host.because.rstrip(".")
            lines.append(f"{host.node}: {because}. {host.remedy}".rstrip())
            continue
        if host.sudo == "wants password":
            lines.append(f"{host.node}: sudo needs a password. Give --ask-become-pass.")
        elif host.sudo in ("none", "not allowed", "password refused"):
            lines.append(f"{host.node}: {host.user} cannot become root (sudo: {host.sudo}).")
        elif host.sudo == NOT_TRIED:
            lines.append(f"{host.node}: the password was not tried: sudo refused it on other hosts.")
        if host.python == "none":
            lines.append(f"{host.node}: there is no python3. Install it: Ansible needs it there.")
        if host.shell_s is not None and host.shell_s > SLOW_SHELL_S:
            lines.append(
                f"{host.node}: its shell takes {host.shell_s:.1f} s to start, at every task. "
                f"Look at the .bashrc of {host.user}."
            )
    return lines


def fingerprint_lines(proposals: Sequence[Proposal]) -> list[str]:
    """The keys to compare with those on the hosts' consoles; lines, as a fingerprint must never be cut."""
    rows = [
        (one.host.node, _place(one.host.address, one.host.port), key.type, key.fingerprint)
        for one in proposals
        for key in one.keys
    ]
    widths = [max((len(row[column]) for row in rows), default=0) for column in range(3)]
    return ["  ".join([*(row[n].ljust(widths[n]) for n in range(3)), row[3]]) for row in rows]


def inventory_table(
    hosts: Iterable[Host], pins: Mapping[str, bool | None], out: Mapping[str, QuarantineEntry]
) -> Table:
    """What is declared, with nobody asked."""
    table = _table("host", "address", "user", "groups", "key", "quarantine")
    for host in hosts:
        entry = out.get(host.name)
        pin = {True: "pinned", False: "not pinned", None: "?"}[pins[host.name]]
        table.add_row(
            host.name,
            _place(host.address, host.port),
            Text(host.user),
            ", ".join(host.groups),
            Text(pin, style="" if pin == "pinned" else "yellow"),
            Text(described(entry) if entry else "", style="yellow"),
        )
    return table


def described(entry: QuarantineEntry) -> str:
    """A quarantine in one line."""
    until = f", until {entry.until}" if entry.until else ""
    return f"{entry.reason} ({entry.by}, {entry.since}{until})"


def show(table: Table) -> None:
    """Print a table to standard output, in full where no terminal bounds it."""
    screen = RESULTS if RESULTS.is_terminal else CleanConsole(width=UNBOUNDED)
    screen.print(table)


def _place(address: str, port: int) -> str:
    return address if port == 22 else f"{address} port {port}"


def _table(*columns: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold", no_wrap=column in ("host", "address"))
    return table
