"""clusterctl lab: simulated GPU servers on this machine."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
from rich.table import Table

from clusterctl.cluster import names
from clusterctl.cluster.directory import find_cluster_directory
from clusterctl.cluster.ssh_options import CLOSED, as_words
from clusterctl.console import RESULTS, emit, say
from clusterctl.errors import EXIT_CLUSTER_BAD, EXIT_GOOD
from clusterlab import fault_book, faults, lab, teardown
from clusterlab.images.node import OPERATOR
from clusterlab.names import MOST_GPU_NODES
from clusterlab.progress import LabProgress
from clusterlab.state import InjectedFault, LabDirectory, LabNode, LabState, Registry, find_lab
from clusterlab.systems import SYSTEMS

directory_option = click.option(
    "--dir",
    "directory",
    type=click.Path(path_type=Path, file_okay=False),
    help="The lab's directory. Default: .lab in this repository.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="One JSON object per line.")


@click.group("lab")
def command() -> None:
    """Simulated GPU servers on this machine: real SSH, systemd, apt or dnf, and Docker; simulated GPUs."""


@command.command()
@click.option(
    "--nodes", type=click.IntRange(1, MOST_GPU_NODES), default=2, show_default=True, metavar="N",
    help="Number of GPU nodes.",
)  # fmt: skip
@click.option(
    "--hardware", default="hgx-a100-80gb", show_default=True, metavar="PROFILE",
    help="The server model that each GPU node simulates.",
)  # fmt: skip
@click.option(
    "--os", "system", type=click.Choice(SYSTEMS), default="debian12", show_default=True,
    help="The operating system of each host; those of Ubuntu and Rocky are personalities over a Debian.",
)  # fmt: skip
@click.option(
    "--registry", type=click.Choice(["embedded", "harbor"]), default="embedded", show_default=True,
    help="The registry on the registry host; harbor also provides installers of a simulated Harbor.",
)  # fmt: skip
@directory_option
@json_option
def up(  # noqa: PLR0917 - click gives one argument an option
    nodes: int, hardware: str, system: str, registry: Registry, directory: Path | None, as_json: bool
) -> int:
    """Start the lab; existing hosts are not changed."""
    where = find_lab(directory, make=True)
    progress = LabProgress(say)
    state = lab.up(where, lab.Request(nodes, hardware, system, registry), progress)
    progress.line(f"the lab is up: {len(state.gpu_nodes)} GPU nodes and a registry host")
    _print_status(where, state, as_json)
    say(f"its cluster directory: {_short(where.cluster)}   (clusterctl -C {_short(where.cluster)} apply)")
    return EXIT_GOOD


@command.command()
@click.option("--purge", is_flag=True, help="Also remove cached images, and a Docker that the lab started.")
@directory_option
def down(purge: bool, directory: Path | None) -> int:
    """Remove the lab: its containers, network, volumes and cluster directory."""
    where = find_lab(directory)
    left = teardown.down(where, LabProgress(say), purge=purge)
    if left:
        raise teardown.incomplete(left)
    cached = "" if purge else "; cached images stay (--purge)"
    say(f"nothing of the lab in {_short(where.root)} is left{cached}")
    return EXIT_GOOD


@command.command()
@directory_option
@json_option
def status(directory: Path | None, as_json: bool) -> int:
    """Show the lab's hosts, and whether they run. Exit code 1 if one does not."""
    where = find_lab(directory)
    state = where.require()
    return EXIT_GOOD if all(_print_status(where, state, as_json)) else EXIT_CLUSTER_BAD


@command.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@directory_option
@click.argument("node")
@click.argument("argv", nargs=-1, type=click.UNPROCESSED)
def ssh(directory: Path | None, node: str, argv: tuple[str, ...]) -> None:
    """Log in to a host, or run a command on it, as the lab's operator."""
    where = find_lab(directory)
    host = where.require().require_host(node)
    known_hosts = where.cluster / names.STATE / names.KNOWN_HOSTS
    os.execvp(  # noqa: S606 - no shell is what we want
        "ssh",
        [
            "ssh", "-F", "none", "-i", str(where.ssh_key),
            "-o", "IdentitiesOnly=yes", "-o", "StrictHostKeyChecking=yes",
            "-o", f"UserKnownHostsFile={known_hosts}",
            *as_words(CLOSED),
            "-o", "LogLevel=ERROR",
            f"{OPERATOR}@{host.address}", *argv,
        ],
    )  # fmt: skip


