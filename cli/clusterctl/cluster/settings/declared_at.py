"""Where a setting of a host is declared: file and line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from yaml.nodes import MappingNode

from clusterctl.cluster import names
from clusterctl.cluster.directory import ClusterDirectory
from clusterctl.cluster.inventory import Host
from clusterctl.cluster.settings import yaml_nodes
from clusterctl.cluster.settings.hosts import expand

SUFFIXES = ("", ".yml", ".yaml", ".json")


def declared_at(directory: ClusterDirectory, host: Host, name: str) -> str:
    """The files and lines that declare a setting for a host or its groups, the host's own first.

    Empty if none does: then a role's default holds, or -e.
    """
    found = []
    for file, root in _documents(directory, host):
        for key, _ in yaml_nodes.entries(root):
            if key.value == name:
                place = file.relative_to(directory.root) if file.is_relative_to(directory.root) else file
                found.append(f"{place}:{key.start_mark.line + 1}")
    return ", ".join(dict.fromkeys(found))


def _documents(directory: ClusterDirectory, host: Host) -> Iterator[tuple[Path, MappingNode]]:
    owners = [
        (directory.root / names.HOST_VARS, host.name),
        *((directory.group_vars, group) for group in (*reversed(host.groups), "all")),
    ]
    for folder, owner in owners:
        for file in _files(folder, owner):
            if (root := yaml_nodes.read(file).root) is not None:
                yield file, root
    if (root := yaml_nodes.read(directory.hosts_file).root) is not None:
        yield from ((directory.hosts_file, node) for node in _inline(root, host))


def _files(folder: Path, owner: str) -> Iterator[Path]:
    for suffix in SUFFIXES:
        path = folder / f"{owner}{suffix}"
        if path.is_file():
            yield path
        elif path.is_dir():
            yield from (inner for inner in sorted(path.iterdir()) if inner.is_file())


def _inline(groups: MappingNode, host: Host) -> Iterator[MappingNode]:
    """The variables next to the host and to its groups in a file of hosts."""
    for group, sections in yaml_nodes.entries(groups):
        for section, node in yaml_nodes.entries(sections) if isinstance(sections, MappingNode) else ():
            if not isinstance(node, MappingNode):
                continue
            if section.value == "children":
                yield from _inline(node, host)
            elif section.value == "vars" and group.value in (*host.groups, "all"):
                yield node
            elif section.value == "hosts":
                yield from (
                    variables
                    for key, variables in yaml_nodes.entries(node)
                    if isinstance(variables, MappingNode) and host.name in expand(key.value)
                )
