"""The README's pictures: made by a script from a real run, small, and open about what is simulated."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree as ET

import pyte
import render_pictures
from PIL import Image
from rich.text import Text

MOST_BYTES = 300_000


def test_a_terminal_is_drawn_as_it_looked_and_fetches_nothing():
    screen = pyte.Screen(render_pictures.COLUMNS, render_pictures.ROWS)
    pyte.Stream(screen).feed(
        "progress 1 %\r\x1b[2K\x1b[1;31mFAIL\x1b[0m of <rack> & \x1b[33mgpu02\x1b[0m\r\nend\r\n"
    )
    drawn = render_pictures.terminal_svg([("clusterctl validate", render_pictures.lines(screen))], "a title")
    root = ET.fromstring(drawn)  # noqa: S314 - our own output
    words = "".join(root.itertext()).replace("\xa0", " ")
    for said in ("$ clusterctl validate", "FAIL of <rack> & gpu02", "end", "a title"):
        assert said in re.sub(r"\s+", " ", words)
    assert "progress" not in words
    addresses = set(re.findall(r"https?://[^\"' <]+", drawn))
    assert addresses <= {"http://www.w3.org/2000/svg", "https://www.textualize.io"}
    assert "@font-face" not in drawn


def test_what_is_long_is_cut_at_its_end_and_that_is_said():
    said = [Text(f"line-{number}") for number in range(render_pictures.SHOWN + 7)]
    drawn = render_pictures.terminal_svg([("clusterctl validate", said)], "a title").replace("&#160;", " ")
    assert "line-0<" in drawn and f"line-{render_pictures.SHOWN - 1}<" in drawn
    assert f"line-{render_pictures.SHOWN}<" not in drawn
    assert "(7 lines more)" in drawn


def test_the_pictures_are_there_small_and_say_what_is_simulated(repository: Path):
    folder = repository / "docs" / "pictures"
    names = {path.name for path in folder.iterdir()}
    assert {"terminal.svg", "report.png", "report-phone.png", "README.md"} <= names
    assert sum(path.stat().st_size for path in folder.iterdir()) < MOST_BYTES
    drawn = (folder / "terminal.svg").read_text(encoding="utf-8").replace("&#160;", " ")
    assert "SIMULATED HARDWARE" in drawn and "gpu02, GPU 3" in drawn
    assert "GPUs are simulated" in drawn
    for command in render_pictures.SESSION:
        assert command in (folder / "README.md").read_text(encoding="utf-8")
    for name in ("report.png", "report-phone.png"):
        picture = Image.open(folder / name).convert("RGB")
        ribbon = picture.getpixel((picture.width - 3, 3)), picture.getpixel((3, 20))
        assert any(red > 180 and green > 150 and blue < 110 for red, green, blue in ribbon), name


def test_the_readme_shows_every_picture_with_words_for_who_cannot_see_it(repository: Path):
    readme = (repository / "README.md").read_text(encoding="utf-8")
    for name in ("terminal.svg", "report.png", "report-phone.png"):
        assert re.search(rf'<img [^>]*src="docs/pictures/{re.escape(name)}"[^>]*alt="[^"]{{15,}}"', readme), (
            name
        )
