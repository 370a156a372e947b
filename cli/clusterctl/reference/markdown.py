"""The little Markdown that the pages are made of."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def page(title: str, *parts: str) -> str:
    """A whole page: title, who made it, and its parts with an empty line between."""
    made = "<!-- Made from the code by script/reference. Change the code, not this page. -->"
    return "\n\n".join([f"# {title}", made, *(part.strip("\n") for part in parts if part)]) + "\n"


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; empty if there are no rows."""
    lines = ["| " + " | ".join(cell(text) for text in row) + " |" for row in rows]
    if not lines:
        return ""
    return "\n".join(["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads), *lines])


def cell(text: str) -> str:
    """Text that fits into one cell of a table."""
    return " ".join(text.split()).replace("|", "\\|")


def code(text: str) -> str:
    """Words of a program."""
    return f"`{text}`"


def bullets(sentences: Iterable[str]) -> str:
    """A list."""
    return "\n".join(f"- {sentence}" for sentence in sentences)
