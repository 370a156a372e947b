"""`clusterctl init`: a documented cluster directory to fill in."""

from __future__ import annotations

import contextlib
import os
import shlex
from collections.abc import Iterator
from pathlib import Path

import click

from clusterctl.cluster import hosts_file
from clusterctl.cluster.bounded_file import is_there
from clusterctl.cluster.groups import GPU_NODES, REGISTRY
from clusterctl.cluster.trust import require_trusted_place
from clusterctl.console import emit, say
from clusterctl.content import content_root
from clusterctl.errors import ClusterctlError

EXAMPLE_HOSTS = ("gpu01", "gpu02", "registry01")
OPTION_EXAMPLES = {
    "--hosts": "--hosts gpu01=10.0.0.1,gpu02=10.0.0.2",
    "--registry": "--registry registry01=10.0.0.5",
}
INSTEAD = "Name a directory of your own"
# The example must not itself be a repository's ignore file.
RENAMED = {"gitignore": ".gitignore"}


@click.command("init")
@click.argument("directory", type=click.Path(path_type=Path, file_okay=False), default=Path())
@click.option(
    "--hosts", metavar="NAME=ADDRESS,...", help="The GPU servers, for example gpu01=10.0.0.1,gpu02=10.0.0.2."
)
@click.option("--registry", metavar="NAME=ADDRESS", help="The server for the container images.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
def command(directory: Path, hosts: str | None, registry: str | None, as_json: bool) -> None:
    """Create a cluster directory: an Ansible inventory with every setting explained.

    Existing files are not overwritten.
    """
    gpu_nodes, registry_hosts = _pairs(hosts, "--hosts"), _pairs(registry, "--registry")
    files = _example()
    if gpu_nodes or registry_hosts:
        files[Path("hosts.yml")] = _declare(files[Path("hosts.yml")], gpu_nodes, registry_hosts)
    ignore = Path(".gitignore")
    place = _make(directory)
    with _writing(place):
        ignored_by_its_owner = is_there(place / ignore)
    if ignored_by_its_owner:
        del files[ignore]
    _write(place, files)
    if ignored_by_its_owner:
        say(f"Keep the secrets out of git: add /.clusterctl/ to {directory / ignore}.")
    if as_json:
        emit({"type": "init", "directory": str(directory.resolve()), "files": [str(path) for path in files]})
    else:
        _next_steps(directory, declared=bool(gpu_nodes), registry=bool(registry_hosts))


def _example() -> dict[Path, str]:
    source = content_root() / "inventory" / "example"
    files = {}
    for path in sorted(p for p in source.rglob("*") if p.is_file()):
        relative = path.relative_to(source)
        files[relative.with_name(RENAMED.get(relative.name, relative.name))] = path.read_text(
            encoding="utf-8"
        )
    return files


def _declare(text: str, gpu_nodes: dict[str, str], registry_hosts: dict[str, str]) -> str:
    for name in EXAMPLE_HOSTS:
        text = hosts_file.without_host(text, name)
    for group, chosen in ((GPU_NODES, gpu_nodes), (REGISTRY, registry_hosts)):
        for name, address in chosen.items():
            text = hosts_file.with_host(text, group, name, {"ansible_host": address})
    return text


def _make(directory: Path) -> Path:
    """The directory to write to, made if need be: one that nobody else can write or exchange, without links.

    Raises ClusterctlError (``cluster.not-trusted``, ``init.not-writable``).
    """
    with _writing(directory):
        return require_trusted_place(directory, INSTEAD, make=True)


def _write(directory: Path, files: dict[Path, str]) -> None:
    with _writing(directory):
        there = [str(path) for path in files if is_there(directory / path)]
    if there:
        raise ClusterctlError(
            f"{', '.join(there)} would be overwritten",
            code="init.exists",
            where=str(directory),
            hint="Name another directory, or edit this one: it is a cluster directory already.",
        )
    with _writing(directory):
        for path, text in files.items():
            place = require_trusted_place((directory / path).parent, INSTEAD, root=directory, make=True)
            with open(place / path.name, "x", encoding="utf-8", opener=_opener) as stream:
                stream.write(text)


def _opener(path: str, flags: int) -> int:
    """Others could write it before the next command looks, where the umask allows that."""
    return os.open(path, flags, 0o644)


@contextlib.contextmanager
def _writing(directory: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ClusterctlError(
            f"the cluster directory cannot be written: {error.strerror}",
            code="init.not-writable",
            where=str(error.filename or directory),
        ) from error


def _pairs(text: str | None, option: str) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for part in (text or "").split(","):
        if not part.strip():
            continue
        name, _, address = (word.strip() for word in part.partition("="))
        if because := _describe_problem(name, address, pairs):
            raise ClusterctlError(
                f"{part.strip()!r} in {option} {because}",
                code="init.hosts",
                hint=f"For example: {OPTION_EXAMPLES[option]}",
            )
        pairs[name] = address
    return pairs


def _describe_problem(name: str, address: str, before: dict[str, str]) -> str:
    """Why this host cannot be added to those before; empty if it can."""
    if not name or not address:
        return "is not NAME=ADDRESS"
    if address.startswith("-"):
        return "has an address that begins with a dash: ssh would take it for an option"
    if name in before:
        return f"names {name} a second time"
    same = [other for other, taken in before.items() if taken == address]
    return f"has the address of {same[0]}" if same else ""


def _next_steps(directory: Path, *, declared: bool, registry: bool) -> None:
    chosen = "" if directory == Path() else f" -C {shlex.quote(str(directory))}"
    hosts = directory / "hosts.yml"
    if not declared:
        first = f"Name your servers in {hosts}, and declare their hardware in {directory / 'group_vars'}."
    elif registry:
        first = f"Declare the servers' hardware in {directory / 'group_vars'}."
    else:
        first = (
            f"Name the registry's host in {hosts}, and declare the hardware in {directory / 'group_vars'}."
        )
    say(f"A cluster directory is in {directory.resolve()}. The next three steps:")
    say(f"  1. {first}")
    say(f"  2. clusterctl{chosen} hosts scan        logs in to every server, and pins its host key")
    say(f"  3. clusterctl{chosen} preflight         checks them all; then: apply, validate")
