# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see plugins/LICENSE)
"""An HTTP answer within one deadline, and by no redirect that leaves TLS or has no end."""

from __future__ import annotations

import base64
import contextlib
import functools
import http.client
import io
import os
import socket
import ssl
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit

# As many as Go's client follows, and with it Docker's.
MAX_REDIRECTS = 10
CHUNK = 1 << 20
# Of a host that are tried: whoever writes a zone may name thousands.
MAX_ADDRESSES = 8


class Deadline:
    """When an exchange must be over: connections, headers, redirects and body together."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._end = time.monotonic() + seconds

    def left(self) -> float:
        """Seconds that are left. Raises TimeoutError where none are."""
        left = self._end - time.monotonic()
        if left <= 0:
            allowed = (
                f"{self._seconds / 3600:.0f} hours" if self._seconds > 7000 else f"{self._seconds:.0f} s"
            )
            raise TimeoutError(f"it did not arrive within {allowed}")
        return left


def opened(
    request: str | urllib.request.Request,
    deadline: Deadline,
    *,
    stalled_s: float | None = None,
    proxy_for: Callable[[str], str] = lambda _: "",
    context: ssl.SSLContext | None = None,
) -> Any:
    """The answer to a request, whose body is still to be read: by `pieces`, and closed by the caller.

    A user and password in its address are for that host alone. ``stalled_s`` is the longest silence.
    ``proxy_for`` names the proxy for a URL, for each redirect again.
    Raises OSError, among it urllib.error.HTTPError, http.client.HTTPException, and ValueError.
    """
    request = _with_credentials(request)
    opener = urllib.request.build_opener(
        _Proxies(proxy_for), _Redirects(deadline), _Plain(deadline, stalled_s),
        _Secured(deadline, stalled_s, context),
    )  # fmt: skip
    return opener.open(request, timeout=deadline.left())


def _with_credentials(request: str | urllib.request.Request) -> urllib.request.Request:
    """The request with its address's user and password in a header, which no redirect gets."""
    made = urllib.request.Request(request) if isinstance(request, str) else request  # noqa: S310
    parts = urlsplit(made.full_url)
    userinfo, there, host = parts.netloc.rpartition("@")
    if there:
        user, _, password = userinfo.partition(":")
        made.full_url = urlunsplit(parts._replace(netloc=host))
        pair = base64.b64encode(f"{unquote(user)}:{unquote(password)}".encode()).decode()
        made.add_unredirected_header("Authorization", f"Basic {pair}")
    return made


def pieces(answer: Any, deadline: Deadline, max_bytes: int) -> Iterator[bytes]:
    """The body of an answer. Raises ValueError at its limit, and OSError where it comes late or not whole."""
    left = max_bytes
    while piece := answer.read1(min(CHUNK, left + 1)):
        left -= len(piece)
        if left < 0:
            raise ValueError(f"it has more than {max_bytes} bytes")
        deadline.left()
        yield piece
    if getattr(answer, "length", 0):
        raise ConnectionError("the connection ended before its last byte")


class ConnectionWatch:
    """Cuts a connection after some seconds, from a thread of its own.

    OpenSSL reads a server's HelloRequests and session tickets without end in one call, which only this ends.
    """

    def __init__(self, connection: socket.socket, seconds: float) -> None:
        # Of its own: the other may be wrapped, or closed, meanwhile.
        self._own = socket.socket(fileno=os.dup(connection.fileno()))
        self.late = False
        self._timer = threading.Timer(seconds, self._cut)
        self._timer.daemon = True
        self._timer.start()

    def _cut(self) -> None:
        self.late = True
        with contextlib.suppress(OSError):
            self._own.shutdown(socket.SHUT_RDWR)

    def end(self) -> None:
        """Let the connection be."""
        self._timer.cancel()
        self._own.close()

    def __enter__(self) -> ConnectionWatch:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()


