"""The HTML report as a person sees it: opened in Chromium, its picture looked at, its text read."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import PROGRAM, Browser
from PIL import Image
from tests.support import judged

from clusterctl.report import html
from clusterctl.report.subjects import culprit_name

DESKTOP, PHONE = 1280, 390
PAGES = {
    "passing": judged.passing(),
    "simulated": judged.passing(simulated=True),
    "failing": judged.failing(),
    "incomplete": judged.incomplete(),
    "hundred": judged.hundred(),
    "hostile": judged.hostile(),
}
RIBBON = "Devices report that they are simulated."
pytestmark = pytest.mark.needs(PROGRAM)


@pytest.fixture(scope="module")  # starting one takes longer than any test here
def browser() -> Iterator[Browser]:
    with Browser() as opened:
        yield opened


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    made = {name: folder / f"{name}.html" for name in PAGES}
    for name, path in made.items():
        path.write_text(html.render(PAGES[name]), encoding="utf-8")
    return made


def text(browser: Browser) -> str:
    """What can be read on the page; the closed parts of it left out."""
    return browser.evaluate("document.body.innerText")


def picture(browser: Browser, selector: str) -> Image.Image:
    """The part of the page where this element is."""
    box = browser.evaluate(
        f"(({{left, top, width, height}}) => ({{x: left + scrollX, y: top + scrollY, width, height}}))"
        f"(document.querySelector({selector!r}).getBoundingClientRect())"
    )
    return Image.open(io.BytesIO(browser.picture(box))).convert("RGB")


def share(image: Image.Image, near: tuple[int, int, int]) -> float:
    """The part of the picture, 0..1, that has nearly this colour."""
    close = sum(
        count
        for count, colour in image.getcolors(maxcolors=1 << 24)
        if all(abs(a - b) <= 24 for a, b in zip(colour, near, strict=True))
    )
    return close / (image.width * image.height)


def colour(browser: Browser, name: str) -> tuple[int, int, int]:
    """A colour of the page's style."""
    code = browser.evaluate(f"getComputedStyle(document.documentElement).getPropertyValue({name!r})").strip()
    assert re.fullmatch("#[0-9a-f]{6}", code)
    return int(code[1:3], 16), int(code[3:5], 16), int(code[5:7], 16)


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize("width", [DESKTOP, PHONE])
def test_the_page_fits_and_asks_for_nothing(browser, pages, name, width):
    browser.open(pages[name], width, phone=width == PHONE)
    assert browser.evaluate("document.documentElement.scrollWidth") == width
    assert browser.requests() == [pages[name].as_uri()]
    assert browser.complaints() == []
    # Also with all that can be opened open.
    browser.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true })")
    assert browser.evaluate("document.documentElement.scrollWidth") == width


@pytest.mark.parametrize("name", PAGES)
def test_the_verdict_is_what_is_seen_first(browser, pages, name):
    browser.open(pages[name], PHONE, height=844, phone=True)
    verdict = PAGES[name].verdict.upper()
    said = text(browser)
    assert verdict in said[:300]
    assert browser.evaluate("document.querySelector('h1').getBoundingClientRect().bottom") < 844 / 2
    assert browser.evaluate("document.title").startswith(verdict)
    assert ("SIMULATED HARDWARE" in said[:100]) == (RIBBON in said) == PAGES[name].simulated


def test_what_a_node_says_is_shown_and_not_run(browser, pages):
    browser.open(pages["hostile"], DESKTOP)
    assert "<script>alert(1)</script> <img src=x onerror=alert(2)>" in text(browser)
    assert browser.evaluate("document.querySelectorAll('script, img').length") == 0
    assert [event for event in browser.events if event["method"] == "Page.javascriptDialogOpening"] == []


