"""Sends the head of the run chain to syslog, if the settings name one: an anchor outside of here."""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable
from urllib.parse import urlsplit

from clusterctl import console
from clusterctl.cluster.inventory import Inventory
from clusterctl.cluster.spec import setting
from clusterctl.errors import ClusterctlError
from clusterctl.runs.chain import ChainLink
from clusterctl.runs.store import RunStore

PORT = 514
# Facility user, severity info.
PRIORITY = 14
# For each step; a socket of this host may have nobody who reads it.
SEND_S = 3.0


def anchored_store(inventory: Inventory) -> RunStore:
    """The runs of a cluster; the head of each link goes to the syslog of ``site_syslog``.

    Raises ClusterctlError (``inventory.template``, ``settings.value``): before a run starts.
    """
    return RunStore(inventory.directory, on_link=_sender(inventory))


def _sender(inventory: Inventory) -> Callable[[ChainLink], None]:
    host = next(iter((*inventory.gpu_nodes, *inventory.hosts)), None)
    address = str(setting(host, "site_syslog") or "") if host else ""
    if host is None or not address:
        return lambda _link: None
    cluster = str(setting(host, "cluster_name") or inventory.directory.root.name)
    try:
        _place(address)
    except ValueError as error:
        raise ClusterctlError(
            f"site_syslog is {address!r}: {error}",
            code="settings.value",
            where=f"{host.name}: site_syslog",
            hint="Write /dev/log, or another socket's path, or udp://HOST[:PORT].",
        ) from None

    def send(link: ChainLink) -> None:
        if because := send_head(address, cluster, link):
            console.say(f"the head of run {link.run} was not sent to syslog: {because}")

    return send


def send_head(address: str, cluster: str, link: ChainLink) -> str:
    """Send one line; returns why that failed, empty if it was handed over. UDP confirms nothing.

    ``address`` is ``/dev/log`` or another socket's path, or ``udp://HOST[:PORT]``.
    """
    text = f"clusterctl: cluster={cluster} run={link.run} link={link.number} head={link.head}"
    try:
        place = _place(address)
        line = f"<{PRIORITY}>{text}\0".encode()
        if isinstance(place, str):
            _send_here(place, line)
        else:
            _send_by_udp(*place, line)
    except (OSError, ValueError) as error:
        return f"{address}: {getattr(error, 'strerror', None) or error}"
    return ""


def _send_here(path: str, line: bytes) -> None:
    """To a socket of this host, of datagrams or else of a stream; neither need have anyone who reads it."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as datagrams:
        datagrams.settimeout(SEND_S)
        try:
            datagrams.connect(path)
        except OSError as error:
            if error.errno != errno.EPROTOTYPE:
                raise
        else:
            datagrams.send(line)
            return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as stream:
        stream.settimeout(SEND_S)
        stream.connect(path)
        stream.sendall(line)


def _send_by_udp(host: str, port: int, line: bytes) -> None:
    family, _, _, _, target = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, socket.SOCK_DGRAM) as datagrams:
        datagrams.settimeout(SEND_S)
        datagrams.sendto(line, target)


def _place(address: str) -> str | tuple[str, int]:
    """A socket's path, or host and port. Raises ValueError."""
    if address.startswith("/"):
        return address
    parts = urlsplit(address)
    if parts.scheme != "udp" or not parts.hostname:
        raise ValueError("it is neither /PATH nor udp://HOST[:PORT]")
    return parts.hostname, parts.port or PORT