class _Proxies(urllib.request.ProxyHandler):
    """The proxy that is meant for a request's own address."""

    def __init__(self, proxy_for: Callable[[str], str]) -> None:
        super().__init__({})
        self._proxy_for = proxy_for

    def http_open(self, request: urllib.request.Request) -> Any:
        """Choose it; the request then goes on to the next handler, or again to the proxy."""
        proxy = "" if request.has_proxy() else self._proxy_for(request.full_url)
        return self.proxy_open(request, proxy, request.type) if proxy else None

    https_open = http_open


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows what stays within TLS, or had none; whom it asks next gets no credentials of the last."""

    max_redirections = MAX_REDIRECTS

    def __init__(self, deadline: Deadline) -> None:
        self._deadline = deadline

    def redirect_request(  # noqa: PLR0917 - as the class above has it
        self, req: urllib.request.Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> Any:
        """Raises URLError where it is refused, and TimeoutError."""
        self._deadline.left()
        # Otherwise all of its body would be read, however long it is.
        fp.close()
        origin, target = urlsplit(req.full_url).scheme, urlsplit(newurl).scheme
        if target != "https" and not (origin == target == "http"):
            raise urllib.error.URLError(f"{origin} redirects to an address without TLS, which is refused")
        new = super().redirect_request(req, fp, code, msg, headers, newurl)
        if new is not None:
            new.remove_header("Proxy-authorization")
        return new


class _Plain(urllib.request.HTTPHandler):
    """Connections whose every read ends at the deadline."""

    def __init__(self, deadline: Deadline, stalled_s: float | None) -> None:
        super().__init__()
        self._deadline, self._stalled_s = deadline, stalled_s

    def http_open(self, req: urllib.request.Request) -> Any:
        """Ask without TLS."""
        return self.do_open(_maker(_PlainConnection, self._deadline, self._stalled_s), req)


class _Secured(urllib.request.HTTPSHandler):
    """The same with TLS; the system's authorities count where no context is given."""

    def __init__(self, deadline: Deadline, stalled_s: float | None, context: ssl.SSLContext | None) -> None:
        # From Python 3.12 on HTTPSHandler reads the system's authorities here: 20 ms that http need not pay.
        urllib.request.AbstractHTTPHandler.__init__(self)
        self._deadline, self._stalled_s, self._own = deadline, stalled_s, context

    def https_open(self, req: urllib.request.Request) -> Any:
        """Ask with TLS."""
        make = _maker(_SecuredConnection, self._deadline, self._stalled_s)
        return self.do_open(make, req, context=self._own or ssl.create_default_context())


class _PlainConnection(http.client.HTTPConnection):
    """A connection whose deadline is that of all addresses of its host, and of all answers."""

    def __init__(self, host: str, *, deadline: Deadline, stalled_s: float | None, **words: Any) -> None:
        super().__init__(host, **{**words, "timeout": _step(deadline, stalled_s)})
        self._deadline, self._stalled_s = deadline, stalled_s
        self._create_connection = self._connected
        # Whose answers they read: the server's, and the proxy's before it.
        self.response_class = functools.partial(_Answer, deadline, stalled_s)

    def _connected(self, address: tuple[str, int], *_: Any) -> socket.socket:
        """By one address after the other, and no more than MAX_ADDRESSES of them."""
        host, port = address
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        *others, last = list(dict.fromkeys(str(one[4][0]) for one in found))[:MAX_ADDRESSES]
        for other in others:
            with contextlib.suppress(OSError):
                return self._connected_to(other, port)
            self._deadline.left()
        return self._connected_to(last, port)

    def _connected_to(self, address: str, port: int) -> socket.socket:
        return socket.create_connection((address, port), _step(self._deadline, self._stalled_s))


class _SecuredConnection(_PlainConnection, http.client.HTTPSConnection):
    """The same with TLS, whose handshake ends by the deadline, too."""

    _context: ssl.SSLContext
    _tunnel_host: str | None

    def connect(self) -> None:
        """Connect, by the proxy where there is one, and make TLS of it."""
        http.client.HTTPConnection.connect(self)
        try:
            with ConnectionWatch(self.sock, self._deadline.left()):
                self.sock = self._context.wrap_socket(
                    self.sock, server_hostname=self._tunnel_host or self.host
                )
        except OSError:
            self._deadline.left()
            raise


def _maker(kind: type[_PlainConnection], deadline: Deadline, stalled_s: float | None) -> Any:
    """What makes a connection of this kind."""
    return functools.partial(kind, deadline=deadline, stalled_s=stalled_s)


def _step(deadline: Deadline, stalled_s: float | None) -> float:
    left = deadline.left()
    return left if stalled_s is None else min(left, stalled_s)


class _Answer(http.client.HTTPResponse):
    """An answer whose headers and body are read by `_Clocked`."""

    def __init__(
        self, deadline: Deadline, stalled_s: float | None, sock: Any, *more: Any, **words: Any
    ) -> None:
        super().__init__(sock, *more, **words)
        self.fp = io.BufferedReader(_Clocked(self.fp.detach(), sock, deadline, stalled_s))


class _Clocked(io.RawIOBase):
    """A connection's bytes. A read timeout alone would start again with each of them."""

    def __init__(self, raw: Any, sock: Any, deadline: Deadline, stalled_s: float | None) -> None:
        self._raw, self._sock, self._deadline, self._stalled_s = raw, sock, deadline, stalled_s
        self._watch = ConnectionWatch(sock, deadline.left())

    def readable(self) -> bool:
        """It is read, and nothing else."""
        return True

    def readinto(self, buffer: Any) -> int:
        """What has come by now, or comes in time."""
        self._sock.settimeout(_step(self._deadline, self._stalled_s))
        try:
            count = self._raw.readinto(buffer)
        except OSError:
            self._deadline.left()
            raise
        if not count:
            self._deadline.left()
        return count

    def close(self) -> None:
        """End it with the answer."""
        self._watch.end()
        self._raw.close()
        super().close()
