"""An image's configuration: what of it is read here."""

from __future__ import annotations

import json
from typing import Annotated, Any

from pydantic import Field

from clustercheck.parse.plain_text import one_line
from clusterctl.registry.oci.answers import LONG_TEXT, LongText, RegistryAnswer
from clusterctl.registry.oci.manifest import MAX_LAYERS, Platform

MAX_ENTRIES = 10_000


class _Container(RegistryAnswer):
    Labels: Annotated[dict[LongText, LongText], Field(max_length=MAX_ENTRIES)] | None = None
    Env: Annotated[tuple[LongText, ...], Field(max_length=MAX_ENTRIES, fail_fast=True)] | None = None


class _RootFs(RegistryAnswer):
    diff_ids: Annotated[tuple[LongText, ...], Field(max_length=MAX_LAYERS, fail_fast=True)] | None = None


class ImageConfiguration(Platform):
    """The document that a manifest names as its ``config``."""

    config: _Container | None = None
    rootfs: _RootFs | None = None

    @property
    def labels(self) -> dict[str, str]:
        """The image's labels."""
        return (self.config and self.config.Labels) or {}

    @property
    def environment(self) -> tuple[str, ...]:
        """Lines ``NAME=VALUE``."""
        return (self.config and self.config.Env) or ()

    @property
    def diff_ids(self) -> tuple[str, ...]:
        """Digests of the layers, unpacked."""
        return (self.rootfs and self.rootfs.diff_ids) or ()


def build_triggers(raw: bytes) -> tuple[str, ...]:
    """Instructions (ONBUILD) that an engine runs in a build on the image; ``raw`` has been read already.

    Engines match names without case, and merge members of one name: the model knows one of them.
    """
    document = json.loads(raw, object_pairs_hook=_by_lower_name)
    members = [
        one for config in document["config"] if isinstance(config, _Members) for one in config["onbuild"]
    ]
    triggers = [line for one in members if one for line in (one if isinstance(one, list) else [one])]
    return tuple(one_line(str(line), LONG_TEXT) for line in triggers[:MAX_ENTRIES])


class _Members(dict[str, list[Any]]):
    """An object's members by their names in lower case, all of each."""

    def __missing__(self, name: str) -> list[Any]:
        return []


def _by_lower_name(pairs: list[tuple[str, Any]]) -> _Members:
    found = _Members()
    for name, value in pairs:
        found.setdefault(name.lower(), []).append(value)
    return found
