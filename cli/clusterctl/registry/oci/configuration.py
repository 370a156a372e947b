"""An image's configuration: what of it is read here."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from clusterctl.registry.oci.answers import ExactAnswer, LongText
from clusterctl.registry.oci.manifest import MAX_LAYERS, Platform

MAX_ENTRIES = 10_000


class _Container(ExactAnswer):
    Labels: Annotated[dict[LongText, LongText], Field(max_length=MAX_ENTRIES)] | None = None
    Env: (
        Annotated[tuple[LongText, ...], Field(max_length=MAX_ENTRIES, fail_fast=True, strict=False)] | None
    ) = None
    OnBuild: (
        Annotated[tuple[LongText, ...], Field(max_length=MAX_ENTRIES, fail_fast=True, strict=False)] | None
    ) = None


class _RootFs(ExactAnswer):
    diff_ids: (
        Annotated[tuple[LongText, ...], Field(max_length=MAX_LAYERS, fail_fast=True, strict=False)] | None
    ) = None


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
    def build_triggers(self) -> tuple[str, ...]:
        """Instructions (ONBUILD) that an engine runs in a build on the image."""
        return (self.config and self.config.OnBuild) or ()

    @property
    def diff_ids(self) -> tuple[str, ...]:
        """Digests of the layers, unpacked."""
        return (self.rootfs and self.rootfs.diff_ids) or ()
