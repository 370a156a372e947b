"""For which hosts the site playbook has anything to do, and whether a request has anything to do at all."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from functools import cache
from typing import Any

import yaml

from clusterctl.cluster.inventory import Host, Inventory
from clusterctl.cluster.settings.booleans import is_true
from clusterctl.cluster.spec import mig_of, setting, settings_of
from clusterctl.content import content_root
from clusterctl.errors import ClusterctlError

SITE = "site.yml"
ANONYMOUS = "anonymous"
# What decides as whom a host pulls, and what the defaults of that are made of.
LOGIN = (
    "registry_client_auth",
    "registry_client_robot",
    "registry_client_user",
    "registry_client_password_file",
    "registry_client_address",
)
FROM = (
    "registry_auth",
    "registry_pull_user",
    "registry_client_hostname",
    "registry_client_port",
    "registry_hostname",
    "registry_port",
    "registry_kind",
)
NO_PART = "no play of the site is for it"


@cache
def groups_of_site() -> frozenset[str]:
    """The groups that the plays of the site name."""
    text = (content_root() / "playbooks" / SITE).read_text(encoding="utf-8")
    return frozenset(word for play in yaml.safe_load(text) for word in re.split(r"[:,]", play["hosts"]))


def outside(hosts: Sequence[Host]) -> dict[str, str]:
    """Hosts that no play of the site names, with what to say of them."""
    groups = groups_of_site()
    if "all" in groups:
        return {}
    return {host.name: NO_PART for host in hosts if not groups & set(host.groups)}


def require_something_to_do(hosts: Sequence[Host], inventory: Inventory, parts: Collection[str]) -> None:
    """Refuse a request that would do nothing at all. ``parts`` are those of --only, none is all.

    Raises ClusterctlError (``apply.nothing-to-do``, exit 2).
    """
    if len(outside(hosts)) == len(hosts):
        raise _nothing(
            f"no play of the site is for {', '.join(host.name for host in hosts)}",
            f"Its plays are for the groups {', '.join(sorted(groups_of_site()))}.",
        )
    idle = {
        "registry": "" if inventory.registry_hosts else "no host is in the group registry",
        "mig": "" if any(mig_of(host).rules for host in hosts) else "no host declares hardware_mig",
        "images": "" if any(wants_image(host) for host in hosts) else "no locked training image is declared",
    }
    if parts and all(idle.get(part) for part in parts):
        raise _nothing(
            f"--only {','.join(parts)} has nothing to do: {', and '.join(idle[part] for part in parts)}",
            "Declare it in the settings (an image by its digest, or by its tag and clusterctl lock), "
            "or leave --only away.",
        )


def require_whole(inventory: Inventory) -> None:
    """What only the settings of all hosts together show, and MIG layouts that do not fit.

    Raises ClusterctlError (``settings.no-registry``, ``settings.no-digest``, ``inventory.mig``, exit 2).
    """
    for host in inventory.gpu_nodes:
        mig_of(host)
    for host in inventory.hosts:
        if not groups_of_site() & set(host.groups) or not wants_image(host):
            continue
        if not setting(host, "training_image_digest"):
            raise ClusterctlError(
                "training_image_enabled is true, and no training_image_digest is declared",
                code="settings.no-digest",
                where=host.name,
                hint="Declare the digest (sha256:...), or the tag and run clusterctl lock, or take "
                "training_image_enabled away.",
            )
        elsewhere = host.value("registry_hostname") or host.value("training_image_registry")
        if not inventory.registry_hosts and not elsewhere:
            raise ClusterctlError(
                "training_image_digest is declared, and there is no registry to pull the image from",
                code="settings.no-registry",
                where=host.name,
                hint="Put a host into the group registry, or name one: registry_hostname.",
            )


def _login(host: Host) -> list[Any]:
    """What decides as whom it pulls; of who does so anonymously that alone."""
    values = settings_of(host)
    auth = values.value(LOGIN[0])
    return [auth] if auth == ANONYMOUS else [auth, *map(values.value, LOGIN[1:])]


def require_one_login(inventory: Inventory) -> None:
    """Refuse hosts that are to pull as another user than others: roles keep one set of credentials.

    Raises ClusterctlError (``settings.value``, exit 2).
    """
    first: tuple[str, list[Any]] | None = None
    known: dict[str, list[Any]] = {}
    for host in inventory.hosts:
        if not groups_of_site() & set(host.groups):
            continue
        raw = repr([host.variables.get(name) for name in (*LOGIN, *FROM)])
        # A template may come to something else on each host.
        login = known.get(raw) or _login(host)
        if "{{" not in raw and "{%" not in raw:
            known[raw] = login
        if login[0] == ANONYMOUS:
            continue
        name, others = first = first or (host.name, login)
        if differing := [one for one, mine, other in zip(LOGIN, login, others, strict=True) if mine != other]:
            raise ClusterctlError(
                f"{host.name} and {name} differ in {', '.join(differing)}: all hosts pull as the same user",
                code="settings.value",
                where=f"{host.name}: {differing[0]}",
                hint="Let all hosts pull as the same user, or robot, that may do nothing else.",
            )


def wants_image(host: Host) -> bool:
    """Whether the training image is to be on this host, or to be copied by it."""
    return is_true(setting(host, "training_image_enabled", False))


def _nothing(what: str, hint: str) -> ClusterctlError:
    return ClusterctlError(what, code="apply.nothing-to-do", hint=hint)
