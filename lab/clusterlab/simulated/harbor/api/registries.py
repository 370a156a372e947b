"""Upstream registries: asked how they are before they are written down."""

from __future__ import annotations

import ssl
from typing import Any

from .asked import Answer, Asked, require_new, route
from .errors import ApiError, bad
from .store import Object
from .system import reachable

KIND = "registry"
# A Harbor is asked for its version while the adapter is made;
# these log in while the adapter is made, and all that goes wrong there is an internal error.
LOG_IN_EARLY = ("docker-hub", "aws-ecr", "ali-acr")
MASK = "*****"
LONGEST_NAME = 64
SECRET = "access_secret"  # noqa: S105 - the name of a field


def shown(found: Object) -> Object:
    """Without the secret, which nobody sees again."""
    credential = found.get("credential")
    if credential:
        said = {"type": credential.get("type", ""), "access_key": credential.get("access_key", "")}
        found = {**found, "credential": said | ({SECRET: MASK} if credential.get(SECRET) else {})}
    optional = ("ca_certificate", "credential")
    return {name: value for name, value in found.items() if value or name not in optional}


@route("GET", "/registries")
def every(asked: Asked) -> Answer:
    """All of them."""
    return asked.page([shown(one) for one in asked.store.all(KIND)])


@route("GET", "/registries/{id}")
def one(asked: Asked) -> Answer:
    """By number."""
    return Answer(200, shown(asked.numbered(KIND)))


@route("POST", "/registries")
def create(asked: Asked) -> Answer:
    """Fails in an air gap."""
    made = asked.texts("name", "type", "url", "description", "ca_certificate") | asked.flags("insecure")
    made["credential"] = asked.body.get("credential")
    _check(made)
    require_new(asked.store, KIND, made["name"])
    return asked.created(asked.store.add(KIND, {**made, "status": "healthy"}))


@route("PUT", "/registries/{id}")
def update(asked: Asked) -> Answer:
    """Flat keys; another URL without a secret blanks the secret; the type stays."""
    found, body = asked.numbered(KIND), asked.body
    stored_url, name = found["url"], found["name"]
    for key in ("name", "description", "url", "insecure", "ca_certificate"):
        if body.get(key) is not None:
            found[key] = body[key]
    credential: dict[str, Any] = found.get("credential") or {}
    for key, inner in (("credential_type", "type"), ("access_key", "access_key"), (SECRET, SECRET)):
        if body.get(key) is not None:
            credential[inner] = body[key]
    found["url"] = found["url"].rstrip("/")
    if found["url"] != stored_url and body.get(SECRET) is None:
        credential[SECRET] = ""
    found["credential"] = credential
    _check(found)
    if found["name"] != name:
        require_new(asked.store, KIND, found["name"])
    asked.store.put(KIND, found["id"], found)
    return Answer()


@route("DELETE", "/registries/{id}")
def delete(asked: Asked) -> Answer:
    """Not while something uses it."""
    number = asked.numbered(KIND)["id"]
    ends = [(policy["src"], policy["dest"]) for policy in asked.store.all("replication")]
    if any(number in pair for pair in ends):
        raise ApiError(412, f"the registry {number} is referenced by replication policies, cannot delete it")
    if any(project["registry_id"] == number for project in asked.store.all("project")):
        raise ApiError(412, f"the registry {number} is referenced by proxy cache project, cannot delete it")
    asked.store.remove(KIND, number)
    return Answer()


def _check(found: Object) -> None:
    if not found["name"]:
        raise bad("name cannot be empty")
    if len(found["name"]) > LONGEST_NAME:
        raise bad(f"the max length of name is {LONGEST_NAME}")
    if not found["url"].startswith(("http://", "https://")):
        raise bad(f"invalid URL: {found['url']}")
    found["url"] = found["url"].rstrip("/")
    if found.get("ca_certificate") and not _is_certificate(found["ca_certificate"]):
        raise bad("invalid CA certificate: failed to parse certificate: x509: malformed certificate")
    if found["type"] == "harbor" and not found.get("credential"):
        # Its handler crashes.
        raise ApiError(500, "")
    if not reachable(found["url"]):
        is_early = found["type"] in LOG_IN_EARLY and (found.get("credential") or {}).get("access_key")
        if is_early or found["type"] == "harbor":
            raise ApiError(500, "dial tcp: connection refused")
        raise bad("the registry is unhealthy")


def _is_certificate(text: str) -> bool:
    """Whether it is PEM of one whole object, as far as its own length says."""
    try:
        content = ssl.PEM_cert_to_DER_cert(text.strip())
    except ValueError:
        return False
    long_form = len(content) > 2 and content[1] & 0x80
    size = int.from_bytes(content[2 : 2 + (content[1] & 0x7F)], "big") if long_form else content[1]
    return content[:1] == b"\x30" and len(content) == 2 + size + ((content[1] & 0x7F) if long_form else 0)
