"""Where words go: results to standard output, messages to standard error.

Nothing that acts on a terminal leaves here but our own styles: what nodes and registries say is cleaned at
this last step, whoever prints it, and is never read as markup.
"""

from __future__ import annotations

import errno
import io
import json
import os
import select
import stat
import sys
import textwrap
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from clustercheck.errors import ExplainedError
from clustercheck.parse.plain_text import one_line, plain_text

if TYPE_CHECKING:
    from typing_extensions import Buffer

# A hanging text in a window that is narrower is broken by the terminal.
LEAST_WRAPPED = 20


def is_plain() -> bool:
    """Whether text alone is wanted, without a single control character: NO_COLOR, CI or a dumb terminal."""
    return any(map(os.environ.get, ("NO_COLOR", "CI"))) or os.environ.get("TERM") in ("dumb", "unknown")


class CleanConsole(Console):
    """On a terminal lines are broken between words; elsewhere they stay whole. Text is shown as it is: markup
    in it is not read, and control characters are omitted."""

    def __init__(self, **options: Any) -> None:
        colours = {"color_system": None if is_plain() else "auto", **options}
        super().__init__(highlight=False, markup=False, emoji=False, **colours)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """As rich's own, cleaned: a text before it is laid out, and each piece of what came of it."""
        for segment in super().render(without_controls(renderable), options):
            yield segment if segment.control else segment._replace(text=plain_text(segment.text))

    def print(self, *objects: Any, **options: Any) -> None:
        """As rich's own."""
        super().print(*objects, **{"soft_wrap": not self.is_terminal, **options})


def without_controls(renderable: RenderableType) -> RenderableType:
    """A text without what would act on a terminal; all else as it is."""
    if isinstance(renderable, str):
        return plain_text(renderable)
    return plain_styled(renderable) if isinstance(renderable, Text) else renderable


def plain_styled(text: Text) -> Text:
    """The same for a styled text; if anything was removed, without the styles of its parts, which moved."""
    cleaned = plain_text(text.plain)
    return text if cleaned == text.plain else text.blank_copy(cleaned)


class Lossy(io.FileIO):
    """A descriptor that takes everything: what cannot be written is dropped, and work continues.

    The reader may have gone (| head, a lost terminal), or the disk be full: ``lost`` is the first error.
    """

    lost: OSError | None = None

    def write(self, piece: Buffer, /) -> int:
        """As io's own, but waits for a reader that does not keep up where others made the descriptor
        non-blocking."""
        while self.lost is None:
            try:
                if (written := super().write(piece)) is not None:
                    return written
                select.select([], [self], [])
            except OSError as error:
                self.lost = error
        return memoryview(piece).nbytes


def prepare_output() -> None:
    """From now on what cannot be written is dropped, and standard output shows what its encoding lacks as an
    escape, as standard error does."""
    for name in ("stdout", "stderr"):
        given = getattr(sys, name)
        if given is None:  # it is closed
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115 - till we end
        elif isinstance(given, io.TextIOWrapper):
            given.flush()
            lossy = Lossy(given.fileno(), "w", closefd=False)
            stream = io.TextIOWrapper(
                io.BufferedWriter(lossy), given.encoding, "backslashreplace",
                line_buffering=given.line_buffering or given.write_through,
            )  # fmt: skip
            setattr(sys, name, stream)


def lost_result() -> str:
    """Why standard output is not whole; empty where it is, or where nobody reads it any more."""
    buffer = getattr(sys.stdout, "buffer", None)
    raw = getattr(buffer, "raw", None)
    if not isinstance(raw, Lossy):
        return ""
    sys.stdout.flush()
    # EIO is a terminal that has gone; of a file it is a disk that fails.
    is_file = stat.S_ISREG(os.fstat(raw.fileno()).st_mode)
    if raw.lost is None or raw.lost.errno in ((errno.EPIPE,) if is_file else (errno.EPIPE, errno.EIO)):
        return ""
    return str(raw.lost.strerror)


RESULTS = CleanConsole()
MESSAGES = CleanConsole(stderr=True)


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
    write_rendered(line.replace("\x7f", "\\u007f") + "\n")


def write(text: str) -> None:
    """Text on standard output, unbroken, without control characters."""
    write_rendered(plain_text(text))


def write_rendered(text: str) -> None:
    """What a console of ours has rendered, or json has escaped, as it is."""
    sys.stdout.write(text)
    sys.stdout.flush()


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
