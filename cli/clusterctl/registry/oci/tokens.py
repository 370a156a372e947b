"""How a registry wants to know who asks: nobody, Basic, or a token from its own realm."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import httpx
from pydantic import SecretStr

from clusterctl.registry.oci.credentials import Credentials
from clusterctl.registry.oci.errors import RegistryError, not_reached, place, refused

_PARAMETER = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True)
class Challenge:
    """What WWW-Authenticate asks for."""

    scheme: str
    realm: str = ""
    service: str = ""


def challenge(header: str) -> Challenge:
    """Read the header; an unknown scheme is its own name."""
    scheme, _, rest = header.strip().partition(" ")
    found = dict(_PARAMETER.findall(rest))
    return Challenge(scheme.lower(), found.get("realm", ""), found.get("service", ""))


class Tokens:
    """The Authorization header for each scope; safe from many threads."""

    def __init__(
        self,
        host: str,
        credentials: Credentials | None,
        *,
        plain: bool,
        resolve_redirect: Callable[[httpx.URL], httpx.URL] = lambda url: url,
    ) -> None:
        self._host = host
        self._credentials = credentials
        self._plain = plain
        self._resolve_redirect = resolve_redirect
        self._headers: dict[str, SecretStr] = {}
        self._lock = threading.Lock()

    def header(self, scope: str) -> str:
        """What to send now; empty if nothing is known yet."""
        with self._lock:
            return self._known(scope)

    def renew(self, client: httpx.Client, answer: httpx.Response, scope: str, used: str) -> bool:
        """After a 401: get what it asks for. False if there is nothing better than what was sent.

        Raises RegistryError where the realm refuses, or is not to be trusted.
        """
        with self._lock:
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
        realm = self._resolve_redirect(place(asked.realm, self._host))
        if realm.scheme != "https" and not (self._plain and realm.scheme == "http"):
            raise RegistryError(
                f"{self._host} sends us for a token to a place without TLS",
                code="images.login-refused",
                where=asked.realm,
                hint="Credentials are sent only over TLS; fix the registry's realm.",
            )
        headers = {"Authorization": self._credentials.basic} if self._credentials else {}
        parameters: dict[str, str | list[str]] = {"scope": scope.split()}
        if asked.service:
            parameters["service"] = asked.service
        try:
            response = client.get(realm, params=parameters, headers=headers)
        except httpx.HTTPError as error:
            raise not_reached(error, realm.host, "asking for a token") from None
        if response.status_code != HTTPStatus.OK:
            raise refused(response, realm.host, "asking for a token")
        try:
            record: dict[str, Any] = response.json()
            return str(record.get("token") or record["access_token"])
        except (ValueError, LookupError, AttributeError):
            raise RegistryError(
                f"{realm.host} gives a token that cannot be read",
                code="images.login-refused",
                where=str(realm.copy_with(query=None)),
            ) from None
