"""hosts.yml: groups, hosts and the variables next to them."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from yaml.nodes import MappingNode, Node, ScalarNode

from clusterctl.cluster.groups import KNOWN_GROUPS
from clusterctl.cluster.settings.problem import SettingsProblem, at
from clusterctl.cluster.settings.yaml_nodes import MAX_PROBLEMS, entries, is_null
from clusterctl.cluster.suggestion import did_you_mean

BUILT_IN_GROUPS = ("all", "ungrouped")
# What a group holds, each with an example.
SECTIONS = {"hosts": "gpu01:", "vars": "name: value", "children": "gpu_nodes:"}
GROUP_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
HOST_NAME = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9._-]*[A-Za-z0-9_])?")
# What Ansible takes for the controller, on which roles make keys and passwords, and for groups.
RESERVED_NAMES = frozenset({"localhost", "127.0.0.1", "_meta", *BUILT_IN_GROUPS, *KNOWN_GROUPS})
NAME_HINT = "Letters, digits, dots, dashes and underscores; not localhost, and not the name of a group."
RANGE = re.compile(r"\[([0-9]+|[a-zA-Z]):([0-9]+|[a-zA-Z])(?::([0-9]+))?\]")
# Of a host's name in DNS, with ranges or without: names are multiplied before each is judged.
MAX_NAME = 253
MOST_HOSTS = 10_000
MOST_NAMED = 10 * MOST_HOSTS  # a host is named in each of its groups


@dataclass
class DeclaredHosts:
    """What hosts.yml says, with its places."""

    groups: dict[str, Node] = field(default_factory=dict)
    parents: dict[str, set[str]] = field(default_factory=dict)
    hosts: dict[str, Node] = field(default_factory=dict)
    member_of: dict[str, set[str]] = field(default_factory=dict)
    host_variables: dict[str, list[MappingNode]] = field(default_factory=dict)
    group_variables: list[MappingNode] = field(default_factory=list)
    named: int = 0

    def all_groups_of(self, host: str) -> set[str]:
        """The groups a host is in, those above its own too."""
        found: set[str] = set()
        pending = list(self.member_of.get(host, ()))
        while pending:
            group = pending.pop()
            if group not in found:
                found.add(group)
                pending += self.parents.get(group, ())
        return found


def read(file: Path, root: MappingNode) -> tuple[DeclaredHosts, list[SettingsProblem]]:
    """The groups and hosts of an inventory file, and what is wrong with their form."""
    declared = DeclaredHosts()
    problems: list[SettingsProblem] = []
    for key, value in entries(root):
        problems += itertools.islice(_group(file, key, value, None, declared), MAX_PROBLEMS)
        if len(problems) >= MAX_PROBLEMS:
            return declared, problems
    problems += _semantics(file, declared)
    return declared, problems


def _group(
    file: Path, key: ScalarNode, node: Node, parent: str | None, declared: DeclaredHosts
) -> Iterator[SettingsProblem]:
    name = key.value
    if not GROUP_NAME.fullmatch(name) or name == "_meta":
        hint = did_you_mean(name.replace("-", "_"), KNOWN_GROUPS)
        what = f"{name!r} is not a valid group name: only letters, digits and underscores are allowed"
        yield at(file, key, what, hint, "settings.group")
        return
    declared.groups.setdefault(name, key)
    if parent is not None:
        declared.parents.setdefault(name, set()).add(parent)
    if is_null(node):
        return
    if not isinstance(node, MappingNode):
        hint = "It holds hosts:, vars: and children:, indented below it."
        yield at(file, node, f"the group {name} must be a mapping", hint, "settings.group")
        return
    for section, value in entries(node):
        yield from _section(file, name, section, value, declared)


def _section(
    file: Path, group: str, section: ScalarNode, value: Node, declared: DeclaredHosts
) -> Iterator[SettingsProblem]:
    if section.value not in SECTIONS:
        hint = did_you_mean(section.value, SECTIONS) or f"A group holds {', '.join(SECTIONS)}."
        yield at(file, section, f"the group {group} knows no {section.value!r}", hint, "settings.group")
    elif is_null(value):
        return
    elif not isinstance(value, MappingNode):
        what = f"{section.value} of the group {group} must be a mapping, not a list or text"
        hint = f"Write each on a line of its own, without a dash: `{SECTIONS[section.value]}`"
        yield at(file, value, what, hint, "settings.group")
    elif section.value == "vars":
        declared.group_variables.append(value)
    elif section.value == "children":
        for child_key, child in entries(value):
            yield from _group(file, child_key, child, group, declared)
    else:
        for host_key, variables in entries(value):
            yield from _host(file, host_key, variables, group, declared)


def _host(
    file: Path, key: ScalarNode, node: Node, group: str, declared: DeclaredHosts
) -> Iterator[SettingsProblem]:
    if not is_null(node) and not isinstance(node, MappingNode):
        hint = f"Write its variables on lines below it: `ansible_host: {node.value}`"
        if not isinstance(node, ScalarNode):
            hint = "Write its variables as `name: value`, on lines below it."
        what = f"the host {key.value} must have a mapping of variables, or nothing, behind it"
        yield at(file, node, what, hint, "settings.host")
    if declared.named > MOST_NAMED:  # that was said
        return
    if len(key.value) > MAX_NAME:
        what = f"the name {key.value[:20]}... of a host has more than {MAX_NAME} characters"
        yield at(file, key, what, "A range is written gpu[01:08].", "settings.host")
        return
    expanded = expand(key.value)
    declared.named += len(expanded)
    if declared.named > MOST_NAMED:
        what = f"hosts are named more than {MOST_NAMED} times, in all groups together"
        yield at(file, key, what, "No cluster has as many: is a range meant to be shorter?", "settings.host")
        return
    for name in expanded:
        if not is_host_name(name):
            hint = f"{NAME_HINT} A range is written gpu[01:08]."
            yield at(file, key, f"{name!r} is not a valid host name", hint, "settings.host")
            return
        declared.hosts.setdefault(name, key)
        declared.member_of.setdefault(name, set()).add(group)
        if isinstance(node, MappingNode):
            declared.host_variables.setdefault(name, []).append(node)
    if not expanded:
        what = f"the range in {key.value} is empty, or makes more than {MOST_HOSTS} hosts"
        yield at(file, key, what, "Write it as gpu[01:08].", "settings.host")


def is_host_name(name: str) -> bool:
    """Whether a host may have this name."""
    return bool(HOST_NAME.fullmatch(name)) and name not in RESERVED_NAMES


def expand(pattern: str) -> list[str]:
    """The hosts that a name with ranges stands for, as Ansible reads them; none where that is nonsense."""
    if len(pattern) > MAX_NAME:
        return []
    fixed, words, number = [], [], 1
    end = 0
    for match in RANGE.finditer(pattern):
        words.append(_range(match[1], match[2], int(match[3] or 1)))
        fixed.append(pattern[end : match.start()])
        end = match.end()
        number *= len(words[-1])
        if not 0 < number <= MOST_HOSTS:
            return []
    return [
        "".join(part for pair in zip(fixed, each, strict=True) for part in pair) + pattern[end:]
        for each in itertools.product(*words)
    ]


def _range(first: str, last: str, step: int) -> list[str]:
    if step < 1 or first.isdigit() != last.isdigit() or len(last) > len(str(MOST_HOSTS)) + 4:
        return []
    if first.isdigit():
        numbers = range(int(first), int(last) + 1, step)
        return [str(n).zfill(len(first)) for n in numbers[: MOST_HOSTS + 1]]
    return [chr(n) for n in range(ord(first), ord(last) + 1, step)]


def _semantics(file: Path, declared: DeclaredHosts) -> Iterator[SettingsProblem]:
    known = {*KNOWN_GROUPS, *BUILT_IN_GROUPS}
    for name, key in declared.groups.items():
        if name not in known and (near := did_you_mean(name, KNOWN_GROUPS, 0.75)):
            what = f"the group {name} is not one that clusterctl knows"
            yield at(file, key, what, near, "settings.group")
            known.add(name)  # its hosts need not be named one by one as well
    for name, key in declared.hosts.items():
        if name in declared.groups:
            yield at(file, key, f"{name} is the name of a host and of a group", NAME_HINT, "settings.host")
        if not declared.all_groups_of(name) & (known - set(BUILT_IN_GROUPS)):
            hint = f"Put it below one of {', '.join(KNOWN_GROUPS)}."
            yield at(
                file, key, f"the host {name} is in no group that clusterctl knows", hint, "settings.host"
            )
