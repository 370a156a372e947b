"""Where words go: results to standard output, messages to standard error.

Nothing that acts on a terminal leaves here but our own styles: what nodes and registries say is cleaned at
this last step, whoever prints it, and is never read as markup.
"""

from __future__ import annotations

import io
import json
import os
import sys
import textwrap
from collections.abc import Iterable, Mapping
from typing import IO, Any

import click
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from clustercheck.errors import ExplainedError
from clustercheck.parse.plain_text import one_line, plain_text

# A hanging text in a window that is narrower is broken by the terminal.
LEAST_WRAPPED = 20


def is_plain() -> bool:
    """Whether text alone is wanted, without a single control character: NO_COLOR, CI or a dumb terminal."""
    return any(map(os.environ.get, ("NO_COLOR", "CI"))) or os.environ.get("TERM") in ("dumb", "unknown")


class Lasting(Console):
    """A console whose reader may go away (| head, a lost terminal): what is said then goes nowhere.

    Work continues. On a terminal lines are broken between words; elsewhere they stay whole. Text is shown as
    it is: markup in it is not read, and control characters are omitted.
    """

    def __init__(self, **options: Any) -> None:
        colours = {"color_system": None if is_plain() else "auto", **options}
        super().__init__(highlight=False, markup=False, emoji=False, **colours)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """As rich's own, cleaned: a text before it is laid out, and each piece of what came of it."""
        for segment in super().render(without_controls(renderable), options):
            yield segment if segment.control else segment._replace(text=plain_text(segment.text))

    def print(self, *objects: Any, **options: Any) -> None:
        """As rich's own, except a terminal that has gone."""
        try:
            super().print(*objects, **{"soft_wrap": not self.is_terminal, **options})
        except OSError:
            redirect_to_devnull(self.file)

    def on_broken_pipe(self) -> None:
        """Not rich's own answer, which ends the program in the middle of its work."""
        redirect_to_devnull(self.file)


def without_controls(renderable: RenderableType) -> RenderableType:
    """A text without what would act on a terminal; all else as it is."""
    if isinstance(renderable, str):
        return plain_text(renderable)
    return plain_styled(renderable) if isinstance(renderable, Text) else renderable


def plain_styled(text: Text) -> Text:
    """The same for a styled text; if anything was removed, without the styles of its parts, which moved."""
    cleaned = plain_text(text.plain)
    return text if cleaned == text.plain else text.blank_copy(cleaned)


def take_any_character() -> None:
    """From now on standard output shows what its encoding lacks as an escape, as standard error does."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


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


def confirm(question: str) -> bool:
    """Ask the person on the terminal, on standard error."""
    return click.confirm(one_line(question), err=True)


def emit(record: Mapping[str, Any]) -> None:
    """One JSON object on one line of standard output, for --json: ASCII, with control characters escaped.

    JSON has no infinity and no NaN, which a file that was written by others may hold: they become null.
    """
    try:
        line = json.dumps(record, default=str, allow_nan=False)
    except ValueError:
        read = json.loads(json.dumps(record, default=str), parse_constant=lambda _: None)
        line = json.dumps(read, allow_nan=False)
    write_rendered(line + "\n")


def write(text: str) -> None:
    """Text on standard output, unbroken, without control characters."""
    write_rendered(plain_text(text))


def write_rendered(text: str) -> None:
    """What a console of ours has rendered, or json has escaped, as it is.

    A reader that has gone is not a reason to stop, nor to fail.
    """
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
