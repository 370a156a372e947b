"""What a person types while lines are redrawn: not echoed into them, and no answer to a later question."""

from __future__ import annotations

import contextlib
import os
import sys
import termios
from collections.abc import Iterator
from typing import Any

_LOCAL_MODES = 3


@contextlib.contextmanager
def unechoed() -> Iterator[None]:
    """Within the block the terminal shows no key that is pressed; Ctrl-C works, what was typed is dropped.

    Does nothing where standard input is not a terminal, or another program has it now.
    """
    before = _modes()
    if before is None:
        yield
        return
    quiet = [*before]
    quiet[_LOCAL_MODES] = before[_LOCAL_MODES] & ~termios.ECHO
    termios.tcsetattr(sys.stdin, termios.TCSADRAIN, quiet)
    try:
        yield
    finally:
        if _modes() is not None:
            termios.tcsetattr(sys.stdin, termios.TCSAFLUSH, before)


def _modes() -> list[Any] | None:
    """The terminal's modes, if there is one and it is ours: to set those of another's would stop us."""
    with contextlib.suppress(OSError, ValueError, termios.error):
        if os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp():
            return termios.tcgetattr(sys.stdin)
    return None
