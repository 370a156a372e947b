"""Projects: plain ones, and caches of an upstream."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import partial
from typing import Any
from urllib.parse import quote

import httpx

from clusterctl.registry.harbor import answers, endpoints, retention
from clusterctl.registry.harbor.change import (
    Action,
    FieldDifference,
    HarborChange,
    Remark,
    creation,
    differences,
)
from clusterctl.registry.harbor.client import Refused, TooMuch
from clusterctl.registry.harbor.declared import Project
from clusterctl.registry.harbor.fields import UNLIMITED, size_words
from clusterctl.registry.harbor.site import Finding, Found, Site, by_name, each, make, surplus

KIND = "project"
PATH = "/projects"
# Harbor makes it, and cannot do without.
BUILT_IN = "library"
QUOTA, RETENTION = "quota", frozenset({"retention", "retention_schedule"})
SEVERITIES = ("low", "medium", "high", "critical")


def look(site: Site, declared: tuple[Project, ...], needed: Iterable[str] = ()) -> dict[str, Found]:
    """All there are, by name; those that are declared with quota and retention.

    Where there are more than are read, as any user may make some, only those that are declared or ``needed``.
    """
    names = dict.fromkeys([*(one.name for one in declared), *needed])
    try:
        with site.client.confined():
            every = site.client.every("projects", PATH, answers.ProjectAnswer, key="project_id")
    except TooMuch as much:
        site.unlisted = much.sentence
        every = [one for one in each(site, partial(_named, site), names) if one is not None]
    found = by_name(every)
    site.ids |= {(KIND, name): one["project_id"] for name, one in found.items()}
    there = [found[one.name]["project_id"] for one in declared if one.name in found]
    quotas = _quotas(site, there) if there else {}

    def complete(one: Project) -> None:
        project = found[one.name]
        project["_quota"] = quotas.get(project["project_id"])
        project["_retention"] = site.of_project(one.name, lambda: retention.look(site, project))

    each(site, complete, [one for one in declared if one.name in found])
    return found


def findings(site: Site, declared: tuple[Project, ...], found: dict[str, Found]) -> Iterator[Finding]:
    """What differs."""
    for one in declared:
        there = found.get(one.name)
        if one.quota != UNLIMITED and not (there["_quota"] if there else site.quotas):
            why = "has no quota: Harbor's quotas are switched off (quota_per_project_enable)"
            yield Remark(KIND, one.name, why, blocks=True)
        if there is None:
            whole = {"proxy_of": one.proxy_of, **_wanted(site, one)}
            needs = ((endpoints.KIND, one.proxy_of),) if one.proxy_of else ()
            yield HarborChange(
                KIND, one.name, Action.CREATE, partial(_create, site, one), creation(whole), needs
            )
        else:
            yield from _existing(site, one, there)


def surplus_findings(
    site: Site,
    declared: tuple[Project, ...],
    found: dict[str, Found],
    needed: Collection[str],
    *,
    spared: str = "",
) -> Iterator[Finding]:
    """What nobody declared, nor needs. Harbor itself deletes no project that has repositories."""
    for name in sorted(set(found) - {one.name for one in declared} - {BUILT_IN}):
        remove = partial(site.client.delete, f"project {name}", path(name))
        why = spared or ("a declared object needs it" if name in needed else "")
        yield from surplus(site, KIND, name, remove, spared=why)


def path(name: str) -> str:
    """Where a project is; its name is told from a number by a header."""
    return f"{PATH}/{quote(name, safe='')}"


def _named(site: Site, name: str) -> Found | None:
    try:
        return site.client.get(f"project {name}", path(name), answers.ProjectAnswer)
    except Refused as refused:
        if refused.status != httpx.codes.NOT_FOUND:
            raise
        return None


def _quotas(site: Site, numbers: Sequence[int]) -> dict[int, Found]:
    """By the project's number: of all, else of these."""

    def read(**of_one: str) -> list[Found]:
        return site.client.every("quotas", "/quotas", answers.QuotaAnswer, reference="project", **of_one)

    try:
        with site.client.confined():
            found = read()
    except TooMuch:
        found = [one for quotas in each(site, lambda n: read(reference_id=str(n)), numbers) for one in quotas]
    return {one["ref"]["id"]: one for one in found if one.get("ref")}


def _existing(site: Site, one: Project, found: Found) -> Iterator[Finding]:
    upstream = site.name_of(endpoints.KIND, found.get("registry_id") or 0)
    if upstream != one.proxy_of:
        was, wanted = (f"a proxy of {name}" if name else "no proxy" for name in (upstream, one.proxy_of))
        why = f"is {was}, and Harbor makes it never {wanted}; delete it, or declare another name"
        yield site.block(KIND, one.name, why)
        return
    differing = differences(_canonical(one, found), _wanted(site, one))
    if found["_quota"] is None:
        differing = tuple(part for part in differing if part.field != QUOTA)
    if differing:
        yield HarborChange(
            KIND, one.name, Action.UPDATE, partial(_update, site, one, found, differing), differing
        )


