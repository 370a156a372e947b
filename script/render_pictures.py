"""What `script/pictures` shows: commands in a terminal of their own, as SVG, and the report, as PNG."""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import subprocess
import sys
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path

import pexpect
import pyte
from browser import Browser
from PIL import Image
from pyte.screens import Char
from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.style import Style
from rich.terminal_theme import SVG_EXPORT_THEME
from rich.text import Text

ROOT = Path(__file__).resolve().parent.parent
CLUSTER = ROOT / ".lab" / "cluster"
PICTURES = ROOT / "docs" / "pictures"
COLUMNS, ROWS = 104, 200  # of the terminal: as long as what is said
SHOWN = 44  # lines of what one command says: the verdict and the culprits come first
TIMEOUT_S = 900
SESSION = (
    "clusterctl lab fault inject gpu02 gpu-missing --gpu 3",
    "clusterctl validate 2>/dev/null",  # without its progress
)
PLANTED = [("gpu02", 3)]
ATTEMPTS = 4
DESKTOP, PHONE, PHONE_HEIGHT = 1280, 390, 1250
COLOURS = 255  # of a PNG: a palette makes it a quarter of the size

# The same, except the fonts that it would have a reader fetch from elsewhere.
SVG_FORMAT = re.sub(r"@font-face \{\{.*?\}\}\n", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)


def record(command: str) -> pyte.Screen:
    """What a person sees when the command has ended: it runs in a terminal of its own."""
    screen = pyte.Screen(COLUMNS, ROWS)
    unwanted = {"CI", "NO_COLOR"}
    environment = {name: value for name, value in os.environ.items() if name not in unwanted}
    environment |= {"TERM": "xterm-256color", "PATH": f"{ROOT / '.venv/bin'}:{os.environ['PATH']}"}
    if " lab " not in command:
        command = command.replace("clusterctl", f"clusterctl -C {shlex.quote(str(CLUSTER))}")
    child = pexpect.spawn(
        "bash",
        ["-c", command],
        cwd=str(ROOT),
        env=environment,
        dimensions=(ROWS, COLUMNS),
        timeout=TIMEOUT_S,
        encoding="utf-8",
    )
    answer = child.read()
    child.close()
    pyte.Stream(screen).feed(answer.replace(f"{ROOT}/", ""))  # where this clone lies is nobody's business
    return screen


def lines(screen: pyte.Screen) -> list[Text]:
    """The screen's lines with their colours, down to the last that is not empty."""
    shown = [_line(screen, row) for row in range(ROWS)]
    while shown and not shown[-1].plain.strip():
        shown.pop()
    return shown


def _line(screen: pyte.Screen, row: int) -> Text:
    cells = [screen.buffer[row][column] for column in range(COLUMNS)]
    text = Text()
    for style, alike in groupby(cells, key=_style):
        text.append("".join(cell.data for cell in alike), style)
    text.rstrip()
    return text


def _style(cell: Char) -> Style:
    colour = None if cell.fg == "default" else _colour(cell.fg)
    return Style(color=colour, bold=cell.bold, italic=cell.italics)


def _colour(name: str) -> str:
    """A colour of pyte by its name in Rich."""
    if re.fullmatch("[0-9a-f]{6}", name):
        return f"#{name}"
    return name.replace("brown", "yellow").replace("bright", "bright_")


def terminal_svg(session: list[tuple[str, list[Text]]], title: str) -> str:
    """The session as a picture of a terminal."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    for number, (command, answer) in enumerate(session):
        if number:
            console.print()
        console.print(Text.assemble(("$ ", "bold green"), (command, "bold")))
        for line in answer[:SHOWN]:
            console.print(line)
        if len(answer) > SHOWN:
            console.print(Text(f"({len(answer) - SHOWN} lines more)", "dim"))
    return console.export_svg(
        title=title, theme=SVG_EXPORT_THEME, code_format=SVG_FORMAT, unique_id="terminal"
    )


def small_png(raw: bytes) -> bytes:
    """The picture with a palette."""
    out = io.BytesIO()
    Image.open(io.BytesIO(raw)).convert("RGB").quantize(COLOURS, kmeans=2).save(out, "PNG", optimize=True)
    return out.getvalue()


def rehearse() -> tuple[list[tuple[str, list[Text]]], str]:
    """The session, and its report as HTML, of a run that blames the planted fault and nothing else.

    On a machine that is busy with other things the lab's network is slow too, and is blamed next to it.
    """
    report = [str(ROOT / ".venv/bin/clusterctl"), "-C", str(CLUSTER), "report", "--format"]
    blamed = ""
    for _ in range(ATTEMPTS):
        session = [(command, lines(record(command))) for command in SESSION]
        answer = subprocess.run([*report, "json"], check=True, capture_output=True, text=True).stdout
        culprits = json.loads(answer)["culprits"]
        if [(one["node"], one["gpu"]) for one in culprits] == PLANTED:
            page = subprocess.run([*report, "html"], check=True, capture_output=True, text=True).stdout
            return session, page
        blamed = "; ".join(f"{one['node']}: {one['because']}" for one in culprits) or "nobody"
    sys.exit(
        f"error: no picture of the planted fault alone: blamed was {blamed}\n"
        f"  where: {CLUSTER}, {ATTEMPTS} runs\n"
        "  hint:  Run it again when the machine is less busy; the pictures are as they were."
    )


def main() -> None:
    """Run the session, and write the pictures with a note of how they came to be."""
    session, page = rehearse()
    PICTURES.mkdir(parents=True, exist_ok=True)
    title = "two lab hosts: SSH, systemd, Docker and Paddle are real, the GPUs are simulated"
    (PICTURES / "terminal.svg").write_text(terminal_svg(session, title), encoding="utf-8")
    pictured = CLUSTER / "pictured.html"
    pictured.write_text(page, encoding="utf-8")
    with Browser() as browser:
        browser.open(pictured, DESKTOP)
        height = browser.evaluate("document.querySelector('#measured').getBoundingClientRect().bottom")
        whole = {"x": 0, "y": 0, "width": DESKTOP, "height": height}
        (PICTURES / "report.png").write_bytes(small_png(browser.picture(whole)))
        browser.open(pictured, PHONE, height=PHONE_HEIGHT, phone=True)
        (PICTURES / "report-phone.png").write_bytes(small_png(browser.picture()))
    pictured.unlink()

    commands = "".join(f"    {command}\n" for command in (*SESSION, "clusterctl report --format html"))
    (PICTURES / "README.md").write_text(
        "# Pictures\n\n"
        f"`script/pictures` made all but `locate.svg` on {datetime.now(UTC):%Y-%m-%d} of what these commands "
        f"said in a lab, where the GPUs are simulated:\n\n{commands}\n"
        "`locate.svg` is drawn by `tests/bench/test_locate.py` from its figures (docs/performance.md).\n\n"
        "Nothing in them is drawn by hand; run it again after a change of what they show. Speeds in them\n"
        "are those of containers on the machine where it ran.\n",
        encoding="utf-8",
    )


if __name__ == "__main__":
    main()
