"""Patterns of tags and repositories, as retention and immutable tags have them."""

from __future__ import annotations

import json
from typing import Any

from pydantic_core import from_json


def selector(pattern: str, matches: str, excludes: str, extras: str = "") -> dict[str, Any]:
    """A pattern in Harbor's words; one that starts with ``!`` excludes."""
    decoration = excludes if pattern.startswith("!") else matches
    made = {"kind": "doublestar", "decoration": decoration, "pattern": pattern.removeprefix("!")}
    return {**made, "extras": extras} if extras else made


def of_tags(pattern: str, *, untagged: bool | None = None) -> dict[str, Any]:
    """A selector of tags; ``untagged`` says whether artifacts without one are meant too."""
    extras = "" if untagged is None else json.dumps({"untagged": untagged}, separators=(",", ":"))
    return selector(pattern, "matches", "excludes", extras)


def of_repositories(pattern: str) -> dict[str, list[dict[str, Any]]]:
    """A selector of repositories."""
    return {"repository": [selector(pattern, "repoMatches", "repoExcludes")]}


def pattern(selectors: Any) -> str:
    """The pattern of a lone selector; anything else as Harbor's own JSON, which equals no pattern of ours."""
    if isinstance(selectors, dict):
        selectors = (
            selectors.get("repository") if list(selectors) == ["repository"] else [selectors, selectors]
        )
    if not isinstance(selectors, list) or len(selectors) != 1 or selectors[0].get("kind") != "doublestar":
        return json.dumps(selectors, sort_keys=True)
    one = selectors[0]
    return ("!" if "xcludes" in (one.get("decoration") or "") else "") + str(one.get("pattern", ""))


def keeps_untagged(selectors: Any) -> bool:
    """Whether a selector of tags means untagged artifacts, too; the default depends on the decoration."""
    one = selectors[0] if selectors else {}
    try:
        return bool(from_json(one.get("extras") or "")["untagged"])
    except (ValueError, KeyError, TypeError):
        return one.get("decoration") != "excludes"
