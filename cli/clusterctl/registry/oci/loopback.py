"""Who listens at an address of this machine: what is secret goes in clear to nobody but us and root.

A port of the loopback address belongs to whoever takes it first, as while a tunnel is down.
"""

from __future__ import annotations

import ipaddress
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx

from clusterctl.cluster.trust import trusted_users
from clusterctl.registry.oci.errors import RegistryError
from clusterctl.registry.oci.reference import LOCAL_NAME, is_this_machine

TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
LISTENS = "0A"  # TCP_LISTEN of include/net/tcp_states.h
# Below it only root may listen.
FIRST_FREE_PORT = Path("/proc/sys/net/ipv4/ip_unprivileged_port_start")
HEADERS_GO_OUT = "http11.send_request_headers.started"
FORM = b"application/x-www-form-urlencoded"  # of a login


def guard_secrets(request: httpx.Request) -> None:
    """An event hook: see who listens once a request in clear is connected, before what is secret is sent.

    The request raises RegistryError (``registry.listener``) where another user does, or nobody any more.
    """
    url = request.url
    if not _is_clear_and_here(url):
        return
    # Who holds a connection that is kept may have left the port to us since: each request has its own.
    request.headers["Connection"] = "close"
    others = request.extensions.get("trace")

    def look(event: str, about: dict[str, Any]) -> None:
        if others is not None:
            others(event, about)
        if event == HEADERS_GO_OUT and _has_secret(about["request"].headers):
            require_own_listener(url.host, url.port or 80)

    request.extensions = {**request.extensions, "trace": look}


def guard_proxy(proxy: str, address: str) -> None:
    """See who listens before a proxy is given its password: of a tunnel (CONNECT) no request hook hears.

    ``address`` is what it was reached at, whatever its name. Raises RegistryError as ``require_own_listener``
    does.
    """
    url = httpx.URL(proxy)
    here = _loopback(address)
    if url.userinfo and url.scheme == "http" and here:
        require_own_listener(here, url.port or 80)


def _loopback(address: str) -> str:
    """The loopback address that this is, in one spelling; empty for any other."""
    if address == LOCAL_NAME:
        return address
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return ""
    found = getattr(found, "ipv4_mapped", None) or found
    if found.is_unspecified:
        return LOCAL_NAME
    return str(found) if found.is_loopback else ""


def require_own_listener(host: str, port: int) -> None:
    """Raises RegistryError (``registry.listener``) unless root or we listen there, and nobody else."""
    if port < _first_free_port():
        return
    found = set(_listeners(host, port))
    if found and found <= trusted_users():
        return
    who = f"user {min(found - trusted_users())}" if found else "nobody any more"
    raise RegistryError(
        f"what is secret is not sent in clear to a port of this machine at which {who} listens",
        code="registry.listener",
        where=f"{host}:{port}",
        hint="Start the tunnel (or what else is to listen there) as root or as yourself, or use https.",
    )


def _is_clear_and_here(url: httpx.URL) -> bool:
    host = f"[{url.host}]" if ":" in url.host else url.host
    return url.scheme == "http" and is_this_machine(host)


def _has_secret(headers: list[tuple[bytes, bytes]]) -> bool:
    return any(
        name.lower() in (b"authorization", b"cookie") or (name.lower() == b"content-type" and value == FORM)
        for name, value in headers
    )


def _listeners(host: str, port: int) -> Iterator[int]:
    """The numbers of the users who listen at a port, at this address or at all of this machine's.

    Without the kernel's table, as on another system, ourselves.
    """
    wanted = None if host == LOCAL_NAME else ipaddress.ip_address(host)
    if not TABLES[0].exists():
        yield from trusted_users()
    for table in TABLES:
        for line in table.read_text(encoding="ascii").splitlines()[1:] if table.exists() else ():
            fields = line.split()
            packed, _, at = fields[1].rpartition(":")
            if fields[3] != LISTENS or int(at, 16) != port:
                continue
            address = _address(packed)
            if address.is_unspecified or (address.is_loopback if wanted is None else address == wanted):
                yield int(fields[7])


def _address(packed: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """An address as the table has it: words of 32 bits, each in the machine's order."""
    words = [int(packed[place : place + 8], 16) for place in range(0, len(packed), 8)]
    found = ipaddress.ip_address(struct.pack(f"={len(words)}I", *words))
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return mapped or found


def _first_free_port() -> int:
    try:
        return int(FIRST_FREE_PORT.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return 1024
