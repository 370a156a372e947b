"""What the operator declared: hosts, their groups and variables, as Ansible itself reads them."""

from __future__ import annotations

import fnmatch
import json
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from clustercheck.parse.plain_text import shortened
from clusterctl.cluster import quarantine, ssh_options
from clusterctl.cluster.captured import OutputTooLongError, run_captured
from clusterctl.cluster.directory import ClusterDirectory
from clusterctl.cluster.groups import GPU_NODES, KNOWN_GROUPS, REGISTRY
from clusterctl.cluster.suggestion import did_you_mean
from clusterctl.cluster.templating import Variables
from clusterctl.cluster.vault_settings import adopt_vault_settings
from clusterctl.content import content_root
from clusterctl.errors import ClusterctlError
from clusterctl.interpreter import ansible_environment, python_command

READ_TIMEOUT_S = 60.0
MAX_LISTING_BYTES = 256 << 20  # of a thousand hosts it has some ten MiB
MAX_MEMORY_BYTES = 4 << 30
DEFAULT_SSH_PORT = 22


@dataclass(frozen=True)
class Host:
    """One host of the inventory. ``variables`` are merged over its groups, and not templated.

    ``user`` is empty where neither the inventory nor a template names one: then SSH's own rules hold.
    ``quarantined`` is the reason why it is out, or None.
    """

    name: str
    address: str
    port: int
    user: str
    groups: tuple[str, ...]
    variables: Mapping[str, Any] = field(repr=False)
    quarantined: str | None = None
    context: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    def value(self, name: str, default: Any = None) -> Any:
        """A variable of this host with its templates evaluated; ``default`` where it is not set.

        Raises ClusterctlError (``inventory.template``) where a template cannot be evaluated here.
        """
        return Variables(self.variables, self.context, self.name).value(name, default)


@dataclass(frozen=True)
class Inventory:
    """Every host, in the order of the inventory file's groups, quarantined ones among them."""

    directory: ClusterDirectory
    hosts: tuple[Host, ...]

    @property
    def gpu_nodes(self) -> tuple[Host, ...]:
        """Hosts of the group gpu_nodes; a quarantined one says so in ``quarantined``."""
        return self.group(GPU_NODES)

    @property
    def registry_hosts(self) -> tuple[Host, ...]:
        """Hosts of the group registry; a quarantined one says so in ``quarantined``."""
        return self.group(REGISTRY)

    @property
    def quarantined(self) -> tuple[Host, ...]:
        """Hosts that are out: name them to the operator with their reason, and leave them alone."""
        return tuple(host for host in self.hosts if host.quarantined is not None)

    def group(self, name: str) -> tuple[Host, ...]:
        """The hosts of one group, of its children too."""
        return tuple(host for host in self.hosts if name in host.groups)

    def host(self, name: str) -> Host:
        """The host of that name. Raises ClusterctlError (``inventory.unknown-host``)."""
        for host in self.hosts:
            if host.name == name:
                return host
        raise ClusterctlError(
            f"there is no host {name!r} in the inventory",
            code="inventory.unknown-host",
            where=str(self.directory.hosts_file),
            hint=_hint_for(name, [host.name for host in self.hosts]),
        )

    def matching(self, limit: str | None) -> tuple[Host, ...]:
        """The hosts that ``limit`` names, quarantined ones among them; all where it is empty.

        ``limit`` is a list, separated by commas, of hosts, groups and globs; ``!x`` takes x out again.
        Raises ClusterctlError (``inventory.unknown-host``) where a part of it names nothing.
        """
        parts = [part.strip() for part in (limit or "").split(",") if part.strip()]
        wanted = [part for part in parts if not part.startswith("!")]
        chosen = self._named(wanted) if wanted else {host.name for host in self.hosts}
        chosen -= self._named([part[1:] for part in parts if part.startswith("!")])
        return tuple(host for host in self.hosts if host.name in chosen)

    def select(self, limit: str | None = None) -> tuple[Host, ...]:
        """The hosts of ``limit`` that may be touched now: those of `matching` that are not quarantined.

        Raises ClusterctlError (``inventory.nothing-selected``) where none is left.
        """
        matching = self.matching(limit)
        chosen = tuple(host for host in matching if host.quarantined is None)
        if chosen:
            return chosen
        out = ", ".join(f"{host.name} ({host.quarantined})" for host in matching)
        raise ClusterctlError(
            f"every selected host is in quarantine: {out}" if out else "no host is selected",
            code="inventory.nothing-selected",
            where=f"--limit {limit}" if limit else str(self.directory.hosts_file),
            hint="clusterctl hosts release NODE takes one back."
            if out
            else "clusterctl hosts list names all.",
        )

    def _named(self, patterns: Iterable[str]) -> set[str]:
        groups = {group for host in self.hosts for group in host.groups} | {"all"}
        chosen: set[str] = set()
        for pattern in patterns:
            matched = {
                host.name
                for host in self.hosts
                if fnmatch.fnmatchcase(host.name, pattern)
                or pattern == "all"
                or any(fnmatch.fnmatchcase(group, pattern) for group in host.groups)
            }
            # A known group may well be empty; a name that is nothing at all is a slip of the pen.
            if not matched and pattern not in (*groups, *KNOWN_GROUPS):
                names = sorted(groups | {host.name for host in self.hosts})
                raise ClusterctlError(
                    f"{pattern!r} names no host and no group",
                    code="inventory.unknown-host",
                    where=str(self.directory.hosts_file),
                    hint=_hint_for(pattern, names),
                )
            chosen |= matched
        return chosen


