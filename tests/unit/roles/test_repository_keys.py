"""Sources of packages that roles add have the keys that are pinned, and each key says where it is from."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from tests.support.tree import ROOT

ADDS = {"clusterctl.cluster.apt_source", "clusterctl.cluster.rpm_repository"}
OTHERS = re.compile(r"\b(apt_repository|apt_key|deb822_repository|yum_repository|rpm_key)\b")
PINNED = re.compile(
    r"\{\{ (?P<setting>(?P<role>[a-z_]+?)_(?P<which>repository|epel)_key_fingerprints) "
    r"or \((?P<data>_(?P=role)_(?P=which)_keys) \| map\(attribute='fingerprint'\) \| list\) \}\}"
)


def tasks(role: str) -> Iterator[dict[str, Any]]:
    """Every task of a role, those of blocks too."""
    waiting = [
        task
        for path in sorted((ROOT / "roles" / role / "tasks").glob("*.yml"))
        for task in yaml.safe_load(path.read_text(encoding="utf-8")) or ()
    ]
    while waiting:
        task = waiting.pop()
        yield task
        waiting += [one for part in ("block", "rescue", "always") for one in task.get(part, ())]


SOURCES = [
    (role.name, task["name"], task[module]["key_fingerprints"])
    for role in sorted((ROOT / "roles").iterdir())
    for task in tasks(role.name)
    for module in ADDS & task.keys()
]


def keys(role: str) -> dict[str, list[dict[str, str]]]:
    found = yaml.safe_load((ROOT / "roles" / role / "vars/main.yml").read_text(encoding="utf-8"))
    return {name: value for name, value in found.items() if name.endswith("_keys")}


def test_there_are_sources() -> None:
    assert len(SOURCES) >= 7


@pytest.mark.parametrize(
    ("role", "task", "fingerprints"), SOURCES, ids=[f"{one[0]}: {one[1]}" for one in SOURCES]
)
def test_a_source_has_the_keys_of_the_settings_or_those_that_are_pinned(
    role: str, task: str, fingerprints: str
) -> None:
    found = PINNED.fullmatch(" ".join(fingerprints.split()))
    assert found, fingerprints
    assert found["role"] == role
    assert keys(role)[found["data"]], "no key is pinned"


@pytest.mark.parametrize("role", sorted({role for role, _, _ in SOURCES}))
def test_each_pinned_key_is_whole_and_says_where_it_is_published(role: str) -> None:
    for entries in keys(role).values():
        assert len({one["fingerprint"] for one in entries}) == len(entries)
        for one in entries:
            assert re.fullmatch(r"[0-9A-F]{40}", one["fingerprint"])
            assert one["source"].startswith("https://")


def test_nothing_else_adds_sources() -> None:
    for path in (*(ROOT / "roles").rglob("*.yml"), *(ROOT / "playbooks").rglob("*.yml")):
        assert not OTHERS.search(path.read_text(encoding="utf-8")), path
