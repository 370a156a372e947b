"""The settings of a cluster directory, checked as a whole before any host is touched."""

from __future__ import annotations

import itertools
import os
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from yaml.nodes import MappingNode, ScalarNode

from clusterctl.cluster import bounded_yaml, names
from clusterctl.cluster.directory import ClusterDirectory
from clusterctl.cluster.groups import GPU_NODES, KNOWN_GROUPS, REGISTRY
from clusterctl.cluster.settings import environment, exclusions, hosts, variables, yaml_nodes
from clusterctl.cluster.settings.options import catalogue
from clusterctl.cluster.settings.problem import SettingsProblem, at
from clusterctl.cluster.settings.yaml_nodes import MAX_PROBLEMS
from clusterctl.cluster.suggestion import did_you_mean
from clusterctl.cluster.templating import is_template
from clusterctl.errors import ClusterctlError

# What Ansible takes for a file of variables: https://docs.ansible.com/ansible/latest/inventory_guide/
EXTENSIONS = ("", ".yml", ".yaml", ".json")
MAX_FILES = 10_000  # below one directory of group_vars or host_vars
# Of all files together; those of a thousand hosts have some MB. Two million values take two minutes.
MAX_ALL_BYTES, MAX_ALL_VALUES = 64_000_000, 2_000_000
ADDRESS = ("ansible_host", "ansible_ssh_host")
NEED_ADDRESS = (GPU_NODES, REGISTRY)
SIGNATURES = {"images_signatures", "images_signatures_lookaside"}


@dataclass
class _Found:
    """What was read on the way: needed for the questions that no single file answers."""

    problems: list[SettingsProblem] = field(default_factory=list)
    set_for_groups: set[str] = field(default_factory=set)
    set_for_hosts: dict[str, set[str]] = field(default_factory=dict)
    encrypted: bool = False
    # The names that a file sets, by its device and inode: one file may have many links.
    names_of: dict[tuple[int, int], set[str]] = field(default_factory=dict)
    bytes: int = 0
    values: int = 0

    @property
    def is_too_much(self) -> bool:
        """Whether the files that were met have more together than is read."""
        return self.bytes > MAX_ALL_BYTES or self.values > MAX_ALL_VALUES


def check(directory: ClusterDirectory) -> list[SettingsProblem]:
    """Everything wrong with hosts.yml, group_vars and host_vars, in the order of files and lines.

    Never raises for what is written there; ClusterctlError (``content.*``) for a broken install.
    """
    found = _Found()
    document = yaml_nodes.read(directory.hosts_file)
    found.problems += document.problems
    declared = hosts.DeclaredHosts()
    if document.root is not None:
        try:
            declared, problems = hosts.read(directory.hosts_file, document.root)
            found.problems += problems
            _inline(directory, declared, found)
        except RecursionError:
            found.problems.append(at(directory.hosts_file, document.root, "the file is nested too deep"))
    readable = document.root is not None and not document.problems and len(found.problems) < MAX_PROBLEMS
    for file, owner in _files(directory.group_vars, found):
        if readable and owner not in declared.groups:
            _stray(file, owner, "group", [*declared.groups, *KNOWN_GROUPS], found)
        found.set_for_groups |= _variables(file, directory.root, found, declared.hosts if readable else None)
    for file, owner in _files(directory.root / names.HOST_VARS, found):
        if readable and owner not in declared.hosts:
            _stray(file, owner, "host", list(declared.hosts), found)
        found.set_for_hosts.setdefault(owner, set()).update(
            _variables(file, directory.root, found, declared.hosts if readable else None)
        )
    if readable or (document.root is None and not document.problems):
        found.problems += _whole(directory, declared, found)
    return sorted(
        set(found.problems), key=lambda p: (p.file != directory.hosts_file, str(p.file), p.line, p.column)
    )


