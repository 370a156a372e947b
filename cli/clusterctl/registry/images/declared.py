"""The images that the settings declare, and the driver that their nodes have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from clustercheck.parse.plain_text import one_line
from clusterctl.cluster.compatibility import version
from clusterctl.cluster.image_names import REPOSITORY, TAG
from clusterctl.cluster.inventory import Host, Inventory
from clusterctl.cluster.spec import checked_setting, setting
from clusterctl.cluster.user_path import user_path
from clusterctl.errors import ClusterctlError
from clusterctl.registry.oci.reference import Reference, parse

TRAINING = "training"
USUAL_PLATFORM = "linux/amd64"
ALL_PLATFORMS = "all"


@dataclass(frozen=True)
class DeclaredImage:
    """An image as the operator asks for it. ``platforms`` is empty where all are wanted.

    ``built`` images come from `images build`: the lock has them from there, and no source is asked.
    """

    name: str
    source: Reference
    target: str
    tag: str = ""
    platforms: tuple[str, ...] = (USUAL_PLATFORM,)
    built: bool = False


def declared_images(inventory: Inventory) -> tuple[DeclaredImage, ...]:
    """The training image, those of the setting ``images``, and those of ``image_builds``.

    Raises ClusterctlError (``images.declared``, ``images.reference``).
    """
    host = asked_host(inventory)
    training = training_image(host)
    found = [training] if training else []
    for number, entry in enumerate(entries(host, "images"), 1):
        found.append(_declared(entry, f"images, entry {number}"))
    found += [_built(entry, host) for entry in entries(host, "image_builds")]
    _once_each(found)
    return tuple(found)


def entries(host: Host, name: str) -> list[Any]:
    """What a setting lists. Raises ClusterctlError (``settings.*``)."""
    return checked_setting(host, name) or []


def asked_host(inventory: Inventory) -> Host:
    """The host whose settings speak for the cluster: the first GPU node, else the registry's."""
    hosts = (*inventory.gpu_nodes, *inventory.registry_hosts, *inventory.hosts)
    if hosts:
        return hosts[0]
    raise ClusterctlError(
        "no host is declared", code="settings.no-hosts", where=str(inventory.directory.hosts_file)
    )


def cluster_setting(inventory: Inventory, name: str, code: str) -> Any:
    """A setting of the whole cluster, that no host may have otherwise: it would be passed over.

    Raises ClusterctlError (``code``).
    """
    asked = asked_host(inventory)
    value = checked_setting(asked, name)
    for host in inventory.hosts:
        other = setting(host, name)
        if other and other != value:
            raise ClusterctlError(
                f"{host.name} has another {name} than {asked.name}, whose settings count for the cluster",
                code=code,
                where=name,
                hint="Set it once for all hosts, in group_vars/all.yml.",
            )
    return value


def nodes_driver(inventory: Inventory) -> str:
    """The oldest driver that a GPU node is to have: a version, else a branch; empty if none is said."""
    lines = [
        str(setting(node, "nvidia_driver_version") or setting(node, "nvidia_driver_branch") or "")
        for node in inventory.gpu_nodes
        if node.quarantined is None
    ]
    return min(filter(None, lines), key=version, default="")


def file_setting(inventory: Inventory, name: str) -> Path | None:
    """A file that a setting names, from the cluster directory on; None where it names none."""
    value = str(setting(asked_host(inventory), name) or "")
    return inventory.directory.root / user_path(value) if value else None


def training_image(host: Host) -> DeclaredImage | None:
    """The training image as a host's settings have it; None where neither digest nor tag is declared.

    Raises ClusterctlError (``images.reference``).
    """
    digest, tag = (str(setting(host, f"training_image_{word}") or "") for word in ("digest", "tag"))
    if not digest and not tag:
        return None
    source = str(setting(host, "training_image_source"))
    reference = parse(f"{source}@{digest}" if digest else f"{source}:{tag}")
    repository = str(setting(host, "training_image_repository"))
    return _nameable(DeclaredImage(TRAINING, reference, repository, tag), "training_image_repository")


def _declared(entry: Mapping[str, Any], where: str) -> DeclaredImage:
    if not isinstance(entry, Mapping) or not entry.get("source"):
        raise _refusal("it names no source", where)
    source = parse(str(entry["source"]))
    target, _, tag = str(entry.get("target") or source.repository).partition(":")
    platforms = tuple(str(one) for one in entry.get("platforms") or (USUAL_PLATFORM,))
    image = DeclaredImage(
        str(entry.get("name") or target.rpartition("/")[2]), source, target, tag or source.tag, platforms
    )
    return _nameable(replace(image, platforms=()) if ALL_PLATFORMS in platforms else image, where)


def registry_name(host: Host) -> str:
    """The cluster's registry as images name it."""
    return f"{setting(host, 'registry_hostname')}:{setting(host, 'registry_port')}"


def _built(entry: Mapping[str, Any], host: Host) -> DeclaredImage:
    if not isinstance(entry, Mapping):
        raise _refusal("an entry of image_builds is not a mapping", "image_builds")
    source = parse(f"{registry_name(host)}/{entry.get('target')}")
    return DeclaredImage(str(entry.get("name")), source, source.repository, source.tag, built=True)


def _nameable(image: DeclaredImage, where: str) -> DeclaredImage:
    """The image, if the lock and a registry can name it so. Raises ClusterctlError (``images.declared``)."""
    if not REPOSITORY.fullmatch(image.target) or (image.tag and not TAG.fullmatch(image.tag)):
        raise _refusal(f"{image.target}:{image.tag} is not a path in a registry", where)
    if one_line(image.name) != image.name:
        raise _refusal(f"the name {image.name!r} has control characters, or is too long", where)
    return image


def _once_each(found: list[DeclaredImage]) -> None:
    names: set[str] = set()
    targets: set[tuple[str, str]] = set()
    for image in found:
        if image.name in names:
            raise _refusal(f"two images have the name {image.name}", "images: give one a name of its own")
        if image.tag and (image.target, image.tag) in targets:
            raise _refusal(f"two images would be {image.target}:{image.tag}", "images: change a target")
        names.add(image.name)
        targets.add((image.target, image.tag))


def _refusal(because: str, where: str) -> ClusterctlError:
    return ClusterctlError(
        f"an image is not well declared: {because}",
        code="images.declared",
        where=where,
        hint="For example: {source: docker.io/library/busybox:1.37, target: library/busybox}",
    )
