"""A validation's progress in a pseudo-terminal; its events are played (validation_player.py)."""

from __future__ import annotations

import re
import sys
import termios
from pathlib import Path

import pytest

from .terminal_screen import SIZES, Terminal, Watched, begun, picture

VALIDATION = Path(__file__).with_name("validation_player.py")
HEAD = re.compile(r"validate · .* 25s$")


def validation(number: int, bad: int, size: tuple[int, int], **environment: str) -> Terminal:
    """A validation of so many nodes, the first of which cannot be reached, in a terminal."""
    return begun([sys.executable, str(VALIDATION), str(number), str(bad)], size, **environment)


def shows_its_last_moment(screen: Watched) -> bool:
    """Whether the picture of 25 s stands there completely: while it is drawn, the cursor is within it."""
    drawn = [line.rstrip() for line in screen.display[: screen.cursor.y]]
    return bool(drawn) and drawn[-1].endswith("done") and any(HEAD.match(line) for line in drawn)


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize(("number", "bad"), [(3, 1), (100, 20)])
def test_a_validation_shows_its_job_since_when_and_for_whom_it_waits(number, bad, size):
    terminal = validation(number, bad, size)
    terminal.until(shows_its_last_moment)
    drawn = picture(terminal.screen, "validate")
    assert drawn[0].startswith(f"validate · quick · {number} nodes")
    assert f"all-reduce across the nodes: {number - bad - 1} of {number - bad} nodes finished" in drawn[1]
    assert drawn[1].endswith(" 5s")
    assert drawn[2] == f"  waiting for gpu{bad + 1:03d} (up to 15m00s)"
    assert f"{bad} unreachable: gpu001" in drawn[3]
    assert drawn[4:] == ["  1 of 2 checks done"]
    assert terminal.screen.wraps == 0
    terminal.child.send("\r")
    assert terminal.ended() == 0
    said = "\n".join(terminal.screen.everything())
    assert "validate ·" not in said
    assert "probe failed" in said
    assert said.count("probe") <= 5
    assert terminal.modes == termios.tcgetattr(terminal.child.child_fd)


def test_a_validation_in_plain_lines_has_not_one_for_each_node():
    terminal = validation(100, 20, (80, 24), CI="true")
    terminal.child.send("\r")
    assert terminal.ended() == 0
    lines = terminal.raw.decode().splitlines()
    assert "\x1b" not in terminal.raw.decode()
    assert sum(line.startswith("[") for line in lines) < 12
    assert any("gpu021-gpu100: all-reduce across the nodes: started" in line for line in lines)