def require_valid(directory: ClusterDirectory) -> None:
    """Raise one ClusterctlError (``settings.invalid``, exit 2) that names every problem with its line."""
    problems = check(directory)
    if not problems:
        return
    if len(problems) == 1:
        only = problems[0]
        raise ClusterctlError(only.what, code=only.code, where=only.where, hint=only.hint)
    lines = [f"{p.where}: {p.what}" + (f" ({p.hint})" if p.hint else "") for p in problems]
    raise ClusterctlError(
        f"the settings have {len(problems)} problems; no host was touched\n  " + "\n  ".join(lines),
        code="settings.invalid",
        where=problems[0].where,
        hint="Fix them and run the same command again.",
    )


def _inline(directory: ClusterDirectory, declared: hosts.DeclaredHosts, found: _Found) -> None:
    checked: set[int] = set()

    def once(node: MappingNode) -> None:
        if id(node) not in checked:
            checked.add(id(node))
            found.problems += _first(
                variables.check(directory.hosts_file, node),
                exclusions.check(directory.hosts_file, node, declared.hosts),
                environment.check(directory.hosts_file, node),
                _signatures(directory.hosts_file, node, directory.root),
            )

    for node in declared.group_variables:
        once(node)
        found.set_for_groups |= variables.names(node)
    for name, nodes in declared.host_variables.items():
        for node in nodes:
            once(node)
            found.set_for_hosts.setdefault(name, set()).update(variables.names(node))


def _variables(file: Path, root: Path, found: _Found, known_hosts: Collection[str] | None) -> set[str]:
    if found.is_too_much:  # that was said
        return set()
    try:
        state = file.stat()
    except OSError:  # which reading it says
        return _names_in(file, root, found, known_hosts)
    identity = (state.st_dev, state.st_ino)
    if identity not in found.names_of:
        found.bytes += min(state.st_size, yaml_nodes.MAX_BYTES)
        found.names_of[identity] = _names_in(file, root, found, known_hosts)
    return found.names_of[identity]


def _names_in(file: Path, root: Path, found: _Found, known_hosts: Collection[str] | None) -> set[str]:
    document = yaml_nodes.YamlDocument(file, None) if found.is_too_much else yaml_nodes.read(file)
    found.values += bounded_yaml.size(document.root) if document.root is not None else 0
    if found.is_too_much:
        what = f"the files up to this one have more than {MAX_ALL_BYTES} bytes or {MAX_ALL_VALUES} values"
        hint = "No cluster's settings are like this: who wrote them?"
        found.problems.append(SettingsProblem(file, 0, 0, what, hint))
        return set()
    found.problems += document.problems
    found.encrypted |= document.encrypted
    if document.root is None:
        return set()
    try:
        found.problems += _first(
            variables.check(file, document.root),
            exclusions.check(file, document.root, known_hosts),
            environment.check(file, document.root),
            _signatures(file, document.root, root),
        )
    except RecursionError:
        found.problems.append(at(file, document.root, "the file is nested too deep"))
    return variables.names(document.root)


def _first(*problems: Iterable[SettingsProblem]) -> Iterator[SettingsProblem]:
    """As many as a person reads: to find the nearest name for one that is unknown takes a millisecond."""
    return itertools.islice(itertools.chain(*problems), MAX_PROBLEMS)


def _signatures(file: Path, node: MappingNode, root: Path) -> Iterator[SettingsProblem]:
    if SIGNATURES & variables.names(node):
        from clusterctl.cluster.settings import signatures  # noqa: PLC0415 - 100 ms that others do not need

        yield from signatures.check(file, node, root)


def _files(folder: Path, found: _Found) -> Iterator[tuple[Path, str]]:
    """The files below group_vars or host_vars that Ansible would read, and whom each is for."""
    try:
        top = sorted(folder.iterdir()) if folder.is_dir() else []
    except OSError as error:
        found.problems.append(
            SettingsProblem(folder, 0, 0, f"the directory cannot be read: {error.strerror}")
        )
        return
    for path in top:
        if path.is_dir():
            for inner in _inner_files(path, found):
                yield inner, path.name
        elif _is_read(path):  # Ansible opens whatever it is: what is not a file is refused by who reads it
            yield path, path.stem if path.suffix in EXTENSIONS else path.name


