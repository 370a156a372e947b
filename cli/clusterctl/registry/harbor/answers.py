"""What is read of Harbor's answers: objects with the fields that we rely on, of the kinds that we rely on.

Other fields stay as they came: an object of Harbor's is returned to it with them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import datetime
from functools import cache
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter

from clusterctl.registry.oci.answers import UnreadableError, read_document

# Harbor gives 100 of a list at a time; some of its lists have no pages.
MAX_ITEMS = 10_000
# A hundred robots with a hundred projects each, and what they may do there.
MAX_VALUES = 500_000
# The last second that Python knows, less a day for zones.
LAST_SECOND = 253_402_214_400


class HarborObject(BaseModel):
    """Any object."""

    model_config = ConfigDict(extra="allow", frozen=True, strict=True)


def _time(text: str) -> str:
    if datetime.fromisoformat(text).tzinfo is None:
        raise ValueError("a time without a zone")
    return text


def _part(name: str) -> str:
    if name in (".", ".."):
        raise ValueError("a name that leads to another path")
    return name


def _json(model: Any) -> Callable[[str], str]:
    """Text that is empty, or JSON of this kind."""
    adapter = TypeAdapter(model)

    def check(text: str) -> str:
        if text:
            adapter.validate_json(text)
        return text

    return check


Number = Annotated[int, Field(ge=0, le=2**63 - 1)]
# It may become a part of a path.
Name = Annotated[str, Field(min_length=1, max_length=1024), AfterValidator(_part)]
Time = Annotated[str, Field(max_length=100), AfterValidator(_time)]


class MetadataAnswer(HarborObject):
    """A project's, whose values are all texts: who administers one project decides what they are."""

    severity: str | None = None
    retention_id: str | None = None
    max_upstream_conn: str | None = None


class ProjectAnswer(HarborObject):
    """A project."""

    project_id: Number
    name: Name
    registry_id: Number | None = None
    metadata: MetadataAnswer | None = None


class _Hard(HarborObject):
    storage: Annotated[int, Field(ge=-1, le=2**63 - 1)] = -1


class _Reference(HarborObject):
    id: Number


class QuotaAnswer(HarborObject):
    """A project's quota."""

    id: Number
    ref: _Reference | None = None
    hard: _Hard | None = None


class SelectorAnswer(HarborObject):
    """A pattern of tags or repositories."""

    kind: str | None = None
    decoration: str | None = None
    extras: str | None = None


class _Rule(HarborObject):
    tag_selectors: list[SelectorAnswer] | None = None
    scope_selectors: dict[str, list[SelectorAnswer]] | None = None


class RetentionRuleAnswer(_Rule):
    """Which tags are kept."""

    template: str
    params: dict[str, Any] | None = None


class _RetentionTrigger(HarborObject):
    settings: dict[str, Any] | None = None


class RetentionAnswer(HarborObject):
    """A project's retention policy."""

    rules: list[RetentionRuleAnswer] | None = None
    trigger: _RetentionTrigger | None = None


class ImmutableRuleAnswer(_Rule):
    """Which tags cannot be changed."""

    id: Number


class _Access(HarborObject):
    resource: str
    action: str
    effect: str | None = None


class _Permission(HarborObject):
    kind: str
    namespace: str
    access: list[_Access] | None = None


class CreatedRobotAnswer(HarborObject):
    """A robot as it is told once."""

    id: Number
    name: Name
    creation_time: Time


class RobotAnswer(CreatedRobotAnswer):
    """A robot account."""

    level: str
    editable: bool | None = None
    disable: bool | None = None
    duration: int | None = None
    expires_at: Annotated[int, Field(ge=-1, le=LAST_SECOND)] = -1
    permissions: list[_Permission] | None = None


class _Credential(HarborObject):
    access_key: str | None = None
    access_secret: str | None = None


class EndpointAnswer(HarborObject):
    """An upstream registry."""

    id: Number
    name: Name
    type: str
    url: str
    ca_certificate: str | None = None
    credential: _Credential | None = None


class _CronSettings(HarborObject):
    cron: str | None = None


class _ReplicationTrigger(HarborObject):
    type: str = "manual"
    trigger_settings: _CronSettings | None = None


class _ReplicationFilter(HarborObject):
    type: str
    # A list is one of texts.
    value: list[str] | str | bool | int | float | dict[str, Any] | None = None
    decoration: str | None = None


class _EndReference(HarborObject):
    id: Number | None = None


class ReplicationAnswer(HarborObject):
    """A replication policy."""

    id: Number
    name: Name
    src_registry: _EndReference | None = None
    dest_registry: _EndReference | None = None
    trigger: _ReplicationTrigger | None = None
    filters: list[_ReplicationFilter] | None = None


class PreheatInstanceAnswer(HarborObject):
    """A network for preheating."""

    id: Number
    name: Name
    vendor: str
    endpoint: str


class _PreheatFilter(HarborObject):
    type: str
    value: Any


class _PreheatTrigger(HarborObject):
    trigger_setting: dict[str, Any] | None = None


class PreheatPolicyAnswer(HarborObject):
    """What is preheated. Its filters and trigger are JSON within JSON."""

    id: Number
    name: Name
    provider_id: Number | None = None
    filters: Annotated[str, AfterValidator(_json(list[_PreheatFilter] | None))] | None = None
    trigger: Annotated[str, AfterValidator(_json(_PreheatTrigger | None))] | None = None


class _Cron(HarborObject):
    type: str | None = None
    cron: str | None = None


class ScheduleAnswer(HarborObject):
    """When something is done; ``job_parameters`` is JSON within JSON."""

    schedule: _Cron | None = None
    job_parameters: Annotated[str, AfterValidator(_json(dict[str, Any] | None))] | None = None


class _Switch(HarborObject):
    value: bool | None = None


class _Text(HarborObject):
    value: str | None = None


class ConfigurationAnswer(HarborObject):
    """How Harbor is configured, as far as it matters here."""

    robot_name_prefix: _Text | None = None
    quota_per_project_enable: _Switch | None = None
    read_only: _Switch | None = None


class _HarborErrorEntry(HarborObject):
    message: str


class ErrorsAnswer(HarborObject):
    """Why a request was not served."""

    errors: list[_HarborErrorEntry]


def read(model: type[HarborObject], raw: bytes) -> dict[str, Any]:
    """One object. Raises UnreadableError."""
    found = read_document(model.model_validate_json, raw, MAX_VALUES).model_dump(exclude_unset=True)
    _require_json(found)
    return found


def read_list(model: type[HarborObject], raw: bytes) -> list[dict[str, Any]]:
    """A list of objects; null is an empty one. Raises UnreadableError."""
    objects: list[HarborObject] = read_document(_list_of(model).validate_json, raw, MAX_VALUES) or []
    found = [one.model_dump(exclude_unset=True) for one in objects]
    _require_json(found)
    return found


def _require_json(found: Any) -> None:
    """Raises UnreadableError for NaN and numbers that are read as infinite: they cannot be returned."""
    try:
        json.dumps(found, allow_nan=False)
    except ValueError:
        raise UnreadableError("a number in it is not finite") from None


def read_count(text: str) -> int | None:
    """How many objects a list has in all, as a header says; None where it is not a number."""
    return int(text) if re.fullmatch(r"[0-9]{1,9}", text, re.ASCII) else None


@cache
def _list_of(model: type[HarborObject]) -> TypeAdapter[Any]:
    items: Any = Annotated[list[model], Field(max_length=MAX_ITEMS, fail_fast=True)]  # type: ignore[valid-type]
    return TypeAdapter(items | None)
