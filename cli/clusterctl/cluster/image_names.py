"""What the parts of an image's name may be: they become URLs, names of files and lines of a Dockerfile."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator

DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}", re.ASCII)
# https://github.com/opencontainers/distribution-spec/blob/main/spec.md#pulling-manifests
REPOSITORY = re.compile(
    r"(?=.{1,255}\Z)[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*(/[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*)*", re.ASCII
)


def _repository(text: str) -> str:
    if not REPOSITORY.fullmatch(text):
        raise ValueError("it is no path in a registry")
    return text


def _tag(text: str) -> str:
    if text and not TAG.fullmatch(text):
        raise ValueError("it is no tag")
    return text


RepositoryName = Annotated[str, AfterValidator(_repository)]
# Empty where an image has none.
TagName = Annotated[str, AfterValidator(_tag)]
