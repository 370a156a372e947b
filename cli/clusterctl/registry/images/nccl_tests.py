"""nccl-tests in a site's own image: where its source comes from, and what the build needs of it."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from clusterctl.cluster.bounded_file import UnusableFileError, describe_unusable, read_bounded
from clusterctl.cluster.user_path import user_path

FILE = "nccl-tests.tar.gz.base64"
SCRIPT = "build-nccl-tests.sh"
URL = re.compile(r"https?://[^\s@'\"\\\\$`;&|<>()]+")
SHA256 = re.compile(r"[0-9a-f]{64}")
LARGEST = 16 * 1024 * 1024  # its archive has some 100 kB


class NotDeclaredWellError(Exception):
    """The declaration is not as it must be; the message says why."""


class UnpinnedSourceError(NotDeclaredWellError):
    """What would be fetched is not known beforehand; the message says why."""


@dataclass(frozen=True)
class NcclTests:
    """A pinned source: ``url`` for the build to fetch, or ``content`` of a file of this machine."""

    sha256: str
    url: str = ""
    content: bytes = b""

    @property
    def file(self) -> str:
        """The name of the source in the build; empty where it is fetched."""
        return FILE if self.content else ""

    def context(self) -> dict[str, str]:
        """The files that the build takes."""
        templates = files("clusterctl.registry.images") / "templates"
        written = {SCRIPT: (templates / SCRIPT).read_text(encoding="utf-8")}
        if self.content:
            written[FILE] = base64.encodebytes(self.content).decode("ascii")
        return written


def nccl_tests(record: Mapping[str, Any], root: Path) -> NcclTests | None:
    """What is declared: ``source`` (a URL, or a file from the cluster directory on) and ``sha256``.

    None where it is not declared. Raises NotDeclaredWellError, also where the file has another checksum.
    """
    source, sha256 = str(record.get("source") or ""), str(record.get("sha256") or "")
    if not source and not sha256:
        return None
    if not SHA256.fullmatch(sha256):
        raise UnpinnedSourceError("nccl_tests requires the sha256 of its source, 64 digits")
    if URL.fullmatch(source):
        if not source.startswith("https://"):
            raise UnpinnedSourceError(f"the source of nccl_tests is not an https URL: {source}")
        return NcclTests(sha256, url=source)
    if "://" in source or not source:
        raise NotDeclaredWellError("nccl_tests needs a source: a URL without a password, or a file")
    try:
        content = read_bounded(root / user_path(source), LARGEST)
    except (OSError, UnusableFileError) as error:
        raise NotDeclaredWellError(
            f"the source of nccl_tests cannot be read: {describe_unusable(error)}"
        ) from None
    if hashlib.sha256(content).hexdigest() != sha256:
        raise NotDeclaredWellError(f"{source} is not the archive with this sha256")
    return NcclTests(sha256, content=content)
