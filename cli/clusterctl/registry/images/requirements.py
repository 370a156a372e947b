"""Python packages of a build: each in one version and with hashes, as pip's --require-hashes takes them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from clusterctl.cluster.bounded_file import UnusableFileError, describe_unusable, read_trusted
from clusterctl.cluster.user_path import user_path
from clusterctl.registry.images.nccl_tests import NotDeclaredWellError, UnpinnedSourceError

NAME = r"[A-Za-z0-9][A-Za-z0-9._-]*(\[[A-Za-z0-9._,-]+\])?"
# Each word once, with one space before it: what can be divided in several ways takes time without end.
MARKER = r"( ?; ?[A-Za-z0-9_.<>=!~'\"(),-]+(?: [A-Za-z0-9_.<>=!~'\"(),-]+)*?)?"
PINNED = re.compile(rf"({NAME})==([A-Za-z0-9.+!_-]+){MARKER}( --hash=sha256:[0-9a-f]{{64}})+")
# Words that pip would take, of which nobody can say what they will bring.
UNPINNED = re.compile(rf"{NAME}([<>=!~]=?[A-Za-z0-9.*+!,<>=~_-]+)?{MARKER}( --hash=[a-z0-9]+:[0-9a-f]+)*")
LARGEST = 4 * 1024 * 1024
MAX_LINE = 1 << 16  # some hundred hashes
SHOWN = 60


def read_requirements(lines: Iterable[str], file: str, root: Path) -> tuple[str, ...]:
    """What is declared in the settings, then what a file has that they name.

    Raises NotDeclaredWellError, and UnpinnedSourceError for a package without its version or hashes.
    """
    declared = [" ".join(filter(None, line.split(" "))) for line in lines]
    found = [*declared, *_lines_of(root / user_path(file), root)] if file else declared
    for line in found:
        if len(line) <= MAX_LINE and PINNED.fullmatch(line):
            continue
        shown = repr(line if len(line) <= SHOWN else line[:SHOWN] + "...")
        if len(line) <= MAX_LINE and UNPINNED.fullmatch(line):
            raise UnpinnedSourceError(f"{shown} has not one version (==) with the hashes of its wheels")
        raise NotDeclaredWellError(f"requirements are not as they must be: {shown}")
    return tuple(found)


def versions(requirements: Iterable[str]) -> tuple[str, ...]:
    """NAME==VERSION of each, for the image's label."""
    return tuple(re.split("[ ;]", line, maxsplit=1)[0] for line in requirements)


def has(requirements: Iterable[str], name: str, version: str) -> bool:
    """Whether one of them is this package in this version."""
    return f"{name}=={version}" in {re.sub(r"\[.*\]", "", one).lower() for one in versions(requirements)}


def _lines_of(file: Path, root: Path) -> list[str]:
    """The requirements of a file that `pip-compile --generate-hashes` or `uv pip compile` wrote."""
    try:
        text = read_trusted(file, root, LARGEST).decode()
    except (OSError, UnusableFileError) as error:
        raise NotDeclaredWellError(f"requirements_file cannot be read: {describe_unusable(error)}") from None
    except UnicodeDecodeError as error:
        raise NotDeclaredWellError(f"requirements_file cannot be read: {error}") from None
    lines = text.replace("\\\r\n", " ").replace("\\\n", " ").splitlines()
    words = (" ".join(re.sub(r"(^|\s)#.*", "", line).split()) for line in lines)
    return [line for line in words if line]
