"""Secrets that a server was told, removed from what it answers before that is shown or written anywhere."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Mapping
from typing import Any

import httpx

from clustercheck.parse.plain_text import one_line, plain_text
from clusterctl.content import shared_module
from clusterctl.errors import ClusterctlError

MASK = "(masked)"
# In the extensions of a request: what it, and those before it, told the server.
EXTENSION = "clusterctl hidden secrets"
# Of fields of a request's body, in lower case.
SECRET_FIELDS = ("secret", "password", "access_secret")
SECRETS_BY_USER = "auth_info"


class HiddenSecrets:
    """Secrets, and the forms in which a server may repeat them. Safe from many threads."""

    def __init__(self, before: HiddenSecrets | None = None) -> None:
        self._forms: frozenset[str] = before._forms if before else frozenset()
        self._lock = threading.Lock()

    def add(self, secret: str, user: str = "") -> None:
        """Hide a secret from now on; with its user also both as they stand in a request."""
        self._hide(shared_module("masking").secret_forms(secret, user))

    def add_address(self, url: str) -> None:
        """Hide the password in an address, as that of a proxy."""
        self._hide(shared_module("masking").forms_in_url(url))

    def _hide(self, forms: frozenset[str]) -> None:
        with self._lock:
            self._forms |= forms

    def add_from(self, body: Mapping[str, Any]) -> None:
        """Hide what a request's body holds of secrets."""
        for name, value in body.items():
            if name == SECRETS_BY_USER and isinstance(value, Mapping):
                for user, secret in value.items():
                    self.add(str(secret), str(user))
            elif isinstance(value, Mapping):
                self.add_from(value)
            elif name.lower() in SECRET_FIELDS and isinstance(value, str):
                self.add(value, str(body.get("access_key") or ""))

    def attach_to(self, request: httpx.Request) -> None:
        """Have them left out of errors about the request."""
        request.extensions = {**request.extensions, EXTENSION: self}

    def mask(self, text: str) -> str:
        """The text without them, the longest first: one may begin with another."""
        return str(shared_module("masking").mask_forms(text, self._forms, MASK))

    def public(self, text: str, limit: int = 300) -> str:
        """What a server says, without them, on one line, shortened.

        Masked before and after it is cleaned, which may put together what stood apart, and before it is cut.
        """
        return one_line(self.mask(" ".join(plain_text(self.mask(text)).split())), limit)

    @contextlib.contextmanager
    def kept_out_of_errors(self) -> Iterator[None]:
        """An error that is raised meanwhile says none of them."""
        try:
            yield
        except ClusterctlError as error:
            error.what, error.where, error.hint = map(self.mask, (error.what, error.where, error.hint))
            error.args = (error.what,)
            raise