_CACHE: dict[ClusterDirectory, dict[str, Any]] = {}


def load(directory: ClusterDirectory) -> Inventory:
    """The inventory of a cluster directory, quarantine included; read by Ansible once a process.

    Raises ClusterctlError (``inventory.*``, ``secrets.*``; exit 2) where Ansible cannot read it.
    """
    listing = _CACHE.get(directory)
    if listing is None:
        adopt_vault_settings(directory.root)
        listing = _CACHE[directory] = _listing(directory)
    return from_listing(directory, listing)


def forget_cached() -> None:
    """Read inventories again at the next `load`: for those who edit hosts.yml in this process."""
    _CACHE.clear()


def load_anew(directory: ClusterDirectory) -> Inventory:
    """The same, as its files are now."""
    _CACHE.pop(directory, None)
    return load(directory)


def from_listing(directory: ClusterDirectory, listing: Mapping[str, Any]) -> Inventory:
    """The inventory that ``ansible-inventory --list`` printed, as data."""
    members = _members(listing)
    host_variables: Mapping[str, Mapping[str, Any]] = listing.get("_meta", {}).get("hostvars", {})
    names = list(dict.fromkeys([*members.get("all", []), *host_variables]))
    merged = {
        name: {k: v for k, v in host_variables.get(name, {}).items() if k != "ansible_local"}
        for name in names
    }
    out = quarantine.active(directory)
    groups_of: dict[str, list[str]] = {name: [] for name in names}
    for group, inside in members.items():
        for name in inside if group != "all" else ():
            groups_of.setdefault(name, []).append(group)
    hosts = []
    for name in names:
        groups = tuple(groups_of[name])
        context = {
            "inventory_hostname": name,
            "inventory_hostname_short": name.split(".")[0],
            "inventory_dir": str(directory.root),
            "inventory_file": str(directory.hosts_file),
            "groups": members,
            "group_names": sorted(groups),
            "hostvars": merged,
        }
        variables = Variables(merged[name], context, name)
        entry = out.get(name)
        hosts.append(
            Host(
                name=name,
                address=_for_ssh(variables, ("ansible_host", "ansible_ssh_host"), name, name),
                port=_port(variables, name),
                user=_for_ssh(variables, ("ansible_user", "ansible_ssh_user"), "", name),
                groups=groups,
                variables=merged[name],
                quarantined=entry.reason if entry else None,
                context=context,
            )
        )
    return Inventory(directory, tuple(hosts))


