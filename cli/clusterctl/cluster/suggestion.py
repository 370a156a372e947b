"""What a name that is not known was probably meant to be."""

from __future__ import annotations

from collections.abc import Iterable


def did_you_mean(name: str, known: Iterable[str], cutoff: float = 0.6) -> str:
    """A sentence that names the nearest known word, or nothing. ``cutoff``: as difflib has it."""
    import difflib  # noqa: PLC0415 - only a misspelled name needs it

    close = difflib.get_close_matches(name, list(known), n=1, cutoff=cutoff)
    return f"Did you mean {close[0]}?" if close else ""
