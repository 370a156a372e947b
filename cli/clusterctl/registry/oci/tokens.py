"""How a registry wants to know who asks: nobody, Basic, or a token from its own realm."""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass
from http import HTTPStatus
from typing import Annotated

import httpx
from pydantic import Field, SecretStr

from clustercheck.parse.plain_text import one_line
from clusterctl.registry.oci import exchange
from clusterctl.registry.oci.answers import RegistryAnswer, UnreadableError, read_document
from clusterctl.registry.oci.credentials import Credentials
from clusterctl.registry.oci.deadline import locked, within
from clusterctl.registry.oci.errors import RegistryError, Resolve, not_reached, place, refused
from clusterctl.registry.oci.reference import in_url, is_this_machine

LONGEST_CHALLENGE = 8192
TOKEN_BYTES = 1 << 20
# A name is looked at once, from its start: time in proportion to the header's length.
_PARAMETER = re.compile(r'(?<!\w)(\w++)="((?:[^"\\]|\\.)*+)"')
# As it may stand in a header; servers take no larger headers. One of the two may be empty.
_Token = Annotated[str, Field(pattern=r"^[\x21-\x7e]{0,65536}$")]


@dataclass(frozen=True)
class Challenge:
    """What WWW-Authenticate asks for."""

    scheme: str
    realm: str = ""
    service: str = ""


def challenge(header: str) -> Challenge:
    """Read the header; an unknown scheme is its own name, one that is too long is none."""
    if len(header) > LONGEST_CHALLENGE:
        return Challenge("")
    scheme, _, rest = header.strip().partition(" ")
    found = dict(_PARAMETER.findall(rest))
    return Challenge(scheme.lower(), found.get("realm", ""), found.get("service", ""))


class _TokenAnswer(RegistryAnswer):
    token: _Token | None = None
    access_token: _Token | None = None


class Tokens:
    """The Authorization header for each scope; safe from many threads."""

    def __init__(
        self,
        host: str,
        credentials: Credentials | None,
        *,
        plain: bool,
        resolve_own: Resolve = lambda url: url,
        resolve_redirect: Resolve = lambda url: url,
    ) -> None:
        self._host = host
        self._credentials = credentials
        self._plain = plain
        self._resolve_own = resolve_own
        self._resolve_redirect = resolve_redirect
        self._headers: dict[str, SecretStr] = {}
        self._lock = threading.Lock()

    def header(self, scope: str) -> str:
        """What to send now; empty if nothing is known yet. Waits for nobody who asks for a token."""
        return self._known(scope)

    def renew(self, client: httpx.Client, answer: httpx.Response, scope: str, used: str) -> bool:
        """After a 401: get what it asks for. False if there is nothing better than what was sent.

        Raises RegistryError where the realm refuses, or is not to be trusted, and httpx.ReadTimeout where
        another thread has waited for it too long: one realm that is stalled does not stall each in turn.
        """
        with within(), locked(self._lock):
            if self._known(scope) != used:
                return True  # another thread has just renewed it
            asked = challenge(answer.headers.get("www-authenticate", ""))
            if asked.scheme == "basic" and self._credentials is not None and used != self._credentials.basic:
                self._headers[scope] = SecretStr(self._credentials.basic)
                return True
            if asked.scheme == "bearer":
                self._headers[scope] = SecretStr(f"Bearer {self._token(client, asked, scope)}")
                return self._known(scope) != used
            return False

    def _known(self, scope: str) -> str:
        kept = self._headers.get(scope)
        return kept.get_secret_value() if kept else ""

    def _token(self, client: httpx.Client, asked: Challenge, scope: str) -> str:
        parameters: dict[str, str | list[str]] = {"scope": scope.split()}
        if asked.service:
            parameters["service"] = asked.service
        realm = place(asked.realm, self._host, None, self._resolve_own, parameters)
        if not self._is_safe(realm):
            raise RegistryError(
                f"{self._host} sends us for a token to a place without TLS",
                code="images.login-refused",
                where=one_line(asked.realm),
                hint="Credentials are sent only over TLS; fix the registry's realm.",
            )
        host = one_line(realm.host)
        where = one_line(str(realm.copy_with(query=None)))
        try:
            with within():
                response = exchange.send(
                    client, "GET", realm,
                    authorization=self._credentials.basic if self._credentials else "",
                    resolve=self._resolve_redirect,
                )  # fmt: skip
                response = exchange.read(response, TOKEN_BYTES)
        except httpx.HTTPError as error:
            raise not_reached(error, host, "asking for a token") from None
        if response.status_code != HTTPStatus.OK:
            raise refused(response, host, "asking for a token")
        if len(response.content) > TOKEN_BYTES:
            raise _unreadable(host, f"it has more than {TOKEN_BYTES} bytes", where)
        try:
            found = read_document(_TokenAnswer.model_validate_json, response.content)
        except UnreadableError as error:
            raise _unreadable(host, str(error), where) from None
        token = found.token or found.access_token
        if not token:
            raise _unreadable(host, "it holds none", where)
        return token

    def _is_safe(self, realm: httpx.URL) -> bool:
        """Whether credentials may go there: over TLS; of a registry without it also to itself or loopback."""
        if realm.scheme == "https":
            return True
        host = in_url(realm.host)
        is_near = is_this_machine(host) or host == httpx.URL(f"http://{self._host}").host
        return self._plain and realm.scheme == "http" and is_near


def _unreadable(host: str, because: str, where: str) -> RegistryError:
    return RegistryError(
        f"{host} gives a token that cannot be read: {because}", code="images.login-refused", where=where
    )