def _for_ssh(variables: Variables, names: tuple[str, str], default: str, host: str) -> str:
    """An address or a user as a template makes it, too. Raises ClusterctlError (``settings.value``)."""
    found = {name: value for name in names if (value := variables.value(name)) is not None}
    name, value = next(iter(found.items()), (names[0], default))
    text = str(value or "")
    if not ssh_options.is_word(text):
        raise ClusterctlError(
            f"{name} of {host} cannot be handed to ssh: {shortened(repr(value), 80)}",
            code="settings.value",
            where=f"{host}: {name}",
            hint="Write a name or an IP address, or a user name.",
        )
    return text


def _port(variables: Variables, name: str) -> int:
    declared = variables.value("ansible_port", variables.value("ansible_ssh_port", None))
    if declared in (None, ""):
        return DEFAULT_SSH_PORT
    try:
        return int(declared)
    except (TypeError, ValueError, OverflowError):
        raise ClusterctlError(
            f"ansible_port of {name} is {shortened(repr(declared), 80)}, which is not a number",
            code="inventory.port",
            where=f"{name}: ansible_port",
        ) from None


def _members(listing: Mapping[str, Any]) -> dict[str, list[str]]:
    """Every group with its hosts and those of its children, in the listing's order."""
    return {group: _inside(listing, group) for group in listing if group != "_meta"}


def _inside(listing: Mapping[str, Any], group: str) -> list[str]:
    """The hosts of a group, then those of its children; a group that is reached in many ways is read once."""
    found: list[str] = []
    seen: set[str] = set()
    waiting = [group]
    while waiting:
        name = waiting.pop()
        entry = listing.get(name)
        if not isinstance(entry, Mapping) or name in seen:
            continue
        seen.add(name)
        found += entry.get("hosts", [])
        waiting += reversed(entry.get("children", []))
    return list(dict.fromkeys(found))


def _listing(directory: ClusterDirectory) -> dict[str, Any]:
    content = content_root()
    command = python_command("-m", "ansible", "inventory", "-i", str(directory.hosts_file), "--list")
    try:
        done = run_captured(
            command, stdin="", timeout_s=READ_TIMEOUT_S,
            environment=ansible_environment(content), cwd=content,
            max_stdout_bytes=MAX_LISTING_BYTES, max_memory_bytes=MAX_MEMORY_BYTES,
        )  # fmt: skip
    except OutputTooLongError as error:
        raise ClusterctlError(
            f"the inventory is too large with each host's variables: {error}",
            code="inventory.unreadable",
            where=str(directory.hosts_file),
            hint="All variables of all hosts have that size: is a file in group_vars not one of settings?",
        ) from None
    except subprocess.TimeoutExpired:
        raise ClusterctlError(
            f"Ansible did not read the inventory within {READ_TIMEOUT_S:.0f} s",
            code="inventory.timeout",
            where=str(directory.hosts_file),
        ) from None
    if done.returncode == 0:
        try:
            listing = json.loads(done.stdout)
        except ValueError:
            listing = None
        if isinstance(listing, dict):
            return listing
    lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
    reason = next(
        (line for line in lines if line.startswith("[ERROR]")), lines[-1] if lines else "it said nothing"
    )
    reason = reason.removeprefix("[ERROR]:").strip()
    vault = "vault" in reason.lower()
    raise ClusterctlError(
        f"Ansible cannot read the inventory: {reason}",
        code="inventory.unreadable",
        where=str(directory.hosts_file),
        hint="Set ANSIBLE_VAULT_PASSWORD_FILE to the file with the vault's password."
        if vault
        else "ansible-inventory -i hosts.yml --list shows it in full.",
    )


def _hint_for(name: str, known: Iterable[str]) -> str:
    return did_you_mean(name, known) or "clusterctl hosts list names all."
