"""The registries that images come from and go to, and how each is reached."""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import httpx

from clustercheck.launch.transport import NodeUnreachableError
from clusterctl.cluster import names
from clusterctl.cluster.access import Passwords
from clusterctl.cluster.forward import forwarded
from clusterctl.cluster.inventory import Host, Inventory
from clusterctl.cluster.lock import LockedImage
from clusterctl.cluster.spec import checked_setting, setting
from clusterctl.cluster.ssh import OpenSshTransport
from clusterctl.content import shared_module
from clusterctl.errors import EXIT_CLUSTER_BAD, ClusterctlError
from clusterctl.registry.harbor import vault
from clusterctl.registry.images.collecting import collect
from clusterctl.registry.images.declared import asked_host, file_setting, registry_name
from clusterctl.registry.oci.client import Registry
from clusterctl.registry.oci.credentials import Credentials, credentials_for
from clusterctl.registry.oci.endpoint import RegistryEndpoint
from clusterctl.registry.oci.reference import PLAIN, Reference, in_url, is_address, parse
from clusterctl.registry.oci.retry import RetryPolicy

EMBEDDED = "embedded"
FILESYSTEM = "filesystem"
DISK_S = 30.0
BYTES = re.compile(r"\b([0-9]{1,19})\s*\Z")


@dataclass(frozen=True)
class Destination:
    """The cluster's registry.

    ``free`` asks its disk: None if nobody can say, and ``unseen`` is why. ``collect`` releases the
    space of what was removed, where that is ours to do. ``not_as_nodes`` says as whom it is read where that
    is not as nodes do.
    """

    registry: Registry
    name: str
    free: Callable[[], int | None] = lambda: None
    unseen: str = "its host does not say"
    collect: Callable[[], None] = lambda: None
    not_as_nodes: str = ""


class Sources:
    """The registries that images come from, each opened once. Safe from many threads; a context manager."""

    def __init__(self, inventory: Inventory, retry: RetryPolicy | None = None) -> None:
        self._inventory = inventory
        self._retry = retry
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
                endpoint = source_endpoint(self._inventory, reference)
                self._opened[key] = self._stack.enter_context(Registry(endpoint, self._retry))
            return self._opened[key]


def source_endpoint(inventory: Inventory, reference: Reference) -> RegistryEndpoint:
    """How a source is reached: through the site's proxy, with the site's credentials and authorities."""
    host = asked_host(inventory)
    # What was built here comes out of the cluster's own registry.
    if reference.registry == _name(inventory):
        return own_endpoint(inventory)
    authority = file_setting(inventory, "images_ca_file")
    address = (checked_setting(host, "images_source_addresses") or {}).get(reference.host)
    if address and ("@" in str(address) or not is_address(f"https://{address}")):
        raise ClusterctlError(
            f"the value for {reference.host} is not the address of a registry",
            code="settings.value",
            where=f"{host.name}: images_source_addresses",
            hint="For example: 10.0.0.9:5000; a user and a password stand in images_auth_file.",
        )
    return RegistryEndpoint(
        host=str(address or reference.host),
        name=httpx.URL(f"https://{reference.host}").host if address else "",
        plain=reference.plain,
        proxy="" if reference.plain else proxy_for(host, reference.host),
        authorities=(authority,) if authority else (),
        credentials=credentials_for(file_setting(inventory, "images_auth_file"), reference.registry),
    )


def proxy_for(host: Host, asked: str) -> str:
    """The site's proxy for a registry; empty where it is reached without one.

    Raises ClusterctlError (``settings.value``), which does not quote it: it may hold a password.
    """
    name = httpx.URL(f"https://{asked}").host
    direct = shared_module("no_proxy").is_direct(name, str(setting(host, "site_no_proxy") or ""))
    proxy = "" if direct else str(setting(host, "site_https_proxy") or "")
    if proxy and not is_address(proxy):
        raise ClusterctlError(
            "the address of the proxy must be a URL that begins with http:// or https://",
            code="settings.value",
            where=f"{host.name}: site_https_proxy",
            hint="For example: http://proxy.example.com:3128",
        )
    return proxy


@contextlib.contextmanager
def writable(
    inventory: Inventory, passwords: Passwords, to: str = "", retry: RetryPolicy | None = None
) -> Iterator[Destination]:
    """The cluster's registry, or that named by ``to``, to write into.

    Raises ClusterctlError (``images.no-registry``, ``images.no-way``).
    """
    if to:
        with Registry(named_endpoint(inventory, to), retry) as registry:
            yield Destination(registry, to, unseen="it is not the cluster's own")
        return
    if setting(asked_host(inventory), "registry_kind") != EMBEDDED:
        node = next((one for one in inventory.registry_hosts if one.quarantined is None), None)
        with Registry(harbor_endpoint(inventory), retry) as registry:
            found = Destination(registry, _name(inventory))
            if node is None:
                yield replace(found, unseen="no host of it is in the inventory")
            elif (driver := setting(node, "harbor_storage_driver")) != FILESYSTEM:
                yield replace(found, unseen=f"its images are not on its host's disk ({driver})")
            else:
                with OpenSshTransport(inventory.directory, inventory.hosts, passwords) as transport:
                    directory = str(setting(node, "harbor_data_dir"))
                    yield replace(found, free=partial(_free, transport, node.name, directory))
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
            RegistryEndpoint(local, plain=True, socket=socket, credentials=credentials_for(file, local)),
            retry,
        ) as registry,
    ):
        directory = str(setting(node, "registry_data_dir"))
        yield Destination(
            registry,
            _name(inventory),
            partial(_free, transport, node.name, directory),
            collect=partial(collect, transport, node.name),
        )