def _inner_files(top: Path, found: _Found) -> Iterator[Path]:
    """The files below a directory, through links as Ansible follows them, which must come to an end."""
    number = 0
    for folder, folders, files in os.walk(top, followlinks=True):
        folders.sort()
        number += len(folders) + len(files)
        if number > MAX_FILES or _leads_back(Path(folder)):
            what = f"there are more than {MAX_FILES} files in it, or its links lead back into it"
            found.problems.append(SettingsProblem(top, 0, 0, what, "Ansible would read them all."))
            return
        yield from (path for name in sorted(files) if _is_read(path := Path(folder, name)) and path.is_file())


def _leads_back(folder: Path) -> bool:
    here, parent = folder.resolve(), folder.parent.resolve()
    return here == parent or here in parent.parents


def _is_read(path: Path) -> bool:
    return path.suffix in EXTENSIONS and not path.name.startswith(".") and not path.name.endswith("~")


def _stray(file: Path, owner: str, kind: str, known: list[str], found: _Found) -> None:
    if owner in (*hosts.BUILT_IN_GROUPS, *KNOWN_GROUPS) and kind == "group":
        return
    hint = (
        did_you_mean(owner, known)
        or f"Ansible would never read this file: name it as the {kind}, or remove it."
    )
    found.problems.append(
        SettingsProblem(file, 0, 0, f"there is no {kind} {owner} in hosts.yml", hint, "settings.stray-file")
    )


def _whole(
    directory: ClusterDirectory, declared: hosts.DeclaredHosts, found: _Found
) -> Iterator[SettingsProblem]:
    """What no single line shows: hosts without an address, two with the same, settings that are missing."""
    if not declared.hosts:
        hint = "Name the servers below gpu_nodes, or: clusterctl hosts add gpu01 10.0.0.1"
        yield SettingsProblem(directory.hosts_file, 0, 0, "no host is declared", hint, "settings.no-hosts")
    everywhere = found.set_for_groups
    for name, key in declared.hosts.items():
        needed = declared.all_groups_of(name) & set(NEED_ADDRESS)
        own = found.set_for_hosts.get(name, set())
        if needed and not found.encrypted and not (own | everywhere) & set(ADDRESS):
            what = f"the host {name} of the group {min(needed)} has no address"
            hint = f"Write below {name}: `ansible_host: 10.0.0.1`"
            yield at(directory.hosts_file, key, what, hint, "settings.no-address")
    yield from _same_address(directory.hosts_file, declared)
    everything = everywhere.union(*found.set_for_hosts.values()) if declared.hosts else everywhere
    if not found.encrypted and declared.hosts:
        for name, option in catalogue().items():
            if option.required and option.default is None and name == option.name and name not in everything:
                what = f"the setting {name} is missing"
                file = directory.group_vars / "all.yml"
                yield SettingsProblem(file, 0, 0, what, option.description, "settings.missing")


def _same_address(file: Path, declared: hosts.DeclaredHosts) -> Iterator[SettingsProblem]:
    taken: dict[tuple[str, str], str] = {}
    for name, nodes in declared.host_variables.items():
        own = {key.value: value for node in nodes for key, value in yaml_nodes.entries(node)}
        address, port = (own.get(word) for word in ("ansible_host", "ansible_port"))
        if not isinstance(address, ScalarNode) or is_template(address.value) or not address.value:
            continue
        place = (address.value, port.value if isinstance(port, ScalarNode) else "22")
        other = taken.setdefault(place, name)
        if other != name:
            what = f"the hosts {other} and {name} have the same address {address.value}"
            yield at(file, address, what, "Each host has its own.", "settings.same-address")
