"""Reports: the verdict first, simulated said, what did not run never green, no node's words as markup."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clustercheck.model import Coverage, Result, Scope, Subject, Verdict
from clustercheck.result.document import Document
from clusterctl.report import (
    html,
    junit,
    markdown,
    prometheus,
    terminal,
)

from .report_documents import document, failing

HOSTILE = "<script>alert(1)</script> | `x` \x00"
ALL = {"html": html.render, "junit": junit.render, "markdown": markdown.render, "terminal": terminal.render}
VOID = {"meta", "link", "br", "img", "hr", "input"}


@pytest.mark.parametrize("render", ALL.values(), ids=ALL)
def test_the_verdict_and_the_cluster_are_in_the_headline(render):
    first = render(document())[:400] if render is not html.render else render(document())
    assert "PASS" in first
    assert "mysite" in first
    assert "FAIL" in render(failing())


@pytest.mark.parametrize("render", ALL.values(), ids=ALL)
def test_simulated_hardware_is_said_before_anything_is_claimed(render):
    plain, simulated = render(document(simulated=False)), render(document(simulated=True))
    assert "simulated hardware" not in plain.lower()
    assert "simulated hardware" in simulated.lower()


def test_the_headline_of_a_simulated_pass_cannot_be_read_as_a_real_one():
    first_line = terminal.render(document(simulated=True)).splitlines()[0]
    assert first_line == "PASS on SIMULATED HARDWARE: cluster mysite"


@pytest.mark.parametrize("render", ALL.values(), ids=ALL)
def test_the_culprit_and_what_to_do_are_named(render):
    text = render(failing())
    assert "gpu02" in text
    if render is not junit.render:
        assert "Look at its log." in text


def test_reports_are_the_same_each_time():
    for render in ALL.values():
        assert render(failing()) == render(failing())


@pytest.mark.parametrize("name", ["html", "markdown", "terminal"])
def test_the_head_of_the_run_chain_is_printed(name):
    head = "3f" * 32
    text = ALL[name](replace(document(), chain_head=head))
    assert text.count(head) == 1
    assert "run chain" in text
    assert "run chain" not in ALL[name](document())


class Page(HTMLParser):
    """Checks that tags nest, and collects what a browser would fetch or run."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.fetched: list[str] = []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        if tag not in VOID:
            self.open.append(tag)
        self.fetched += [value for name, value in attrs if name in ("src", "href", "srcset", "action")]
        self.fetched = [address for address in self.fetched if not address.startswith("#")]

    def handle_endtag(self, tag):
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)


def test_the_page_is_whole_offline_and_runs_nothing():
    text = html.render(failing())
    page = Page()
    page.feed(text)
    assert page.open == []
    assert page.fetched == []
    assert not {"script", "link", "img", "iframe", "object"} & set(page.tags)
    assert "@import" not in text
    assert "url(" not in text


def test_what_a_node_says_is_never_markup():
    hostile = failing(HOSTILE)
    page = Page()
    page.feed(html.render(hostile))
    assert "script" not in page.tags
    assert "<script>" not in markdown.render(hostile)
    for line in markdown.render(hostile).splitlines():
        if line.startswith("| all-reduce "):
            assert len(re.findall(r"(?<!\\)\|", line)) == 7
    parsed(junit.render(hostile))
    named = markdown.render(document(run="x` [click](http://192.0.2.1)\n# PASS"))
    assert not re.search(r"(?<!\\)\]\(|^# PASS$", named, re.MULTILINE)
    assert "<script>" in terminal.render(failing("<script> [red]x[/red]"))
    assert "[red]x[/red]" in terminal.render(failing("<script> [red]x[/red]"))


def parsed(text: str) -> ET.Element:
    return ET.fromstring(text)  # noqa: S314 - our own output


def test_junit_counts_what_did_not_run_as_an_error():
    made = failing()
    root = parsed(junit.render(made))
    assert int(root.get("tests")) == made.coverage.expected
    assert int(root.get("failures")) == made.coverage.failed > 0
    assert int(root.get("errors")) == made.coverage.not_run > 0
    assert int(root.get("skipped")) == made.coverage.excluded
    assert len(root.findall(".//failure")) == made.coverage.failed
    assert len(root.findall(".//error")) == made.coverage.not_run
    assert root.get("time") == "72"
    suites = root.findall("testsuite")
    assert sum(int(suite.get("tests")) for suite in suites) == made.coverage.expected
    assert all(case.get("name") and case.get("classname") for case in root.iter("testcase"))


@given(st.text())
def test_junit_is_well_formed_whatever_a_node_prints(text):
    result = Result("x", Scope.HOST, Subject(text), Verdict.FAIL, because=text)
    made = Document(
        run="r", suite="quick", started="2026-11-20T19:57:00Z", finished="x", cluster=text,
        coverage=Coverage(1, 0, 1, 0, 0), culprits=(), results=(result,), environment={},
    )  # fmt: skip
    parsed(junit.render(made))


def test_a_warning_is_shown_with_its_remedy_and_fails_nothing():
    made = failing()
    passed = next(one for one in made.results if one.verdict is Verdict.PASS)
    because, remedy = "the governor is powersave", "cpupower frequency-set"
    warning = replace(passed, check="cpu-governor", verdict=Verdict.WARNING, because=because, remedy=remedy)
    made = replace(made, results=(warning,), coverage=replace(made.coverage, warnings=1))
    assert "1 warning" in terminal.render(made) and because in terminal.render(made)
    assert "| warning |" in markdown.render(made)
    assert remedy in html.render(made)
    (case,) = parsed(junit.render(made)).iter("testcase")
    assert [element.tag for element in case] == ["system-out"] and because in case[0].text
    assert 'verdict="warning"} 1' in prometheus.render(made)


def test_every_coverage_number_is_shown():
    made = failing()
    counts = made.coverage
    assert f"{counts.not_run} not run" in terminal.render(made)
    row = f"| {counts.expected} | {counts.passed} | {counts.failed} | 0 | {counts.not_run} | 0 | 0 |"
    assert row in markdown.render(made)
    assert f"<strong>{counts.not_run}</strong> not run" in html.render(made)


def test_colour_only_where_it_is_asked_for(monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\x1b[" not in terminal.render(failing())
    assert "\x1b[" in terminal.render(failing(), colour=True)
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[" not in terminal.render(failing(), colour=True)
