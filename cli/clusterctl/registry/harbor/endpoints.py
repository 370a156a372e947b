"""Upstream registries. Harbor asks an upstream how it is before it writes it down."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, TypeVar

import httpx
from pydantic import SecretStr

from clusterctl.errors import ClusterctlError
from clusterctl.registry.harbor import answers
from clusterctl.registry.harbor.change import (
    Action,
    Deferred,
    FieldDifference,
    HarborChange,
    creation,
    differences,
)
from clusterctl.registry.harbor.client import BrokenAnswer, Refused
from clusterctl.registry.harbor.declared import UpstreamEndpoint
from clusterctl.registry.harbor.site import Finding, Found, Site, by_name, make, surplus

KIND = "endpoint"
PATH = "/registries"
# Refusals that are ours to fix: all others may come from the upstream.
OF_THE_REQUEST = (400, 409, 422)
UNHEALTHY = "unhealthy"
BEYOND = "Harbor does not reach the upstream, or is refused there: {words}"
T = TypeVar("T")


def look(site: Site) -> dict[str, Found]:
    """All there are, by name."""
    found = by_name(site.client.every("endpoints", PATH, answers.EndpointAnswer))
    site.ids |= {(KIND, name): one["id"] for name, one in found.items()}
    return found


def findings(
    site: Site, declared: tuple[UpstreamEndpoint, ...], found: dict[str, Found]
) -> Iterator[Finding]:
    """What differs."""
    for one in declared:
        secret = site.secret(
            one.access_secret_file, one.access_secret_command, f"the secret of endpoint {one.name}"
        )
        yield from _one(site, one, secret, found.get(one.name))


def surplus_findings(
    site: Site, declared: tuple[UpstreamEndpoint, ...], found: dict[str, Found], *, spared: str = ""
) -> Iterator[Finding]:
    """What nobody declared."""
    for name in sorted(set(found) - {one.name for one in declared}):
        number = found[name]["id"]
        remove = partial(site.client.delete, f"{KIND} {name}", f"{PATH}/{number}")
        yield from surplus(site, KIND, name, remove, spared=spared)


def _one(
    site: Site, one: UpstreamEndpoint, secret: SecretStr | None, found: Found | None
) -> Iterator[Finding]:
    if found is None:
        act = partial(_create, site, one, secret)
        yield HarborChange(KIND, one.name, Action.CREATE, act, creation(_wanted(one)))
        return
    if found["type"] != one.type:
        why = f"is of type {found['type']}, and Harbor changes none to {one.type}"
        yield site.block(KIND, one.name, why)
        return
    differing = _differences(site, one, secret, found)
    if differing:
        yield HarborChange(
            KIND, one.name, Action.UPDATE, partial(_update, site, one, secret, found["id"]), differing
        )


def _differences(
    site: Site, one: UpstreamEndpoint, secret: SecretStr | None, found: Found
) -> tuple[FieldDifference, ...]:
    differing = differences(_canonical(found), _wanted(one))
    has_secret = bool((found.get("credential") or {}).get("access_secret"))
    if secret is not None and not (has_secret and site.vault.knows(_key(one), secret, _stamp(found))):
        differing += (FieldDifference("access_secret", "another, or unknown", "as declared"),)
    return differing


def _wanted(one: UpstreamEndpoint) -> dict[str, Any]:
    return {
        "type": one.type,
        "url": one.url,
        "description": one.description,
        "insecure": one.insecure,
        "ca_certificate": one.ca_certificate.strip(),
        "access_key": one.access_key,
    }


def _canonical(found: Found) -> dict[str, Any]:
    return {
        "type": found["type"],
        "url": found["url"].rstrip("/"),
        "description": found.get("description", ""),
        "insecure": bool(found.get("insecure")),
        "ca_certificate": (found.get("ca_certificate") or "").strip(),
        "access_key": (found.get("credential") or {}).get("access_key", ""),
    }


def _create(site: Site, one: UpstreamEndpoint, secret: SecretStr | None) -> None:
    body: dict[str, Any] = {
        "name": one.name,
        "type": one.type,
        "url": one.url,
        "description": one.description,
        "insecure": one.insecure,
    }
    if one.ca_certificate:
        body["ca_certificate"] = one.ca_certificate
    if secret is not None:
        body["credential"] = {
            "type": "basic",
            "access_key": one.access_key,
            "access_secret": secret.get_secret_value(),
        }

    def create() -> None:
        created = _patiently(site, lambda: site.client.post(_key(one), PATH, body, timeouts=1))
        site.ids[KIND, one.name] = created.id
        _remember(site, one, secret, created.id)

    make(create, lambda: look(site).get(one.name), lambda found: _update(site, one, secret, found["id"]))


def _update(site: Site, one: UpstreamEndpoint, secret: SecretStr | None, number: int) -> None:
    """All fields, flat; the secret always, for Harbor blanks it when the address changes without it."""
    body: dict[str, Any] = {
        "name": one.name,
        "url": one.url,
        "description": one.description,
        "insecure": one.insecure,
        "ca_certificate": one.ca_certificate,
        "credential_type": "basic" if secret else "",
        "access_key": one.access_key,
        "access_secret": secret.get_secret_value() if secret else "",
    }
    _patiently(site, lambda: site.client.put(_key(one), f"{PATH}/{number}", body, timeouts=1))
    _remember(site, one, secret, number)


def _remember(site: Site, one: UpstreamEndpoint, secret: SecretStr | None, number: int) -> None:
    found = site.client.get(_key(one), f"{PATH}/{number}", answers.EndpointAnswer) if secret else {}
    site.vault.given(_key(one), secret, _stamp(found))


def _key(one: UpstreamEndpoint) -> str:
    return f"{KIND} {one.name}"


def _stamp(found: Found) -> str:
    """Which writing of which endpoint it is: another may hold another secret, as after a restore."""
    return f"{found.get('id')} {found.get('update_time')}"


def _patiently(site: Site, ask: Callable[[], T]) -> T:
    """Harbor writes no upstream down that it cannot reach, or that refuses it; what it hears, it repeats."""
    try:
        return ask()
    except BrokenAnswer:
        raise
    except Refused as refused:
        if refused.status in OF_THE_REQUEST and UNHEALTHY not in refused.message:
            raise
        raise Deferred(BEYOND.format(words=refused.sentence)) from refused
    except ClusterctlError as error:
        cause = error.__cause__
        if isinstance(cause, httpx.ReadTimeout):
            raise Deferred(BEYOND.format(words="Harbor itself does not answer so long")) from error
        is_denied = error.code == "registry.api-denied" and isinstance(cause, Refused)
        # The upstream's refusal of Harbor looks like Harbor's of us, but then it still knows us.
        if is_denied and site.client.is_known():
            raise Deferred(BEYOND.format(words=str(cause))) from error
        raise