@command.group()
def fault() -> None:
    """Inject faults into the lab, to see them found. Never touches a host outside the lab."""


@fault.command("list")
@directory_option
@json_option
def list_faults(directory: Path | None, as_json: bool) -> int:
    """List the kinds of faults, and those that are injected."""
    state = find_lab(directory).load()
    in_place = state.faults if state else []
    if as_json:
        for kind in faults.known().values():
            known = {"kind": kind.kind, "scope": kind.scope, "summary": kind.summary}
            emit({"type": "kind", **known, "caught_by": list(kind.caught_by), "suite": kind.suite})
        for one in in_place:
            emit(_fault_record(one))
        return EXIT_GOOD
    table = Table("kind", "concerns", "what it is", box=None)
    for kind in faults.known().values():
        table.add_row(kind.kind, kind.scope, kind.summary)
    RESULTS.print(table)
    RESULTS.print("\nin place now:" if in_place else "\nin place now: none")
    for one in in_place:
        RESULTS.print(f"  {_describe(one)}, since {one.since}")
    return EXIT_GOOD


@fault.command()
@click.argument("node")
@click.argument("kind")
@click.option("--gpu", type=click.IntRange(min=0), metavar="K", help="The GPU, counted from 0.")
@click.option("--peer", metavar="NODE", help="The host at the other end of the link.")
@directory_option
@json_option
@click.pass_context
def inject(  # noqa: PLR0917 - click gives one argument an option
    ctx: click.Context,
    node: str,
    kind: str,
    gpu: int | None,
    peer: str | None,
    directory: Path | None,
    as_json: bool,
) -> int:
    """Inject a fault of KIND on NODE."""
    where = find_lab(directory)
    record = fault_book.inject(where, _inventory(ctx, where), node, kind, gpu=gpu, peer=peer)
    if as_json:
        emit(_fault_record(record))
    say(f"in place: {_describe(record)}")
    return EXIT_GOOD


@fault.command()
@click.argument("node", required=False)
@directory_option
@json_option
@click.pass_context
def clear(ctx: click.Context, node: str | None, directory: Path | None, as_json: bool) -> int:
    """Clear every fault, or those of NODE."""
    where = find_lab(directory)
    cleared = fault_book.clear(where, _inventory(ctx, where), node)
    for one in cleared:
        if as_json:
            emit({**_fault_record(one), "type": "cleared"})
        say(f"cleared: {_describe(one)}")
    if not cleared:
        say("no fault is in place" + (f" on {node}" if node else ""))
    return EXIT_GOOD


def _inventory(ctx: click.Context, where: LabDirectory) -> Path:
    """The inventory that the person works with: the one of -C, else the lab's own."""
    named = ctx.find_root().obj
    return find_cluster_directory(named).hosts_file if named else where.cluster / names.HOSTS_FILE


def _print_status(where: LabDirectory, state: LabState, as_json: bool) -> list[bool]:
    """Print every host; returns for each whether it runs."""
    alive = lab.running(where, state)
    words = {True: "running", False: "stopped", None: "missing"}
    rows = [_row(state, node, words[alive[node.name]]) for node in state.nodes]
    if as_json:
        for row in rows:
            emit({"type": "host", **row})
    else:
        table = Table("host", "role", "address", "state", "faults", box=None)
        for row in rows:
            table.add_row(row["name"], row["role"], row["address"], row["state"], ", ".join(row["faults"]))
        RESULTS.print(table)
    return [bool(alive[node.name]) for node in state.nodes]


def _row(state: LabState, node: LabNode, word: str) -> dict[str, Any]:
    mine = [_describe(one, host=False) for one in state.faults if one.node == node.name]
    return {
        "name": node.name,
        "role": node.role,
        "address": node.address,
        "state": word,
        "image": node.image,
        "hardware": state.hardware if node.role == "gpu" else "",
        "faults": mine,
    }


def _fault_record(one: InjectedFault) -> Mapping[str, Any]:
    return {"type": "fault", **one.model_dump(exclude={"undo"})}


def _describe(one: InjectedFault, *, host: bool = True) -> str:
    gpu = f" GPU {one.gpu}" if one.gpu is not None else ""
    peer = f" to {one.peer}" if one.peer else ""
    half = "" if one.state == "in place" else f" ({one.state})"
    return f"{one.kind}{f' on {one.node}' if host else ''}{gpu}{peer}{half}"


def _short(path: Path) -> str:
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)
