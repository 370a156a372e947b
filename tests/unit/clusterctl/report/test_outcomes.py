"""Reports of what was not judged: not applicable and waived by the operator are distinguished."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest
from tests.support import judged

from clustercheck.locate.culprits import find_culprits
from clustercheck.model import Coverage, Result, Scope, Subject, Verdict
from clustercheck.result import reading
from clustercheck.result.document import Document
from clusterctl.report import html, junit, markdown, matrix, nodes, prometheus, terminal, view

from .report_documents import document

MAKERS = (judged.failing, judged.incomplete, judged.compared, judged.hostile)
VIRTUAL, CABLE = "the node is virtual (docker)", "excluded by ops until 2026-12-01: bad cable"


@pytest.fixture(scope="module")
def mixed() -> Document:
    """Per node a pass; on three of them a check that does not apply, on two one that is waived."""
    results = [Result("xid", Scope.HOST, Subject(f"gpu0{n}"), Verdict.PASS) for n in range(1, 4)]
    results += [
        Result("iommu", Scope.HOST, Subject(f"gpu0{n}"), Verdict.EXCLUDED, because=VIRTUAL)
        for n in range(1, 4)
    ]
    results += [
        Result("iommu", Scope.HOST, Subject(f"gpu0{n}"), Verdict.EXCLUDED, because=CABLE, waived=True)
        for n in (4, 5)
    ]
    return document(results=tuple(results), coverage=Coverage(8, 3, 0, 0, 5))


def test_the_terminal_shows_both_and_counts_both(mixed: Document) -> None:
    text = terminal.render(mixed, width=120)
    lines = [line.split() for line in text.splitlines()]
    assert ["iommu", "excluded", "gpu04,", "gpu05"] in lines
    assert ["n/a", "gpu01-gpu03"] in lines
    assert "coverage: 8 expected: 3 pass, 0 fail, 0 warning, 0 not run, 3 n/a, 2 excluded\n" in text


def test_markdown_shows_both_and_counts_both(mixed: Document) -> None:
    text = markdown.render(mixed)
    assert "| expected | pass | fail | warning | not run | n/a | excluded |\n" in text
    assert "| 8 | 3 | 0 | 0 | 0 | 3 | 2 |\n" in text
    assert "| iommu | n/a | gpu01-gpu03 |" in text
    assert "| iommu | excluded | gpu04, gpu05 |" in text


def test_the_page_shows_both_and_counts_both(mixed: Document) -> None:
    page = html.render(mixed)
    assert "<strong>3</strong> n/a" in page
    assert "<strong>2</strong> excluded" in page
    article = page[page.index('<details id="check-iommu"') :]
    assert '<span class="note">3 n/a, 2 excluded</span>' in article
    assert re.findall(r'<tr class="(\w+)">\s*<td class="state"><span class="badge (\w+)">([^<]+)<', article)[
        :2
    ] == [
        ("excluded", "excluded", "excluded"),
        ("na", "na", "n/a"),
    ]
    assert "3 not applicable, 2 excluded by the operator" in page


def test_every_node_is_shown_with_its_own(mixed: Document) -> None:
    shown = matrix.matrix(mixed)
    assert shown is not None
    cells = {row.names: row.cells[shown.checks.index("iommu")] for row in shown.rows}
    assert (cells["gpu01"].outcome, cells["gpu01"].about) == ("na", "1 n/a")
    assert (cells["gpu04"].outcome, cells["gpu04"].about) == ("excluded", "1 excluded")
    shown_nodes = {node.name: node for node in nodes.sections(mixed, ()).shown}
    assert shown_nodes["gpu01"].summary == "1 pass, 1 n/a"
    assert shown_nodes["gpu05"].summary == "1 excluded"


def test_programs_read_the_verdict_as_before(mixed: Document) -> None:
    assert mixed.as_json()["coverage"]["excluded"] == 5
    assert 'verdict="excluded"} 5\n' in prometheus.render(mixed)
    assert junit.render(mixed).count("<skipped ") == 5


def test_a_quarantined_node_is_excluded_and_not_n_a() -> None:
    made = judged.hundred()
    waived = sum(result.subject.node == "gpu55" for result in made.results)
    counts = dict(view.covered(made))
    assert counts["excluded"] == waived > 0
    assert counts["na"] + counts["excluded"] == made.coverage.excluded


@pytest.mark.parametrize(
    "render",
    [html.render, junit.render, markdown.render, prometheus.render, terminal.render],
    ids=["html", "junit", "markdown", "prometheus", "terminal"],
)
@pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)
def test_a_report_of_the_run_and_one_of_its_file_are_the_same(render, make) -> None:
    made = make()
    assert render(reading.read(json.dumps(made.as_json()))) == render(made)


def test_a_figure_that_is_no_number_is_shown_and_not_drawn() -> None:
    made = judged.passing()
    (clock, *_) = [result for result in made.results if result.check == "clock"]
    endless = replace(made, results=(replace(clock, measured=float("inf")),))
    assert "inf s" in terminal.render(endless)
    assert "clusterctl_check_measured" not in prometheus.render(endless)
    assert html.render(endless) == html.render(reading.read(json.dumps(endless.as_json())))


def test_a_reason_that_is_printed_with_its_culprit_is_not_repeated() -> None:
    results = tuple(
        Result("gpu-count", Scope.HOST, Subject(f"gpu0{n}"), Verdict.FAIL, because=f"only {n} of 8 GPUs")
        for n in (1, 2)
    )
    culprits = tuple(find_culprits(results, None, group_is_slow=False))
    shown = document(results=results, coverage=Coverage(2, 0, 2, 0, 0), culprits=culprits)
    for one in (shown, replace(shown, culprits=culprits[:1])):
        text = terminal.render(one, width=120)
        assert [text.count(result.because) for result in results] == [1, 1]
