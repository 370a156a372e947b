"""What a site declares of its Harbor. An object is described whole: what is not written has its default."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated, Literal

from pydantic import Field, model_validator

from clusterctl.registry.harbor.fields import UNLIMITED, Cron, Declaration, Name, Quota, Url

EVERYTHING = "**"
ALL_PROJECTS, SYSTEM = "*", "/"
MOST_RETENTION_RULES = 15
ADAPTERS = Literal[
    "docker-hub", "harbor", "azure-acr", "ali-acr", "aws-ecr", "google-gcr", "docker-registry", "github-ghcr",
    "jfrog-artifactory",
]  # fmt: skip


class RetentionRule(Declaration):
    """What is kept; what no rule keeps is removed. A pattern that starts with ``!`` excludes."""

    keep: Literal["latest_pushed", "latest_pulled", "pushed_within_days", "pulled_within_days", "always"]
    count: int = Field(0, ge=0)
    tags: str = EVERYTHING
    repositories: str = EVERYTHING
    untagged: bool = True

    @model_validator(mode="after")
    def _counted(self) -> RetentionRule:
        if (self.keep == "always") == bool(self.count):
            raise ValueError("count is how many, or how many days; always has none")
        return self


class ImmutableTags(Declaration):
    """Tags that nobody may overwrite or remove."""

    tags: str = EVERYTHING
    repositories: str = EVERYTHING


class Project(Declaration):
    """A project; with ``proxy_of`` a cache of that upstream endpoint."""

    name: Name
    public: bool = False
    quota: Quota = UNLIMITED
    proxy_of: str = ""
    # Harbor reads it as a number of 32 bits.
    max_upstream_connections: int = Field(-1, ge=-1, le=2**31 - 1)
    scan_on_push: bool = False
    sbom_on_push: bool = False
    refuse_vulnerable: Literal["never", "low", "medium", "high", "critical"] = "never"
    signature: Literal["none", "cosign", "notation"] = "none"
    retention: tuple[RetentionRule, ...] = Field((), max_length=MOST_RETENTION_RULES)
    retention_schedule: Cron = "0 0 0 * * *"
    immutable_tags: tuple[ImmutableTags, ...] = ()

    @model_validator(mode="after")
    def _sound(self) -> Project:
        for rules, what in ((self.retention, "retention"), (self.immutable_tags, "immutable_tags")):
            if len(set(rules)) < len(rules):
                raise ValueError(f"{what} has the same rule twice")
        if not self.proxy_of and self.max_upstream_connections != -1:
            raise ValueError("max_upstream_connections is for a project with proxy_of")
        if self.proxy_of and self.signature == "notation":
            raise ValueError("Harbor asks for no notation signatures in a project with proxy_of")
        return self


class UpstreamEndpoint(Declaration):
    """An upstream registry. Its secret is read from a file of mode 0600, or from what a program prints."""

    name: Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[^,=\s]+$")]
    type: ADAPTERS
    url: Url
    description: str = ""
    insecure: bool = False
    ca_certificate: str = ""
    access_key: str = ""
    access_secret_file: str = ""
    access_secret_command: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _sound(self) -> UpstreamEndpoint:
        sources = bool(self.access_secret_file) + bool(self.access_secret_command)
        if sources != bool(self.access_key):
            raise ValueError("access_key requires one of access_secret_file and access_secret_command")
        if self.type == "harbor" and not self.access_key:
            # Harbor's handler crashes without (2.14.4, 2.15.2), and answers 500 with nothing in it.
            raise ValueError(
                "type harbor requires access_key; docker-registry serves anonymous pulls from it"
            )
        return self


class ReplicationFilter(Declaration):
    """What is replicated: of the name, the tag, the labels or the kind of artifact."""

    type: Literal["name", "tag", "label", "resource"]
    value: str | tuple[str, ...]
    excludes: bool = False

    @model_validator(mode="after")
    def _sound(self) -> ReplicationFilter:
        if (self.type == "label") != isinstance(self.value, tuple):
            raise ValueError("value is a list for label, and text for all others")
        if self.excludes and self.type not in ("tag", "label"):
            raise ValueError("excludes is for tag and label")
        return self


class Replication(Declaration):
    """Copies from an upstream endpoint (``source``) or to one (``destination``)."""

    name: Name
    description: str = ""
    source: str = ""
    destination: str = ""
    namespace: str = ""
    replace_count: int = Field(1, ge=-1, le=3)
    trigger: Literal["manual", "scheduled", "event_based"] = "manual"
    cron: Cron = ""
    filters: tuple[ReplicationFilter, ...] = ()
    deletions: bool = False
    override: bool = True
    enabled: bool = True
    speed_kbps: int = Field(0, ge=0)
    by_chunk: bool = False
    one_at_a_time: bool = False

    @model_validator(mode="after")
    def _sound(self) -> Replication:
        if bool(self.source) == bool(self.destination):
            raise ValueError("write either source or destination: an endpoint's name")
        if (self.trigger == "scheduled") != bool(self.cron):
            raise ValueError("cron is for trigger: scheduled, and it needs one")
        if self.cron and self.cron.split(" ")[1] == "*":
            raise ValueError(
                "Harbor starts no replication every minute: the second field of cron is a number"
            )
        if self.trigger == "event_based" and self.source:
            raise ValueError(
                "trigger: event_based is for a destination: Harbor hears of no upstream's events"
            )
        if self.one_at_a_time and self.trigger == "event_based":
            raise ValueError("one_at_a_time is not for trigger: event_based")
        if len({one.type for one in self.filters}) < len(self.filters):
            raise ValueError("filters has a type twice")
        return self


class Permission(Declaration):
    """What a robot may do: ``namespace`` is a project, ``*`` for all, or ``/`` for the system."""

    namespace: str
    access: tuple[Annotated[str, Field(pattern=r"^[a-z-]+:[a-z-]+$")], ...] = Field(min_length=1)


class Robot(Declaration):
    """A robot account, of the system or of one project."""

    name: Name
    project: str = ""
    description: str = ""
    days: int = Field(-1, ge=-1)
    disabled: bool = False
    permissions: tuple[Permission, ...] = Field(min_length=1)

    @property
    def key(self) -> str:
        """The name without Harbor's prefix: that of a project's robot has the project in it."""
        return f"{self.project}+{self.name}" if self.project else self.name

    @model_validator(mode="after")
    def _sound(self) -> Robot:
        if not self.days:
            raise ValueError("days is how long it lives, or -1 for ever")
        names = [one.namespace for one in self.permissions]
        if len(set(names)) < len(names):
            raise ValueError("permissions name a namespace twice")
        if self.project and names != [self.project]:
            raise ValueError("a project's robot has permissions in that project alone")
        return self


class Collection(Declaration):
    """Garbage collection; an empty ``cron`` switches it off."""

    cron: Cron
    delete_untagged: bool = False
    workers: int = Field(1, ge=1, le=10)


class Scan(Declaration):
    """The scan of everything; an empty ``cron`` switches it off."""

    cron: Cron


class Schedules(Declaration):
    """What Harbor does by the clock. One that is not written is left as it is."""

    gc: Collection | None = None
    scan_all: Scan | None = None


class Instance(Declaration):
    """A peer-to-peer network to preheat images into."""

    name: Name
    vendor: Literal["dragonfly", "kraken"]
    endpoint: Url
    description: str = ""
    enabled: bool = True
    default: bool = False
    insecure: bool = False
    user: str = ""
    password_file: str = ""

    @model_validator(mode="after")
    def _sound(self) -> Instance:
        if bool(self.user) != bool(self.password_file):
            raise ValueError("user and password_file belong together")
        return self


class PreheatPolicy(Declaration):
    """What of a project is preheated, and when."""

    name: Name
    project: Name
    instance: Name
    description: str = ""
    repositories: str = EVERYTHING
    tags: str = EVERYTHING
    labels: tuple[str, ...] = ()
    trigger: Literal["manual", "scheduled", "event_based"] = "manual"
    cron: Cron = ""
    enabled: bool = True

    @model_validator(mode="after")
    def _sound(self) -> PreheatPolicy:
        if (self.trigger == "scheduled") != bool(self.cron):
            raise ValueError("cron is for trigger: scheduled, and it needs one")
        return self


class Preheat(Declaration):
    """Peer-to-peer preheating."""

    instances: tuple[Instance, ...] = ()
    policies: tuple[PreheatPolicy, ...] = ()

    @model_validator(mode="after")
    def _sound(self) -> Preheat:
        defaults = [one.name for one in self.instances if one.default]
        if len(defaults) > 1:
            raise ValueError(f"one instance may be the default, and these are: {', '.join(defaults)}")
        return self


class DeclaredHarbor(Declaration):
    """All that is declared of one Harbor, by the names of its settings."""

    registry_projects: tuple[Project, ...] = ()
    registry_endpoints: tuple[UpstreamEndpoint, ...] = ()
    registry_replications: tuple[Replication, ...] = ()
    registry_robots: tuple[Robot, ...] = ()
    registry_schedules: Schedules = Schedules()
    registry_preheat: Preheat = Preheat()

    @model_validator(mode="after")
    def _sound(self) -> DeclaredHarbor:
        problems = [*_doubled(self), *_dangling(self)]
        if problems:
            raise ValueError("; ".join(problems))
        return self


def _doubled(declared: DeclaredHarbor) -> Iterator[str]:
    preheat = declared.registry_preheat
    named: dict[str, Iterable[str]] = {
        "registry_projects": [one.name for one in declared.registry_projects],
        "registry_endpoints": [one.name for one in declared.registry_endpoints],
        "registry_replications": [one.name for one in declared.registry_replications],
        "registry_robots": [one.key for one in declared.registry_robots],
        "registry_preheat.instances": [one.name for one in preheat.instances],
        "endpoints of registry_preheat.instances": [one.endpoint for one in preheat.instances],
        "registry_preheat.policies": [f"{one.project}/{one.name}" for one in preheat.policies],
    }
    for where, names in named.items():
        seen: set[str] = set()
        for name in names:
            if name in seen:
                yield f"{where} has {name} twice"
            seen.add(name)


def _dangling(declared: DeclaredHarbor) -> Iterator[str]:
    endpoints = {one.name for one in declared.registry_endpoints}
    for project in declared.registry_projects:
        if project.proxy_of and project.proxy_of not in endpoints:
            yield f"project {project.name} is a proxy of {project.proxy_of}, which is not a declared endpoint"
    for replication in declared.registry_replications:
        end = replication.source or replication.destination
        if end not in endpoints:
            yield f"replication {replication.name} names {end}, which is not a declared endpoint"
    instances = {one.name: one for one in declared.registry_preheat.instances}
    for policy in declared.registry_preheat.policies:
        if policy.instance not in instances:
            yield f"preheat policy {policy.name} names {policy.instance}, which is not a declared instance"
        elif not instances[policy.instance].enabled:
            yield f"preheat policy {policy.name} uses {policy.instance}, which is disabled"
