"""The documented installation takes nothing that the lock does not pin by its hash."""

from __future__ import annotations

import re
import shlex
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

# Options that mean: from the lock by hashes; what is here, built with what the lock has installed; a wheel.
FROM_LOCK = ("--require-hashes", "-r", "requirements.lock")
FROM_CLONE = ("--no-deps", "--no-build-isolation", ".")
FROM_WHEEL = ("--no-deps", "clusterctl-*.whl")


def pip_installs(text: str) -> list[tuple[str, ...]]:
    """The words of each `pip install`, in order."""
    return [tuple(shlex.split(one)) for one in re.findall(r"pip3? install ([^`&|;\n]+)", text)]


def pins(lock: str) -> dict[str, list[tuple[str, int]]]:
    """Versions of each package in a lock, and how many hashes each has."""
    found: dict[str, list[tuple[str, int]]] = {}
    for name, version, rest in re.findall(
        r"^([\w.-]+)==(\S+)([^\n]*\n(?:    [^\n]*\n)*)", lock, re.MULTILINE
    ):
        found.setdefault(canonicalize_name(name), []).append((version, rest.count("--hash=sha256:")))
    return found


@pytest.mark.parametrize("page", ["README.md", "docs/guide.md"])
def test_every_documented_install_is_from_the_lock(page: str, repository: Path) -> None:
    first, second, *more = pip_installs((repository / page).read_text(encoding="utf-8"))
    assert (first, second) == (FROM_LOCK, FROM_CLONE)
    assert set(more) <= {FROM_WHEEL}


def test_no_other_page_installs_otherwise(repository: Path) -> None:
    pages = [repository / "CONTRIBUTING.md", *(repository / "docs").rglob("*.md")]
    assert len(pages) > 10
    for page in pages:
        found = pip_installs(page.read_text(encoding="utf-8"))
        assert set(found) <= {FROM_LOCK, FROM_CLONE, FROM_WHEEL}, page


def test_the_lock_has_all_that_clusterctl_needs_and_is_built_with(repository: Path) -> None:
    project = tomllib.loads((repository / "pyproject.toml").read_text(encoding="utf-8"))
    locked = pins((repository / "requirements.lock").read_text(encoding="utf-8"))
    assert len(locked) > 20
    for package, versions in locked.items():
        assert all(hashes for _, hashes in versions), package
    for line in [*project["project"]["dependencies"], *project["build-system"]["requires"]]:
        wanted = Requirement(line)
        versions = locked[canonicalize_name(wanted.name)]
        assert all(wanted.specifier.contains(version) for version, _ in versions), line