def test_culprits_are_read_with_what_to_do(browser, pages):
    browser.open(pages["failing"], DESKTOP)
    said = text(browser)
    for culprit in PAGES["failing"].culprits:
        name = culprit_name(culprit)
        card = said[said.index(f"\n{name} ") :][:800]
        assert culprit.because in card
        assert culprit.remedy in card
    titles = ("Faulty components", "Checks not run", "Coverage", "Checks")
    places = [said.index(f"\n{title}\n") for title in titles]
    assert places == sorted(places)


def test_what_was_not_judged_is_read_before_the_coverage(browser, pages):
    browser.open(pages["incomplete"], PHONE, phone=True)
    said = text(browser)
    assert said.index("the node is busy: a process on GPU 2") < said.index("Coverage")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_the_curve_is_drawn(browser, pages, dark):
    browser.open(pages["passing"], DESKTOP, dark=dark)
    drawn = picture(browser, ".wide .curve")
    assert drawn.width > 800
    assert drawn.height > 200
    paper, line = colour(browser, "--paper"), colour(browser, "--accent")
    assert 0.5 < share(drawn, paper) < 0.99
    assert 0.001 < share(drawn, line) < 0.1
    # It rises from the left to the right: where the line first is seen, from above.
    heights = [
        next(y for y in range(drawn.height) if _near(drawn.getpixel((int(drawn.width * at), y)), line))
        for at in (0.2, 0.5, 0.9)
    ]
    assert heights == sorted(heights, reverse=True)
    assert heights[0] - heights[-1] > drawn.height / 4
    assert (sum(paper) < 3 * 60) == dark


def _near(pixel: tuple[int, int, int], wanted: tuple[int, int, int]) -> bool:
    return all(abs(a - b) <= 24 for a, b in zip(pixel, wanted, strict=True))


@pytest.mark.parametrize("width", [DESKTOP, PHONE])
def test_the_matrix_shows_what_failed_among_what_passed(browser, pages, width):
    browser.open(pages["passing"], width, phone=width == PHONE)
    good, bad = colour(browser, "--cell-pass"), colour(browser, "--cell-fail")
    clean = picture(browser, ".matrix tbody")
    assert share(clean, good) > 0.3
    assert share(clean, bad) == 0
    browser.open(pages["failing"], width, phone=width == PHONE)
    troubled = picture(browser, ".matrix tbody")
    assert share(troubled, good) > 0.2
    assert 0.01 < share(troubled, bad) < 0.2


def test_a_hundred_nodes_are_read_in_a_few_rows(browser, pages):
    browser.open(pages["hundred"], DESKTOP)
    assert browser.evaluate("document.querySelector('.matrix').getBoundingClientRect().height") < 600
    assert "94 nodes" in text(browser)
    assert (
        browser.evaluate(
            "document.querySelectorAll('.matrix')[1].querySelectorAll('tbody tr:not(.whole)').length"
        )
        == 100
    )
    crossed = picture(browser, ".pairs")
    assert 0.005 < share(crossed, colour(browser, "--cell-fail")) < 0.1


def test_a_cell_can_be_read_without_seeing_its_colour(browser, pages):
    browser.open(pages["failing"], DESKTOP)
    titles = browser.evaluate("[...document.querySelectorAll('.matrix td[title]')].map(cell => cell.title)")
    assert "gpu-ecc, gpu01: 7 pass, 1 fail (GPU 4)" in titles


def test_a_column_leads_to_its_check(browser, pages):
    browser.open(pages["failing"], DESKTOP)
    missing = browser.evaluate(
        "[...document.querySelectorAll('a')].map(a => a.getAttribute('href').slice(1))"
        ".filter(name => !document.getElementById(name))"
    )
    assert missing == []


def test_it_can_be_printed(browser, pages):
    browser.open(pages["failing"], DESKTOP, dark=True)
    assert browser.printed().startswith(b"%PDF-")
    browser.ask("Emulation.setEmulatedMedia", media="print")
    paper = browser.evaluate("getComputedStyle(document.body).backgroundColor")
    browser.ask("Emulation.setEmulatedMedia", media="")
    assert paper == "rgb(255, 255, 255)"
