"""States of a Harbor that a site may declare, of every kind and with every field."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

# What Harbor never changes is fixed by the name: the kind of an endpoint, the upstream of a project.
ENDPOINTS = {"up": "docker-registry", "far.example": "harbor"}
PROJECTS = {"gpu": "", "2026": "", "a.b-c": "", "hub": "up", "mirror": "far.example"}
# So is the vendor of a preheat network; its endpoint is another one's at another time.
INSTANCES = {"dragon": "dragonfly", "dragonfly": "dragonfly", "octopus": "kraken", "squid": "kraken"}
PLACES = {"dragonfly": ["http://d1.lan", "http://d2.lan", "http://d3.lan:8080"],
          "kraken": ["http://k1.lan", "http://k2.lan"]}  # fmt: skip
SECRETS = ("secret-a", "secret-b")
PEM = "-----BEGIN CERTIFICATE-----\nMAMCAQE=\n-----END CERTIFICATE-----\n"
ROBOTS = ("pull", "push", "ops")
CRONS = st.sampled_from(["0 0 3 * * 0", "0 30 2 * * *", "0 15 4 1 * *"])
PATTERNS = st.sampled_from(["**", "v*", "!dev-*", "paddle/**", "{a,b}"])
FILES = st.sampled_from(SECRETS)
TEXTS = st.sampled_from(["", "of the lab", 'with "quotes" and ünïcode'])


def some(names: Any, least: int = 0) -> st.SearchStrategy[list[Any]]:
    pool = sorted(names)
    return st.lists(st.sampled_from(pool), unique=True, min_size=least) if pool else st.just([])


def rules() -> st.SearchStrategy[list[dict[str, Any]]]:
    counted = st.fixed_dictionaries(
        {
            "keep": st.sampled_from(
                ["latest_pushed", "latest_pulled", "pushed_within_days", "pulled_within_days"]
            ),
            "count": st.integers(1, 400),
            "tags": PATTERNS,
            "repositories": PATTERNS,
            "untagged": st.booleans(),
        }
    )
    always = st.fixed_dictionaries({"keep": st.just("always"), "tags": PATTERNS})
    return st.lists(counted | always, max_size=4, unique_by=lambda one: tuple(sorted(one.items())))


@st.composite
def project(draw: Callable[..., Any], name: str) -> dict[str, Any]:
    upstream = PROJECTS[name]
    immutable = st.fixed_dictionaries({"tags": PATTERNS, "repositories": PATTERNS})
    made = {
        "name": name,
        "public": draw(st.booleans()),
        "quota": draw(st.sampled_from(["unlimited", "1G", "500G", 1])),
        "scan_on_push": draw(st.booleans()),
        "sbom_on_push": draw(st.booleans()),
        "refuse_vulnerable": draw(st.sampled_from(["never", "low", "medium", "high", "critical"])),
        "signature": draw(st.sampled_from(["none", "cosign"] + ([] if upstream else ["notation"]))),
        "retention": draw(rules()),
        "retention_schedule": draw(CRONS),
        "immutable_tags": draw(
            st.lists(immutable, max_size=3, unique_by=lambda one: tuple(sorted(one.items())))
        ),
    }
    if upstream:
        made |= {"proxy_of": upstream, "max_upstream_connections": draw(st.sampled_from([-1, 1, 30]))}
    return made


@st.composite
def replication(draw: Callable[..., Any], name: str, ends: list[str]) -> dict[str, Any]:
    direction = draw(st.sampled_from(["source", "destination"]))
    triggers = ["manual", "scheduled"] + (["event_based"] if direction == "destination" else [])
    trigger = draw(st.sampled_from(triggers))
    parts = {
        "name": st.just({"value": "library/**"}),
        "resource": st.just({"value": "image"}),
        "tag": st.fixed_dictionaries({"value": st.just("v*"), "excludes": st.booleans()}),
        "label": st.fixed_dictionaries({"value": some(["x", "y", "z"], 1), "excludes": st.booleans()}),
    }
    return {
        "name": name,
        "description": draw(TEXTS),
        direction: draw(st.sampled_from(ends)),
        "namespace": draw(st.sampled_from(["", "gpu", "gpu/deep"])),
        "replace_count": draw(st.integers(-1, 3)),
        "trigger": trigger,
        "cron": draw(CRONS) if trigger == "scheduled" else "",
        "filters": [{"type": kind, **draw(parts[kind])} for kind in draw(some(parts))],
        "deletions": draw(st.booleans()),
        "override": draw(st.booleans()),
        "enabled": draw(st.booleans()),
        "speed_kbps": draw(st.sampled_from([0, 1024])),
        "by_chunk": draw(st.booleans()),
        "one_at_a_time": trigger != "event_based" and draw(st.booleans()),
    }


@st.composite
def robot(draw: Callable[..., Any], name: str, projects: list[str]) -> dict[str, Any]:
    of_project = draw(st.sampled_from(["", *projects]))
    access = some(["repository:pull", "repository:push", "tag:list", "artifact:read"], 1)
    namespaces = [of_project] if of_project else draw(some(["*", "/", *projects], 1))
    permissions = [
        {"namespace": one, "access": ["project:list", "quota:read"] if one == "/" else draw(access)}
        for one in namespaces
    ]
    return {
        "name": name,
        "project": of_project,
        "description": draw(TEXTS),
        "days": draw(st.sampled_from([-1, 1, 30, 365])),
        "disabled": draw(st.booleans()),
        "permissions": permissions,
    }


@st.composite
def endpoint(draw: Callable[..., Any], name: str) -> dict[str, Any]:
    made = {
        "name": name,
        "type": ENDPOINTS[name],
        "place": draw(st.sampled_from(["", "/elsewhere"])),
        "description": draw(TEXTS),
        "insecure": draw(st.booleans()),
        "ca_certificate": draw(st.sampled_from(["", PEM])),
    }
    if made["type"] == "harbor" or draw(st.booleans()):
        made |= {"access_key": draw(st.sampled_from(["me", "us"])), "access_secret_file": draw(FILES)}
    return made


@st.composite
def networks(draw: Callable[..., Any]) -> list[dict[str, Any]]:
    names = draw(some(INSTANCES))
    places = {vendor: draw(st.permutations(pool)) for vendor, pool in PLACES.items()}
    default = draw(st.sampled_from(["", *names]))
    made = [
        {
            "name": one,
            "vendor": INSTANCES[one],
            "endpoint": places[INSTANCES[one]].pop(),
            "description": draw(TEXTS),
            "insecure": draw(st.booleans()),
            "enabled": draw(st.booleans()),
            "default": one == default,
        }
        for one in names
    ]
    for one in made:
        if draw(st.booleans()):
            one |= {"user": draw(st.sampled_from(["me", "us"])), "password_file": draw(FILES)}
    return made


@st.composite
def heat(draw: Callable[..., Any], project: str, instances: list[str]) -> dict[str, Any]:
    trigger = draw(st.sampled_from(["manual", "scheduled", "event_based"]))
    return {
        "name": "hot",
        "project": project,
        "instance": draw(st.sampled_from(instances)),
        "description": draw(TEXTS),
        "repositories": draw(PATTERNS),
        "tags": draw(PATTERNS),
        "labels": draw(some(["x", "y"])),
        "trigger": trigger,
        "cron": draw(CRONS) if trigger == "scheduled" else "",
        "enabled": draw(st.booleans()),
    }


@st.composite
def anything(draw: Callable[..., Any]) -> dict[str, Any]:
    """A declared state, without the upstreams' addresses."""
    ends = draw(some(ENDPOINTS))
    projects = draw(some(name for name, upstream in PROJECTS.items() if upstream in ("", *ends)))
    instances = draw(networks())
    awake = [one["name"] for one in instances if one["enabled"]]
    policies = [draw(heat(one, awake)) for one in (draw(some(projects)) if awake else [])]
    collection = st.fixed_dictionaries(
        {"cron": CRONS | st.just(""), "delete_untagged": st.booleans(), "workers": st.integers(1, 10)}
    )
    scan = st.fixed_dictionaries({"cron": CRONS | st.just("")})
    return {
        "registry_endpoints": [draw(endpoint(one)) for one in ends],
        "registry_projects": [draw(project(one)) for one in projects],
        "registry_replications": [
            draw(replication(one, ends)) for one in (draw(some(["fetch", "send"])) if ends else [])
        ],
        "registry_robots": [draw(robot(one, projects)) for one in draw(some(ROBOTS))],
        "registry_schedules": draw(st.fixed_dictionaries({}, optional={"gc": collection, "scan_all": scan})),
        "registry_preheat": {"instances": instances, "policies": policies},
    }


def at(raw: dict[str, Any], upstream: str) -> dict[str, Any]:
    """With the upstreams at this address."""
    ends = [
        {**{name: value for name, value in one.items() if name != "place"},
         "url": f"{upstream}/{one['name']}{one['place']}"}
        for one in raw["registry_endpoints"]
    ]  # fmt: skip
    return {**raw, "registry_endpoints": ends}


def write_secrets(directory: Path) -> None:
    """The files that the states name."""
    for name in SECRETS:
        path = directory / name
        path.write_text(f"{name}\n")
        path.chmod(0o600)
