"""Lines at the lower end of a terminal that are redrawn in place; what is printed meanwhile goes above them.

rich's own Live repaints every line each time, and leaves rubbish behind in a window that was made narrower,
since the terminal has folded its lines. This one writes only lines that changed, never a line that could
wrap, hides no cursor and starts no thread.
"""

from __future__ import annotations

import contextlib
import math
import os
import signal
from collections.abc import Sequence
from types import FrameType

from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderHook, RenderResult
from rich.control import Control
from rich.segment import ControlType, Segment
from rich.text import Text

from clusterctl.console import plain_styled
from clusterctl.keyboard import unechoed

# What a terminal is taken for that does not know its own size, in columns and lines.
USUAL_SIZE = (80, 24)
# A window that is narrower draws nothing that could be read.
LEAST_COLUMNS = 20


class LiveArea(RenderHook):
    """The lines of one console. Main thread, or one thread at a time."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._shown: list[Text] = []
        self._columns = 0
        self._painting = False
        self._opened = contextlib.ExitStack()

    @property
    def size(self) -> tuple[int, int]:
        """Columns and lines that may be drawn on: the last column and the last line stay free."""
        columns, lines = _window(self._console)
        return max(columns, LEAST_COLUMNS) - 1, lines - 1

    def open(self) -> None:
        """Take the lower end of the terminal."""
        self._opened.enter_context(unechoed())
        before = signal.signal(signal.SIGCONT, self._went_on)
        self._opened.callback(signal.signal, signal.SIGCONT, before)
        self._console.push_render_hook(self)
        self._opened.callback(self._console.pop_render_hook)

    def draw(self, lines: Sequence[Text]) -> None:
        """Show these lines instead of what is shown; each fits ``size``, or is cut."""
        columns, room = self.size
        wanted = [_fitting(line, columns) for line in lines[: max(0, room)]]
        if self._shown and columns != self._columns:
            self._print(_Erased(self._rows_shown(columns)), _Painted(wanted))
        elif wanted != self._shown:
            self._print(_Painted(wanted, self._shown))
        self._shown, self._columns = wanted, columns

    def close(self) -> None:
        """Give the terminal back, with the cursor where the lines started."""
        self.draw([])
        self._opened.close()

    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        """Whatever is printed takes the place of the lines, and these follow it."""
        if self._painting or not self._shown:
            return renderables
        columns, _ = self.size
        erased = _Erased(self._rows_shown(columns))
        self._shown = [_fitting(line, columns) for line in self._shown]
        self._columns = columns
        return [erased, *renderables, _Painted(self._shown)]

    def _print(self, *renderables: ConsoleRenderable) -> None:
        self._painting = True
        try:
            self._console.print(*renderables, sep="", end="")
        finally:
            self._painting = False

    def _rows_shown(self, columns: int) -> int:
        """How many rows the lines take in a window of now ``columns``: terminals fold what is too long."""
        return sum(max(1, math.ceil(line.cell_len / (columns + 1))) for line in self._shown)

    def _went_on(self, _number: int, _frame: FrameType | None) -> None:
        """After Ctrl-Z and fg the shell's words stand where we drew: start below them."""
        self._shown = []


class _Erased:
    """Nothing, from so many rows above the cursor on."""

    def __init__(self, rows: int) -> None:
        self._rows = rows

    def __rich_console__(self, _console: Console, _options: ConsoleOptions) -> RenderResult:
        yield _up(self._rows)
        yield _control("\x1b[J")


class _Painted:
    """Lines, from the cursor on; those that stand there already are passed over."""

    def __init__(self, lines: Sequence[Text], shown: Sequence[Text] = ()) -> None:
        self._lines = lines
        self._shown = shown

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield _up(len(self._shown))
        for number, line in enumerate(self._lines):
            if number >= len(self._shown) or line != self._shown[number]:
                yield from console.render(line, options)
                yield _control("\x1b[K")
            yield Segment.line()
        if len(self._lines) < len(self._shown):
            yield _control("\x1b[J")


def _up(rows: int) -> Control:
    return Control(ControlType.CARRIAGE_RETURN, *([(ControlType.CURSOR_UP, rows)] if rows else []))


def _control(code: str) -> Segment:
    return Segment(code, None, [(ControlType.ERASE_IN_LINE, 0)])


def _fitting(line: Text, columns: int) -> Text:
    fitting = plain_styled(line).copy()
    fitting.end = ""
    fitting.truncate(columns, overflow="ellipsis")
    return fitting


def _window(console: Console) -> tuple[int, int]:
    """Columns and lines of the console's own terminal, whatever COLUMNS says."""
    with contextlib.suppress(OSError, ValueError):
        columns, lines = os.get_terminal_size(console.file.fileno())
        return columns or USUAL_SIZE[0], lines or USUAL_SIZE[1]
    return USUAL_SIZE