@contextlib.contextmanager
def readable(inventory: Inventory, to: str = "") -> Iterator[Destination]:
    """The cluster's registry as the nodes see it: over TLS, trusted by the cluster's authority."""
    if to:
        with Registry(named_endpoint(inventory, to)) as registry:
            yield Destination(registry, to)
        return
    endpoint, not_as_nodes = own_endpoint(inventory), ""
    if setting(asked_host(inventory), "registry_kind") != EMBEDDED:
        robot = _pull_robot(inventory)
        endpoint = replace(endpoint, credentials=robot) if robot else endpoint
        not_as_nodes = "" if robot else _who_writes(inventory)
    with Registry(endpoint) as registry:
        yield Destination(registry, _name(inventory), not_as_nodes=not_as_nodes)


def _pull_robot(inventory: Inventory) -> Credentials | None:
    """The robot as which nodes pull from Harbor, as `apply` handed it to them; None if there is none."""
    file = inventory.directory.secrets / "registry-robot.auth.json"
    if setting(asked_host(inventory), "registry_client_auth") != "robot" or not file.is_file():
        return None
    return credentials_for(file, _name(inventory))


def _push_robot(inventory: Inventory) -> Credentials | None:
    """The robot as which images go into Harbor; None if none is declared.

    Raises ClusterctlError (``images.no-robot``, ``registry.vault``).
    """
    name = str(setting(asked_host(inventory), "images_push_robot") or "")
    if not name:
        return None
    file = inventory.directory.secrets / vault.FILE
    known = vault.Vault(file).robot(name)
    if not known.get("set") or "secret" not in known:
        raise ClusterctlError(
            f"the push robot {name} has no secret here",
            code="images.no-robot",
            where=str(file),
            hint="clusterctl registry apply makes the robots of registry_robots, with their secrets.",
        )
    return Credentials(known["user"], known["secret"])


def _who_writes(inventory: Inventory) -> str:
    """As whom `harbor_endpoint` asks, in words."""
    if name := str(setting(asked_host(inventory), "images_push_robot") or ""):
        return f"as the robot {name} (images_push_robot)"
    declared = file_setting(inventory, "images_push_auth_file")
    if declared is not None:
        return f"as the user in images_push_auth_file ({declared.name})"
    admin = inventory.directory.secrets / "harbor-admin.auth.json"
    return "as Harbor's administrator" if admin.is_file() else "without credentials"


def own_endpoint(inventory: Inventory) -> RegistryEndpoint:
    """How the cluster's registry is reached by those who read."""
    if setting(asked_host(inventory), "registry_kind") != EMBEDDED:
        return harbor_endpoint(inventory)
    node, name = _registry_host(inventory), _name(inventory)
    pull = inventory.directory.secrets / "registry-pull.auth.json"
    file = pull if setting(node, "registry_auth") == "htpasswd" and pull.is_file() else None
    # This machine need not know the registry's name; its certificate is for the address, too.
    address = in_url(str(setting(node, "registry_address") or node.address))
    return RegistryEndpoint(
        f"{address}:{setting(node, 'registry_port')}",
        authorities=_authorities(inventory),
        credentials=credentials_for(file, name),
    )


def harbor_endpoint(inventory: Inventory) -> RegistryEndpoint:
    """How the cluster's Harbor is reached: by its address, as the declared robot, else as administrator.

    Raises ClusterctlError as `_push_robot` does.
    """
    host = asked_host(inventory)
    name, port = str(setting(host, "registry_hostname")), setting(host, "registry_port")
    file = file_setting(inventory, "images_push_auth_file")
    admin = inventory.directory.secrets / "harbor-admin.auth.json"
    if file is None and admin.is_file():
        file = admin
    site = file_setting(inventory, "registry_api_ca_file")
    known = _push_robot(inventory) or credentials_for(file, f"{name}:{port}") or credentials_for(file, name)
    return RegistryEndpoint(
        f"{in_url(str(setting(host, 'registry_address')))}:{port}",
        name=name,
        authorities=(*_authorities(inventory), *((site,) if site else ())),
        credentials=known,
    )


def _name(inventory: Inventory) -> str:
    return registry_name(asked_host(inventory))


def named_endpoint(inventory: Inventory, to: str) -> RegistryEndpoint:
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
    return RegistryEndpoint(
        host, plain=to.startswith(PLAIN), authorities=authorities, credentials=credentials
    )


def _authorities(inventory: Inventory) -> tuple[Path, ...]:
    ours = inventory.directory.authority / names.AUTHORITY_CERTIFICATE
    return (ours,) if ours.is_file() else ()


def _registry_host(inventory: Inventory) -> Host:
    for host in inventory.registry_hosts:
        if host.quarantined is None:
            return host
    raise ClusterctlError(
        "there is no registry to copy images to",
        code="images.no-registry",
        where=str(inventory.directory.hosts_file),
        hint="Put a host into the group registry, then: clusterctl apply --only registry",
        exit_code=EXIT_CLUSTER_BAD,
    )


def _free(transport: OpenSshTransport, node: str, directory: str) -> int | None:
    """Bytes free where the registry keeps its blobs; None where its host does not say."""
    try:
        asked = transport.run(node, ["df", "--output=avail", "-B1", directory], timeout_s=DISK_S)
    except NodeUnreachableError:
        return None
    found = BYTES.search(asked.stdout)
    return int(found[1]) if asked.exit_code == 0 and found else None
