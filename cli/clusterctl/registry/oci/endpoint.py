"""How one registry is reached: its address, whom we trust, and a connection that notices who is gone."""

from __future__ import annotations

import socket
import ssl
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from clusterctl.cluster.bounded_file import (
    MAX_CERTIFICATES_BYTES,
    UntrustedFileError,
    UnusableFileError,
    describe_unusable,
    read_trusted,
)
from clusterctl.registry.oci.credentials import Credentials
from clusterctl.registry.oci.deadline import with_deadlines
from clusterctl.registry.oci.errors import RegistryError
from clusterctl.registry.oci.hidden import HiddenSecrets
from clusterctl.registry.oci.loopback import guard_proxy

CONNECTIONS = 64
# Until a piece is taken that is sent: whoever takes none so long is gone, or as good as that.
TAKING_S = 120.0
# A host that is gone without a word is noticed also while we wait for its answer.
_TCP = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_USER_TIMEOUT": int(TAKING_S * 1000)}
NOTICED = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    *((socket.IPPROTO_TCP, getattr(socket, name), n) for name, n in _TCP.items() if hasattr(socket, name)),
)


@dataclass(frozen=True)
class RegistryEndpoint:
    """How a registry is reached. ``socket`` is a Unix socket to it; ``plain`` is http without TLS.

    ``name`` is what it calls itself, where it is asked by its address: its certificate needs no other.
    """

    host: str
    name: str = ""
    plain: bool = False
    socket: Path | None = None
    proxy: str = ""
    authorities: tuple[Path, ...] = ()
    credentials: Credentials | None = field(default=None, repr=False)

    @property
    def base(self) -> str:
        """Where its API starts."""
        return f"{'http' if self.plain else 'https'}://{self.host}/v2/"

    def told(self) -> HiddenSecrets:
        """The secrets that it is told, and the proxy before it."""
        hidden = HiddenSecrets()
        if self.credentials is not None:
            hidden.add(self.credentials.password.get_secret_value(), self.credentials.user)
        hidden.add_address(self.proxy)
        return hidden

    def resolve_own(self, url: httpx.URL) -> httpx.URL:
        """A place for tokens or uploads: by the registry's address, where it names itself at any port."""
        here = httpx.URL(self.base)
        own = httpx.URL(scheme=here.scheme, host=self.name or here.host)
        return url.copy_with(host=here.host, port=here.port) if url.host == own.host else url

    def resolve_redirect(self, url: httpx.URL) -> httpx.URL:
        """Where a redirect leads: another port of the same host is another server, storage mostly."""
        here = httpx.URL(self.base)
        return self.resolve_own(url) if (url.scheme, url.port) == (here.scheme, here.port) else url


def transport(endpoint: RegistryEndpoint) -> httpx.HTTPTransport:
    """Connections to that endpoint. Raises RegistryError (``images.certificate``)."""
    made = httpx.HTTPTransport(
        uds=None if endpoint.socket is None else str(endpoint.socket),
        verify=trust(endpoint.authorities),
        proxy=(endpoint.proxy or None) if endpoint.socket is None else None,
        limits=httpx.Limits(max_connections=CONNECTIONS, max_keepalive_connections=CONNECTIONS),
        socket_options=NOTICED if endpoint.socket is None else (),
        trust_env=False,
    )
    return with_deadlines(made, lambda address: guard_proxy(endpoint.proxy, address))


def trust(authorities: tuple[Path, ...]) -> ssl.SSLContext:
    """This machine's own authorities, and those of the files. Raises RegistryError."""
    context = ssl.create_default_context()
    for file in authorities:
        try:
            context.load_verify_locations(cadata=_certificates(file))
        except UntrustedFileError as error:
            raise RegistryError(
                f"the authority's certificate {error}",
                code="images.certificate",
                where=str(file),
                hint="Its writers decide which registries are believed: chmod go-w, or name another file.",
            ) from None
        except (OSError, UnusableFileError) as error:
            raise RegistryError(
                f"the authority's certificate cannot be read: {describe_unusable(error)}",
                code="images.certificate",
                where=str(file),
            ) from None
    return context


def _certificates(file: Path) -> str:
    """What a file has in PEM; words between certificates may be in any encoding."""
    text = read_trusted(file, file.parent, MAX_CERTIFICATES_BYTES).decode("ascii", "ignore")
    if not text:
        raise UnusableFileError("is empty")
    return text
