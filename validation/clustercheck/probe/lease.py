"""Whose apply changes the node now."""

from __future__ import annotations

import json

from clustercheck.probe.programs import read

# Where clusterctl puts it: root's alone, and on the disk.
LEASE = "/root/.clusterctl/lease.json"
SAID = ("run", "what", "who", "where", "since")


def lease(path: str = LEASE) -> dict[str, str] | None:
    """The run that holds this node, None if none does. An unreadable lease counts as held."""
    text = read(path)
    if text is None:
        return None
    try:
        answer = dict(json.loads(text))
    except (ValueError, TypeError):
        answer = {}
    return {key: str(answer.get(key) or "unknown") for key in SAID}


def holder(held: dict[str, str]) -> str:
    """The same in words."""
    return "held by run {run} ({what}) of {who} on {where}, since {since}".format(**held)
