"""What the tests in a pseudo-terminal share: a program in one, and its screen emulated."""

from __future__ import annotations

import os
import termios
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pexpect
import pyte

WAIT_S = 60
SIZES = [(80, 24), (60, 20), (200, 50)]


class Watched(pyte.HistoryScreen):
    """A screen that knows how often a line was wrapped, and whether the cursor was ever hidden."""

    def __init__(self, columns: int, lines: int) -> None:
        self.hidden_once, self.wraps, self._drawing = False, 0, False
        super().__init__(columns, lines, history=10_000)

    def draw(self, data: str) -> None:
        self._drawing = True
        super().draw(data)
        self._drawing = False

    def linefeed(self) -> None:
        self.wraps += self._drawing
        super().linefeed()

    def reset_mode(self, *modes: int, **options: Any) -> None:
        super().reset_mode(*modes, **options)
        self.hidden_once |= self.cursor.hidden

    def text(self) -> list[str]:
        """The screen's lines without what is blank at their ends, down to the last that is not."""
        lines = [line.rstrip() for line in self.display]
        while lines and not lines[-1]:
            lines.pop()
        return lines

    def everything(self) -> list[str]:
        """What has scrolled away, and the screen."""
        gone = ["".join(row[x].data for x in range(self.columns)).rstrip() for row in self.history.top]
        return gone + self.text()


@dataclass
class Terminal:
    """The program in a terminal of a size; ``raw`` is every byte that it wrote."""

    child: pexpect.spawn
    screen: Watched
    modes: list[Any]
    raw: bytearray = field(default_factory=bytearray)

    def until(self, what: Callable[[Watched], bool]) -> None:
        """Feed the screen until it shows what is waited for, and no more comes at that moment."""
        stream, deadline = pyte.ByteStream(self.screen), time.monotonic() + WAIT_S
        while True:
            before = len(self.raw)
            assert self._feed(stream), "\n".join(self.screen.text())
            if len(self.raw) == before and what(self.screen):
                return
            assert time.monotonic() < deadline, "\n".join(self.screen.text())

    def ended(self) -> int:
        """Feed the screen until the program has ended; its exit code."""
        stream, deadline = pyte.ByteStream(self.screen), time.monotonic() + WAIT_S
        while self._feed(stream):
            assert time.monotonic() < deadline, "\n".join(self.screen.text())
        self.child.wait()
        return self.child.exitstatus

    def _feed(self, stream: pyte.ByteStream) -> bool:
        try:
            chunk = self.child.read_nonblocking(1 << 16, 0.1)
        except pexpect.TIMEOUT:
            return True
        except pexpect.EOF:
            return False
        self.raw += chunk
        stream.feed(chunk)
        return True


def modes_of_a_new_terminal() -> list[Any]:
    """Of one that no program has touched: the program may be quicker than who asks for those of its own."""
    ours, its = os.openpty()
    try:
        return termios.tcgetattr(its)
    finally:
        os.close(ours)
        os.close(its)


def begun(argv: Sequence[str], size: tuple[int, int], **environment: str) -> Terminal:
    """A program in a terminal of that size; of what a screen goes by, its environment has this alone."""
    clean = {k: v for k, v in os.environ.items() if k not in ("CI", "NO_COLOR", "COLUMNS", "LINES")}
    given = {**clean, "TERM": "xterm-256color", **environment}
    child = pexpect.spawn(argv[0], list(argv[1:]), env=given, dimensions=(size[1], size[0]), timeout=WAIT_S)
    return Terminal(child, Watched(*size), modes_of_a_new_terminal())


def is_whole(screen: Watched, title: str) -> bool:
    """Whether there is one headline, and the cursor is at the start of a line."""
    return screen.cursor.x == 0 and len(headlines(screen, title)) == 1


def headlines(screen: Watched, title: str) -> list[int]:
    """The numbers of the lines that start with the title."""
    return [number for number, line in enumerate(screen.display) if line.startswith(f"{title} ·")]


def picture(screen: Watched, title: str) -> list[str]:
    """The lines that are redrawn: from the one headline down to the cursor, which is below them."""
    lines = [line.rstrip() for line in screen.display]
    heads = headlines(screen, title)
    assert len(heads) == 1, "\n".join(lines)
    drawn = lines[heads[0] : screen.cursor.y]
    assert screen.cursor.x == 0
    assert all(drawn)
    assert not any(lines[screen.cursor.y :])
    return drawn
