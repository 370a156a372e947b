"""One request and what it leads to: redirects within rules, and answers read up to a size."""

from __future__ import annotations

import http.cookiejar
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from http import HTTPStatus
from typing import Any

import httpx

from clustercheck.parse.plain_text import one_line
from clusterctl.registry.oci.deadline import remaining
from clusterctl.registry.oci.errors import NoHostNameError, RegistryError, Resolve, place

# As many as Go's client follows, and with it Docker's and containerd's.
MAX_REDIRECTS = 10
# Of an answer that says only whether something was done, or why not.
SHORT_BYTES = 64 << 10
SAME_METHOD = (HTTPStatus.TEMPORARY_REDIRECT, HTTPStatus.PERMANENT_REDIRECT)
ANY_READ = (*SAME_METHOD, HTTPStatus.MOVED_PERMANENTLY, HTTPStatus.FOUND, HTTPStatus.SEE_OTHER)
# What a body that was read says no longer of itself.
OF_BODY = (b"content-encoding", b"content-length", b"transfer-encoding")

Content = Callable[[], Iterator[bytes]]


class NoCookies(http.cookiejar.CookieJar):
    """Keeps and sends no cookies: no registry needs them, and the standard parser fails on some."""

    def extract_cookies(self, response: Any, request: urllib.request.Request) -> None:
        """Read none."""

    def add_cookie_header(self, request: urllib.request.Request) -> None:
        """Send none."""


def send(
    client: httpx.Client,
    method: str,
    url: httpx.URL,
    *,
    authorization: str = "",
    headers: Mapping[str, str] | None = None,
    content: bytes | Content | None = None,
    timeout: httpx.Timeout | None = None,
    resolve: Resolve = lambda url: url,
) -> httpx.Response:
    """Sends the request, and follows where it leads; the answer is open.

    ``authorization`` goes to the first address's own host alone. Raises httpx.HTTPError, and RegistryError
    (``images.redirect``) where the way leads from https to http, to no end, or elsewhere with a request that
    changes something.
    """
    first, is_home = url, True
    for _ in range(MAX_REDIRECTS + 1):
        is_home = is_home and has_same_origin(url, first)
        sent = {**(headers or {}), **({"Authorization": authorization} if authorization and is_home else {})}
        request = client.build_request(
            method, url, headers=sent, content=content() if callable(content) else content,
            timeout=timeout or client.timeout,
        )  # fmt: skip
        response = open_answer(client, request)
        follows = ANY_READ if method in ("GET", "HEAD") else SAME_METHOD
        if response.status_code not in follows or not response.headers.get("location"):
            return response
        # Read, so that the connection can be used again.
        read(response, SHORT_BYTES)
        target = place(response.headers["location"], first.host, url, resolve)
        require_no_downgrade(url, target)
        require_may_change(method, first, target)
        url = target
    raise _refusal(
        f"{one_line(first.host)} redirects more than {MAX_REDIRECTS} times", str(first.copy_with(query=None))
    )


def open_answer(
    client: httpx.Client, request: httpx.Request, auth: httpx.Auth | None = None
) -> httpx.Response:
    """The answer to one request, whose body is still to be read.

    Raises httpx.TransportError; where a host's name is none, NoHostNameError, which is one.
    """
    try:
        return client.send(request, auth=auth, stream=True, follow_redirects=False)
    except UnicodeError as error:
        # The system's resolver takes no empty label, and none of more than 63 letters.
        raise NoHostNameError(f"its host has no name that can be looked up: {error}") from None
    except (httpx.InvalidURL, ValueError) as error:
        # httpx reads the address of a redirect also where it does not follow it.
        raise httpx.RemoteProtocolError(f"a redirect to no address: {error}", request=request) from None


def read(response: httpx.Response, most: int) -> httpx.Response:
    """The answer with its body, and closed. Of a body with more than ``most`` bytes one more is there.

    Nothing is decompressed: we ask for bytes as they are. Raises httpx.HTTPError.
    """
    found = bytearray()
    try:
        for piece in response.iter_raw():
            found += piece[: most + 1 - len(found)]
            if len(found) > most:
                break
            remaining()
    finally:
        response.close()
    headers = [(name, value) for name, value in response.headers.raw if name.lower() not in OF_BODY]
    return httpx.Response(
        response.status_code, headers=headers, content=bytes(found), request=response.request
    )


def require_no_downgrade(origin: httpx.URL, target: httpx.URL) -> None:
    """Raises RegistryError (``images.redirect``) where a way leads from https to anything else."""
    if target.scheme == "https" or (origin.scheme == target.scheme == "http"):
        return
    raise _refusal(
        f"{one_line(origin.host)} redirects to an address without TLS",
        str(target.copy_with(query=None)),
    )


def require_may_change(method: str, origin: httpx.URL, target: httpx.URL) -> None:
    """Refuse to change something at another server, which who was asked chooses: services of the site trust
    this machine. Registries take uploads where they are asked; storage elsewhere is only read.

    Raises RegistryError (``images.redirect``).
    """
    if method in ("GET", "HEAD") or has_same_origin(origin, target):
        return
    raise RegistryError(
        f"{one_line(origin.host)} sends a {method} to another server than it was asked at",
        code="images.redirect",
        where=one_line(str(target.copy_with(query=None))),
        hint=f"It must name itself {one_line(str(origin.copy_with(raw_path=b'/')))} (Harbor: external_url; "
        "docker-registry: http.host, or http.relativeurls: true; a proxy: X-Forwarded-Proto), or be asked as "
        "it names itself.",
    )


def has_same_origin(one: httpx.URL, other: httpx.URL) -> bool:
    """Whether two addresses are of one server."""
    return (one.scheme, one.host, one.port, one.userinfo) == (
        other.scheme, other.host, other.port, other.userinfo
    )  # fmt: skip


def _refusal(what: str, where: str) -> RegistryError:
    return RegistryError(
        what, code="images.redirect", where=one_line(where),
        hint="Fix the address that the registry or its storage names (https://), and proxies before it.",
    )  # fmt: skip
