"""Sends the head of the run chain to syslog, if the settings name one: an anchor outside of here."""

from __future__ import annotations

import logging
import logging.handlers
from collections.abc import Callable
from urllib.parse import urlsplit

from clusterctl import console
from clusterctl.cluster.inventory import Inventory
from clusterctl.cluster.spec import setting
from clusterctl.errors import ClusterctlError
from clusterctl.runs.chain import ChainLink
from clusterctl.runs.store import RunStore

PORT = 514


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
    failures: list[str] = []
    text = f"clusterctl: cluster={cluster} run={link.run} link={link.number} head={link.head}"
    try:
        handler = logging.handlers.SysLogHandler(_place(address))
        handler.handleError = lambda record: failures.append("the socket refused it")  # type: ignore[method-assign]
        try:
            handler.emit(logging.LogRecord("clusterctl", logging.INFO, "", 0, text, None, None))
        finally:
            handler.close()
    except (OSError, ValueError) as error:
        failures.append(str(getattr(error, "strerror", None) or error))
    return f"{address}: {failures[0]}" if failures else ""


def _place(address: str) -> str | tuple[str, int]:
    """A socket's path, or host and port. Raises ValueError."""
    if address.startswith("/"):
        return address
    parts = urlsplit(address)
    if parts.scheme != "udp" or not parts.hostname:
        raise ValueError("it is neither /PATH nor udp://HOST[:PORT]")
    return parts.hostname, parts.port or PORT
