"""The question before a change."""

from __future__ import annotations

import sys

from clusterctl import console


def agreed(question: str, *, yes: bool) -> bool:
    """Whether the person agrees; without a terminal only ``yes`` does."""
    if yes:
        return True
    if not sys.stdin.isatty():
        console.say(f"{question} There is no terminal to ask on: give --yes, or --expect for a key.")
        return False
    return console.confirm(question)
