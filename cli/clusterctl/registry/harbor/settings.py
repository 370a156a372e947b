"""What the cluster directory says of its Harbor: what is declared, where it is, and who we are there."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pydantic import ValidationError

from clusterctl.cluster import names
from clusterctl.cluster.directory import ClusterDirectory
from clusterctl.cluster.inventory import Host, Inventory
from clusterctl.cluster.spec import setting
from clusterctl.cluster.user_path import user_path
from clusterctl.errors import ClusterctlError
from clusterctl.registry.harbor.client import Access
from clusterctl.registry.harbor.declared import DeclaredHarbor
from clusterctl.registry.harbor.secret_text import read_secret_file
from clusterctl.registry.harbor.vault import FILE
from clusterctl.registry.oci.reference import in_url, is_address, is_this_machine

EMBEDDED = "embedded"
PASSWORD_FILE = ".clusterctl/secrets/harbor-admin.password"  # noqa: S105 - where it is, not what


@dataclass(frozen=True)
class HarborSettings:
    """All that a command needs to reconcile one Harbor."""

    access: Access
    declared: DeclaredHarbor
    cluster: ClusterDirectory
    secret_command: tuple[str, ...]

    @property
    def vault_file(self) -> Path:
        """Where robots' secrets are kept."""
        return self.cluster.secrets / FILE


def harbor_settings(inventory: Inventory) -> HarborSettings:
    """As the registry's host has them. Raises ClusterctlError (``registry.*``, ``inventory.*``; exit 2)."""
    host = _host(inventory)
    return HarborSettings(
        access=_access(host, inventory),
        declared=declared(host),
        cluster=inventory.directory,
        secret_command=_secret_command(host),
    )


def _secret_command(host: Host) -> tuple[str, ...]:
    """The words of the site's program for secrets. Raises ClusterctlError (``registry.declared``, exit 2)."""
    name = "registry_robots_secret_command"
    words = setting(host, name) or []
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise ClusterctlError(
            f"{name} is not a list of texts",
            code="registry.declared",
            where=f"group_vars, as {host.name} has them",
            hint="A program and its arguments, for example: [vault-robot, --store]",
        )
    return tuple(words)


def declared(host: Host) -> DeclaredHarbor:
    """What is declared, checked as a whole. Raises ClusterctlError (``registry.declared``, exit 2)."""
    values = {name: setting(host, name) for name in DeclaredHarbor.model_fields}
    try:
        return DeclaredHarbor.model_validate(
            {name: value for name, value in values.items() if value is not None}
        )
    except ValidationError as error:
        raise ClusterctlError(
            "; ".join(
                _sentence(one, values) for one in error.errors(include_url=False, include_context=False)
            ),
            code="registry.declared",
            where=f"group_vars, as {host.name} has them",
            hint="docs/harbor.md has an example of each; clusterctl explain registry.declared",
        ) from None


def _sentence(error: Any, values: dict[str, Any]) -> str:
    """One problem, with the object's name where it has one: a number in a list says little."""
    place, found = "", values
    for step in error["loc"]:
        found = found[step] if isinstance(found, dict | list) and _has(found, step) else {}
        name = found.get("name") if isinstance(found, dict) else None
        place += (f"[{name or step}]" if isinstance(step, int) else f".{step}") if place else str(step)
    message = error["msg"].removeprefix("Value error, ")
    return f"{place}: {message}" if place else message


def _has(found: Any, step: Any) -> bool:
    return step in found if isinstance(found, dict) else isinstance(step, int) and step < len(found)


def _access(host: Host, inventory: Inventory) -> Access:
    url, name = str(setting(host, "registry_api_url") or ""), ""
    if not url:
        if setting(host, "registry_kind", EMBEDDED) == EMBEDDED:
            raise ClusterctlError(
                "this cluster's registry is the embedded one, which has no projects or robots to declare",
                code="registry.no-harbor",
                where=f"{host.name}: registry_kind",
                hint="Set registry_kind: harbor, or registry_api_url for a Harbor that is elsewhere.",
            )
        url = f"https://{in_url(str(setting(host, 'registry_address')))}:{setting(host, 'registry_port')}"
        name = str(setting(host, "registry_hostname") or "")
    _guard(url, host)
    root = inventory.directory.root
    password = str(setting(host, "registry_api_password_file") or PASSWORD_FILE)
    authority = str(setting(host, "registry_api_ca_file") or "")
    own = inventory.directory.authority / names.AUTHORITY_CERTIFICATE
    return Access(
        url=url.rstrip("/"),
        user=str(setting(host, "registry_api_user") or "admin"),
        password=read_secret_file(root / user_path(password), "Harbor's administrator password"),
        authority=root / user_path(authority) if authority else (own if own.is_file() else None),
        name=name,
    )


def _guard(url: str, host: Host) -> None:
    """The administrator's password goes with each request: in clear on this machine alone."""
    parts = urlsplit(url)
    host_and_port = parts.netloc.lower()
    if "@" in host_and_port:
        raise ClusterctlError(
            "registry_api_url has a user or a password in it",
            code="settings.value",
            where=f"{host.name}: registry_api_url",
            hint="They stand in registry_api_user and registry_api_password_file.",
        )
    if parts.scheme in ("http", "https") and not is_address(url):
        raise ClusterctlError(
            "registry_api_url has no host that can be looked up",
            code="settings.value",
            where=f"{host.name}: registry_api_url",
            hint="For example: https://harbor.example.com",
        )
    if parts.scheme == "https" or (parts.scheme == "http" and is_this_machine(host_and_port)):
        return
    raise ClusterctlError(
        f"registry_api_url is {url}: the administrator's password would go there in clear",
        code="registry.api-in-clear",
        where=f"{host.name}: registry_api_url",
        hint="Write https://; http:// is for an address of this machine, as of a tunnel.",
    )


def _host(inventory: Inventory) -> Host:
    hosts = inventory.registry_hosts
    if not hosts:
        raise ClusterctlError(
            "no host is in the group registry",
            code="registry.no-harbor",
            where=str(inventory.directory.hosts_file),
            hint="Put the registry's host there; the settings of that group declare its objects.",
        )
    return hosts[0]
