"""`images_signatures_lookaside`: where the GPG signatures of images lie, by scope, as in registries.d.

https://github.com/containers/image/blob/main/docs/containers-registries.d.5.md
"""

from __future__ import annotations

import ipaddress
import re
from typing import Any
from urllib.parse import urlsplit

from pydantic import TypeAdapter, ValidationError

from clusterctl.cluster.signature_policy import CODE, MAX_SCOPES, Scope, one_spelling, scopes_of
from clusterctl.errors import ClusterctlError

NAME = "images_signatures_lookaside"
_SCOPES: TypeAdapter[str] = TypeAdapter(Scope)
MAX_LENGTH = 1024
LOCATION_HINT = "For example: https://signatures.example.com/containers, or file:///srv/signatures"


class UnusableLocationError(ValueError):
    """Why a location is not used, and what to do."""

    def __init__(self, sentence: str, hint: str) -> None:
        super().__init__(sentence)
        self.hint = hint


def require_scope(text: str) -> None:
    """Refuse what is no scope of images. Raises UnusableLocationError."""
    try:
        _SCOPES.validate_python(text)
    except ValidationError as error:
        sentence = str(error.errors()[0]["msg"]).removeprefix("Value error, ")
        raise UnusableLocationError(sentence, "The scope of all images is an empty text.") from None


def require_location(text: str) -> None:
    """Refuse what is not an address of https or of a directory here. Raises UnusableLocationError."""
    if len(text) > MAX_LENGTH or re.search(r"[\x00-\x20\x7f]", text):
        raise UnusableLocationError(f"{text[:80]!r} is not an address", LOCATION_HINT)
    try:
        parts = urlsplit(text)
        host, _ = parts.hostname or "", parts.port
    except ValueError:
        raise UnusableLocationError(f"{text[:80]!r} is not an address", LOCATION_HINT) from None
    if parts.query or parts.fragment or "@" in parts.netloc:
        raise UnusableLocationError("an address has no user, query or fragment here", LOCATION_HINT)
    if parts.scheme == "file" and not parts.netloc and parts.path.startswith("/"):
        return
    if parts.scheme == "https" and host:
        return
    if parts.scheme == "http" and _is_loopback(host):
        return
    raise UnusableLocationError(f"{text[:80]!r} is neither https:// nor file:///", LOCATION_HINT)


def read(setting: Any) -> dict[str, str]:
    """The locations by scope. Raises ClusterctlError (``CODE``)."""
    found = setting or {}
    if not isinstance(found, dict) or len(found) > MAX_SCOPES:
        raise _refusal(f"it is not a mapping of at most {MAX_SCOPES} scopes", LOCATION_HINT)
    try:
        for scope, location in found.items():
            require_scope(str(scope))
            require_location(str(location))
    except UnusableLocationError as error:
        raise _refusal(str(error), error.hint) from None
    return {one_spelling(str(scope)): str(location).rstrip("/") for scope, location in found.items()}


def location(locations: dict[str, str], registry: str, repository: str, tag: str, digest: str) -> str:
    """Where signatures of an image lie: the location of its most specific scope; empty if there is none."""
    return next(
        (locations[scope] for scope in scopes_of(registry, repository, tag, digest) if scope in locations), ""
    )


def _refusal(because: str, hint: str) -> ClusterctlError:
    return ClusterctlError(f"{NAME} cannot be used: {because}", code=CODE, where=NAME, hint=hint)


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
