"""Where words go: results to standard output, messages to standard error."""

from __future__ import annotations

import json
import os
import sys
import textwrap
from collections.abc import Mapping
from typing import IO, Any

from rich.console import Console
from rich.text import Text

from clustercheck.errors import ExplainedError
from clustercheck.parse.plain_text import plain_text

# A hanging text in a window that is narrower is broken by the terminal.
LEAST_WRAPPED = 20


def is_plain() -> bool:
    """Whether text alone is wanted, without a single control character: NO_COLOR, CI or a dumb terminal."""
    return any(map(os.environ.get, ("NO_COLOR", "CI"))) or os.environ.get("TERM") in ("dumb", "unknown")


class Lasting(Console):
    """A console whose reader may go away (| head, a lost terminal): what is said then goes nowhere.

    Work continues. On a terminal lines are broken between words; elsewhere they stay whole.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(highlight=False, color_system=None if is_plain() else "auto", **options)

    def print(self, *objects: Any, **options: Any) -> None:
        """As rich's own, except a terminal that has gone."""
        try:
            super().print(*objects, **{"soft_wrap": not self.is_terminal, **options})
        except OSError:
            redirect_to_devnull(self.file)

    def on_broken_pipe(self) -> None:
        """Not rich's own answer, which ends the program in the middle of its work."""
        redirect_to_devnull(self.file)


RESULTS = Lasting()
MESSAGES = Lasting(stderr=True)


def is_live() -> bool:
    """True where a person watches a terminal: progress may redraw; else it is plain lines."""
    return sys.stderr.isatty() and not is_plain()


def has_colours() -> bool:
    """Whether results may be coloured."""
    return RESULTS.is_terminal and not is_plain()


def say(message: str) -> None:
    """One message for the person, on standard error."""
    tell(message)


def emit(record: Mapping[str, Any]) -> None:
    """One JSON object on one line of standard output, for --json."""
    write(json.dumps(record, sort_keys=False, default=str) + "\n")


def write(text: str) -> None:
    """Text as it is, on standard output; a reader that has gone is not a reason to stop, nor to fail."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        redirect_to_devnull(sys.stdout)


def redirect_to_devnull(stream: IO[str]) -> None:
    """From now on what is written to ``stream``, and what it still holds, is dropped."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def explain(error: ExplainedError) -> None:
    """Print an error as what / where / hint, with its stable code."""
    more = (("where:", error.where), ("hint: ", error.hint))
    tell(f"error: {error.what}", *more, style="bold red")
    MESSAGES.print(Text(f"  code:  {error.code}", style="dim"))


def tell(what: str, *more: tuple[str, str], style: str = "") -> None:
    """A message, and what belongs to it: each of ``more`` is a word and its text, left out without one.

    On a terminal lines are broken between words, never in a path, and texts continue below their beginning.
    """
    MESSAGES.print(Text(_wrapped(plain_text(what)), style=style), soft_wrap=True)
    for word, text in more:
        if text:
            head = f"  {word} " if word else "  "
            MESSAGES.print(Text(head + _wrapped(plain_text(text), len(head))), soft_wrap=True)


def _wrapped(text: str, indent: int = 0) -> str:
    if not MESSAGES.is_terminal:
        return text
    width = max(LEAST_WRAPPED, MESSAGES.width - indent)
    lines = [
        part
        for line in text.split("\n")
        for part in textwrap.wrap(
            line, width, break_long_words=False, break_on_hyphens=False, replace_whitespace=False
        )
        or [""]
    ]
    return f"\n{' ' * indent}".join(lines)
