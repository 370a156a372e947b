"""hosts.yml changed by lines: every comment, blank and quote of the operator's stays where it was."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from clusterctl.cluster.bounded_file import UnusableFileError, describe_unusable, read_bounded_text
from clusterctl.cluster.directory import ClusterDirectory
from clusterctl.cluster.settings import yaml_nodes
from clusterctl.cluster.settings.hosts import NAME_HINT, expand, is_host_name
from clusterctl.cluster.settings.yaml_nodes import TAG, is_null
from clusterctl.cluster.state_files import replace_file
from clusterctl.errors import ClusterctlError

PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")
BY_HAND = "Change hosts.yml by hand; clusterctl hosts list shows the result."


def read_text(directory: ClusterDirectory) -> str:
    """The inventory file. Raises ClusterctlError (``hosts-file.unreadable``)."""
    try:
        return read_bounded_text(directory.hosts_file, yaml_nodes.MAX_BYTES)
    except (OSError, UnusableFileError) as error:
        raise ClusterctlError(
            f"the inventory file cannot be read: {describe_unusable(error)}",
            code="hosts-file.unreadable",
            where=str(directory.hosts_file),
        ) from error


def write_text(directory: ClusterDirectory, text: str) -> None:
    """Replace the inventory file; its mode stays."""
    mode = directory.hosts_file.stat().st_mode & 0o777
    replace_file(directory.hosts_file, text, mode)


def with_host(text: str, group: str, name: str, variables: Mapping[str, str | int]) -> str:
    """The inventory with one host more.

    Raises ClusterctlError: ``hosts-file.name`` for a name that is none, ``hosts-file.exists``, or
    ``hosts-file.form`` where the file is written in a way that is not ours to rewrite.
    """
    if not is_host_name(name):
        raise ClusterctlError(f"{name!r} is not a valid host name", code="hosts-file.name", hint=NAME_HINT)
    root = _compose(text)
    if any(name in expand(key.value) for _, key, _ in _hosts(root)):
        raise ClusterctlError(
            f"{name} is in the inventory already",
            code="hosts-file.exists",
            where="hosts.yml",
            hint=f"A re-imaged one: clusterctl hosts replace {name}; another address: edit hosts.yml.",
        )
    lines = text.splitlines(keepends=True)
    if lines and not lines[-1].endswith("\n"):
        lines[-1] += "\n"
    line, column, above = _place(root, lines, group)
    words = [*above, name]
    added = [f"{' ' * (column + 2 * depth)}{_scalar(word)}:\n" for depth, word in enumerate(words)]
    deeper = " " * (column + 2 * len(words))
    added += [f"{deeper}{key}: {_scalar(value)}\n" for key, value in variables.items()]
    changed = "".join([*lines[:line], *added, *lines[line:]])
    _confirm(changed, before=root, name=name, there=True)
    return changed


def without_host(text: str, name: str) -> str:
    """The inventory without one host, in whatever groups it was.

    Raises ClusterctlError: ``hosts-file.unknown``, or ``hosts-file.form`` where a range or a flow mapping
    holds it.
    """
    root = _compose(text)
    lines = text.splitlines(keepends=True)
    gone: set[int] = set()
    for _, key, value in _hosts(root):
        if key.value == name:
            gone |= set(range(key.start_mark.line, _last_line(key, value) + 1))
        elif name in expand(key.value):
            raise _form(f"{name} is one of the range {key.value}", key)
    if not gone:
        raise ClusterctlError(
            f"{name} is not in the inventory file",
            code="hosts-file.unknown",
            where="hosts.yml",
            hint="clusterctl hosts list names all hosts.",
        )
    changed = "".join(line for number, line in enumerate(lines) if number not in gone)
    _confirm(changed, before=root, name=name, there=False)
    return changed


def _place(root: MappingNode, lines: list[str], group: str) -> tuple[int, int, list[str]]:
    """Where a host of ``group`` goes: the line before which, its column, and the keys missing above it."""
    for key, value in _groups(root):
        if key.value == group:
            return _place_in_group(key, value, lines)
    every = _child(root, "all")
    children = _child(every[1], "children") if every else None
    if children and isinstance(children[1], MappingNode) and children[1].value:
        line, column = _end_of(children[1])
        return line, column, [group, "hosts"]
    line, column = _end_of(root) if root.value else (len(lines), 0)
    return line, column, [group, "hosts"]


def _place_in_group(key: ScalarNode, value: Node, lines: list[str]) -> tuple[int, int, list[str]]:
    if is_null(value):
        _take_out(lines, value)
        return key.start_mark.line + 1, key.start_mark.column + 2, ["hosts"]
    hosts = _child(value, "hosts")
    if hosts is None:
        line, column = _end_of(value)
        return line, column, ["hosts"]
    hosts_key, held = hosts
    if is_null(held) or (isinstance(held, MappingNode) and not held.value):
        _take_out(lines, held)
        return hosts_key.start_mark.line + 1, hosts_key.start_mark.column + 2, []
    line, column = _end_of(held)
    return line, column, []


def _take_out(lines: list[str], node: Node) -> None:
    """Remove an empty `{}`, `~` or `null` behind a key, if one is written there."""
    start, end = node.start_mark, node.end_mark
    if start.index == end.index:
        return
    if start.line != end.line:
        raise _form("an empty mapping goes over several lines", node)
    row = lines[start.line]
    lines[start.line] = row[: start.column].rstrip() + row[end.column :]


def _end_of(node: Node) -> tuple[int, int]:
    """The line behind the last entry of a block mapping, and the column of its keys."""
    if not isinstance(node, MappingNode) or not node.value or node.flow_style:
        raise _form("this is written in one line, in braces", node)
    first, (key, value) = node.value[0][0], node.value[-1]
    return _last_line(key, value) + 1, int(first.start_mark.column)


def _last_line(key: Node, value: Node) -> int:
    """The last line that an entry really fills; block nodes end only where the next token starts."""
    if isinstance(value, MappingNode) and value.value and not value.flow_style:
        return max(_last_line(k, v) for k, v in value.value)
    if isinstance(value, SequenceNode) and value.value and not value.flow_style:
        return max(_last_line(item, item) for item in value.value)
    if value.start_mark.line < key.start_mark.line:  # an alias: its node stands where the anchor is
        return int(key.end_mark.line)
    if isinstance(value, ScalarNode) and value.style in ("|", ">"):
        return int(value.end_mark.line) - (1 if value.end_mark.column == 0 else 0)
    return max(int(key.end_mark.line), int(value.end_mark.line) if value.value else int(key.end_mark.line))


def _groups(root: MappingNode) -> Iterator[tuple[ScalarNode, Node]]:
    for key, value in yaml_nodes.entries(root):
        yield key, value
        children = _child(value, "children")
        if children and isinstance(children[1], MappingNode):
            yield from _groups(children[1])


def _hosts(root: MappingNode) -> Iterator[tuple[ScalarNode, ScalarNode, Node]]:
    for group, value in _groups(root):
        hosts = _child(value, "hosts")
        if hosts and isinstance(hosts[1], MappingNode):
            for key, variables in yaml_nodes.entries(hosts[1]):
                yield group, key, variables


def _child(node: Node, name: str) -> tuple[ScalarNode, Node] | None:
    if not isinstance(node, MappingNode):
        return None
    return next(((key, value) for key, value in yaml_nodes.entries(node) if key.value == name), None)


def _compose(text: str) -> MappingNode:
    document = yaml_nodes.parse(Path("hosts.yml"), text)
    if document.problems:
        problem = document.problems[0]
        raise ClusterctlError(problem.what, code=problem.code, where=problem.where, hint=problem.hint)
    return document.root or MappingNode(TAG + "map", [], flow_style=False)


def _confirm(changed: str, *, before: MappingNode, name: str, there: bool) -> None:
    """The new text must say what the old one said, except this one host; else nothing is written."""
    after = _compose(changed)
    kept = [_plain_hosts(tree, name) for tree in (before, after)]
    found = any(key.value == name for _, key, _ in _hosts(after))
    if kept[0] != kept[1] or found is not there:
        raise _form("its lines cannot be changed without changing what else they say", before)


def _plain_hosts(root: MappingNode, leave_out: str) -> Any:
    """What an inventory says, as plain data, without one host, and without what is empty."""

    def plain(node: Node, in_hosts: bool) -> Any:
        if isinstance(node, ScalarNode):
            return None if is_null(node) else (node.tag, node.value)
        if isinstance(node, SequenceNode):
            return [plain(item, False) for item in node.value]
        found = {}
        for key, value in yaml_nodes.entries(node) if isinstance(node, MappingNode) else ():
            answer = plain(value, key.value == "hosts")
            if in_hosts and key.value == leave_out:
                continue
            if in_hosts or answer not in (None, {}):
                found[key.value] = answer
        return found

    return plain(root, False)


def _scalar(value: str | int) -> str:
    """A YAML scalar that reads back as exactly this."""
    if isinstance(value, int):
        return str(value)
    # Its tag alone: what makes values of scalars fails on some, as 0x_.
    node = yaml.compose(value, Loader=yaml.SafeLoader) if PLAIN.fullmatch(value) else None
    if node is not None and node.tag == f"{TAG}str":
        return value
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _form(what: str, node: Node) -> ClusterctlError:
    where = f"hosts.yml:{node.start_mark.line + 1}" if node.start_mark else "hosts.yml"
    return ClusterctlError(
        f"hosts.yml is not changed: {what}", code="hosts-file.form", where=where, hint=BY_HAND
    )


def group_names(text: str) -> set[str]:
    """The groups that an inventory file declares."""
    return {key.value for key, _ in _groups(_compose(text))}
