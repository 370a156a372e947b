"""Words and shapes that all parts of the report share."""

from __future__ import annotations

Tree = list[tuple[str, "str | Tree"]]
NA = "N/A"
DEPRECATED = "Requested functionality has been deprecated"


def pair(name: str, current: bool, pending: bool) -> Tree:
    """A mode now and after the next reset."""
    return [(f"current_{name}", enabled(current)), (f"pending_{name}", enabled(pending))]


def enabled(value: bool) -> str:
    """A switch in words."""
    return "Enabled" if value else "Disabled"


def yes(value: bool) -> str:
    """A truth in words."""
    return "Yes" if value else "No"