def _wanted(site: Site, one: Project) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "public": one.public,
        "scan_on_push": one.scan_on_push,
        "sbom_on_push": one.sbom_on_push,
        "refuse_vulnerable": one.refuse_vulnerable,
        "signature": one.signature,
        QUOTA: size_words(one.quota),
        **retention.wanted(one),
    }
    if one.proxy_of:
        fields["max_upstream_connections"] = one.max_upstream_connections
    return fields


def _canonical(one: Project, found: Found) -> dict[str, Any]:
    metadata = found.get("metadata") or {}

    def is_on(name: str) -> bool:
        return str(metadata.get(name) or "").lower() == "true"

    signatures = [
        word
        for word, key in (("cosign", "enable_content_trust_cosign"), ("notation", "enable_content_trust"))
        if is_on(key) and not (one.proxy_of and word == "notation")
    ]
    fields: dict[str, Any] = {
        "public": is_on("public"),
        "scan_on_push": is_on("auto_scan"),
        "sbom_on_push": is_on("auto_sbom_generation"),
        "refuse_vulnerable": (metadata.get("severity") or "low").lower() if is_on("prevent_vul") else "never",
        "signature": " and ".join(signatures) or "none",
        QUOTA: size_words(((found["_quota"] or {}).get("hard") or {}).get("storage", UNLIMITED)),
        **retention.canonical(found["_retention"]),
    }
    if one.proxy_of:
        limit = metadata.get("max_upstream_conn") or "-1"
        is_number = re.fullmatch(r"-?[0-9]{1,18}", limit, re.ASCII)
        fields["max_upstream_connections"] = int(limit) if is_number else limit
    return fields


def _metadata(one: Project) -> dict[str, str]:
    """All values are strings for Harbor."""
    metadata = {
        "public": one.public,
        "auto_scan": one.scan_on_push,
        "auto_sbom_generation": one.sbom_on_push,
        "prevent_vul": one.refuse_vulnerable != "never",
        "enable_content_trust_cosign": one.signature == "cosign",
        "enable_content_trust": one.signature == "notation",
    }
    words = {name: str(value).lower() for name, value in metadata.items()}
    if one.refuse_vulnerable in SEVERITIES:
        words["severity"] = one.refuse_vulnerable
    if one.proxy_of:
        words["max_upstream_conn"] = str(one.max_upstream_connections)
    return words


def _create(site: Site, one: Project) -> None:
    body: dict[str, Any] = {
        "project_name": one.name,
        "metadata": _metadata(one),
        "storage_limit": one.quota,
    }
    if one.proxy_of:
        body["registry_id"] = site.id_of(endpoints.KIND, one.proxy_of)

    def create() -> None:
        number = site.client.post(f"project {one.name}", PATH, body).id
        site.ids[KIND, one.name] = number
        policy = _retention_id(site, one) if one.proxy_of else ""
        retention.write(site, one, number, policy)

    def take(found: Found) -> None:
        for finding in _existing(site, one, found):
            if isinstance(finding, Remark):
                raise Refused(f"project {one.name}", 409, f"someone else has just made it; it {finding.why}")
            finding.act()

    make(create, lambda: _find(site, one), take)


def _update(site: Site, one: Project, found: Found, differing: tuple[FieldDifference, ...]) -> None:
    fields = {part.field for part in differing}
    number = found["project_id"]
    if fields - RETENTION - {QUOTA}:
        site.client.put(f"project {one.name}", path(one.name), {"metadata": _metadata(one)})
    if QUOTA in fields:
        body = {"hard": {"storage": one.quota}}
        site.client.put(f"quota of project {one.name}", f"/quotas/{found['_quota']['id']}", body)
    if fields & RETENTION:
        policy = retention.policy_number(found)
        if policy and found["_retention"] is None:
            # The policy is gone: Harbor takes no other one while the project still names it.
            site.client.delete(f"retention of project {one.name}", f"{path(one.name)}/metadatas/retention_id")
            policy = ""
        retention.write(site, one, number, policy)


def _find(site: Site, one: Project) -> Found | None:
    """One project by its exact name, with all that is compared."""
    found = site.client.get(f"project {one.name}", path(one.name), answers.ProjectAnswer)
    number = found["project_id"]
    site.ids[KIND, one.name] = number
    quotas = site.client.every(
        "quotas", "/quotas", answers.QuotaAnswer, reference="project", reference_id=str(number)
    )
    return {**found, "_quota": next(iter(quotas), None), "_retention": retention.look(site, found)}


def _retention_id(site: Site, one: Project) -> str:
    """The policy that Harbor has just made for a proxy: it drops what was not pulled for seven days."""
    return retention.policy_number(
        site.client.get(f"project {one.name}", path(one.name), answers.ProjectAnswer)
    )
