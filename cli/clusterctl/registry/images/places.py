"""The registries that images come from and go to, and how each is reached."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from clusterctl.cluster.access import Passwords
from clusterctl.cluster.forward import forwarded
from clusterctl.cluster.inventory import Host, Inventory
from clusterctl.cluster.lock import LockedImage
from clusterctl.cluster.spec import setting
from clusterctl.cluster.ssh import OpenSshTransport
from clusterctl.errors import EXIT_CLUSTER_BAD, ClusterctlError
from clusterctl.registry.images.declared import asked_host, file_setting
from clusterctl.registry.oci.client import Registry, Way
from clusterctl.registry.oci.credentials import credentials_for
from clusterctl.registry.oci.patience import Patience
from clusterctl.registry.oci.reference import PLAIN, Reference, parse

EMBEDDED = "embedded"
DISK_S = 30.0


@dataclass(frozen=True)
class Destination:
    """The cluster's registry. ``free`` asks its disk: None where nobody can say."""

    registry: Registry
    name: str
    free: Callable[[], int | None] = lambda: None


class Sources:
    """The registries that images come from, each opened once. Safe from many threads; a context manager."""

    def __init__(self, inventory: Inventory, patience: Patience | None = None) -> None:
        self._inventory = inventory
        self._patience = patience
        self._opened: dict[str, Registry] = {}
        self._lock = threading.Lock()
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Sources:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def of(self, image: LockedImage) -> Registry:
        """The registry of a locked image."""
        return self.at(parse(image.source))

    def at(self, reference: Reference) -> Registry:
        """The registry of a reference."""
        with self._lock:
            key = reference.host
            if key not in self._opened:
                way = source_way(self._inventory, reference)
                self._opened[key] = self._stack.enter_context(Registry(way, self._patience))
            return self._opened[key]


def source_way(inventory: Inventory, reference: Reference) -> Way:
    """How a source is reached: through the site's proxy, with the site's credentials and authorities."""
    host = asked_host(inventory)
    authority = file_setting(inventory, "images_ca_file")
    return Way(
        host=reference.host,
        plain=reference.plain,
        proxy="" if reference.plain else proxy_for(host, reference.host),
        authorities=(authority,) if authority else (),
        credentials=credentials_for(file_setting(inventory, "images_auth_file"), reference.registry),
    )


def proxy_for(host: Host, asked: str) -> str:
    """The site's proxy for a registry; empty where it is reached without one."""
    name = asked.rpartition(":")[0] or asked
    for entry in str(setting(host, "site_no_proxy") or "").split(","):
        suffix = entry.strip().lstrip("*").lstrip(".")
        if suffix and (name == suffix or name.endswith(f".{suffix}")):
            return ""
    return str(setting(host, "site_https_proxy") or "")


@contextlib.contextmanager
def writable(
    inventory: Inventory, passwords: Passwords, to: str = "", patience: Patience | None = None
) -> Iterator[Destination]:
    """The cluster's registry, or that named by ``to``, to write into.

    Raises ClusterctlError (``images.no-registry``, ``images.no-way``).
    """
    if to:
        with Registry(named_way(inventory, to), patience) as registry:
            yield Destination(registry, to)
        return
    host = asked_host(inventory)
    name = f"{setting(host, 'registry_hostname')}:{setting(host, 'registry_port')}"
    if setting(host, "registry_kind") != EMBEDDED:
        file = file_setting(inventory, "images_push_auth_file")
        way = Way(name, authorities=_authorities(inventory), credentials=credentials_for(file, name))
        with Registry(way, patience) as registry:
            yield Destination(registry, name)
        return
    node = _registry_host(inventory)
    port = int(setting(node, "registry_push_port"))
    local = f"127.0.0.1:{port}"
    file = inventory.directory.secrets / "registry-push.auth.json"
    if not file.is_file():
        raise ClusterctlError(
            "the cluster's registry has no password for us yet",
            code="images.no-registry",
            where=str(file),
            hint="clusterctl apply --only registry makes the registry, and its password.",
            exit_code=EXIT_CLUSTER_BAD,
        )
    with (
        OpenSshTransport(inventory.directory, inventory.hosts, passwords) as transport,
        forwarded(transport, node.name, port) as socket,
        Registry(
            Way(local, plain=True, socket=socket, credentials=credentials_for(file, local)), patience
        ) as registry,
    ):
        directory = str(setting(node, "registry_data_dir"))
        yield Destination(registry, name, lambda: _free(transport, node.name, directory))


@contextlib.contextmanager
def readable(inventory: Inventory, to: str = "", patience: Patience | None = None) -> Iterator[Destination]:
    """The cluster's registry as the nodes see it: over TLS, trusted by the cluster's authority."""
    if to:
        with Registry(named_way(inventory, to), patience) as registry:
            yield Destination(registry, to)
        return
    host = asked_host(inventory)
    port = setting(host, "registry_port")
    name = f"{setting(host, 'registry_hostname')}:{port}"
    address, file = name, file_setting(inventory, "images_push_auth_file")
    if setting(host, "registry_kind") == EMBEDDED:
        node = _registry_host(inventory)
        # This machine need not know the registry's name; its certificate is for the address, too.
        address = f"{setting(node, 'registry_address') or node.address}:{port}"
        pull = inventory.directory.secrets / "registry-pull.auth.json"
        file = pull if setting(node, "registry_auth") == "htpasswd" and pull.is_file() else None
    way = Way(address, authorities=_authorities(inventory), credentials=credentials_for(file, name))
    with Registry(way, patience) as registry:
        yield Destination(registry, name)


def named_way(inventory: Inventory, to: str) -> Way:
    """How a registry is reached that was named on the command line: host and port, no path."""
    host = parse(f"{to}/any").registry
    if not to.endswith(host):
        raise ClusterctlError(
            f"{to!r} names no registry",
            code="images.reference",
            hint="For example: --to harbor.example.com:443",
        )
    site = file_setting(inventory, "images_ca_file")
    authorities = (*_authorities(inventory), *((site,) if site else ()))
    credentials = credentials_for(file_setting(inventory, "images_push_auth_file"), host)
    return Way(host, plain=to.startswith(PLAIN), authorities=authorities, credentials=credentials)


def _authorities(inventory: Inventory) -> tuple[Path, ...]:
    ours = inventory.directory.authority / "ca.crt"
    return (ours,) if ours.is_file() else ()


def _registry_host(inventory: Inventory) -> Host:
    for host in inventory.registry_hosts:
        if host.quarantined is None:
            return host
    raise ClusterctlError(
        "there is no registry to bring images to",
        code="images.no-registry",
        where=str(inventory.directory.hosts_file),
        hint="Put a host into the group registry, then: clusterctl apply --only registry",
        exit_code=EXIT_CLUSTER_BAD,
    )


def _free(transport: OpenSshTransport, node: str, directory: str) -> int | None:
    """Bytes free where the registry keeps its blobs."""
    asked = transport.run(node, ["df", "--output=avail", "-B1", directory], timeout_s=DISK_S)
    words = asked.stdout.split()
    return int(words[-1]) if asked.exit_code == 0 and words and words[-1].isdigit() else None
