"""Reports: the verdict first, simulated said, what did not run never green, no node's words as markup."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clustercheck.checks.all import CHECKS
from clustercheck.checks.base import evaluate
from clustercheck.document import Document
from clustercheck.evidence import Evidence
from clustercheck.ledger import complete, count
from clustercheck.model import Culprit
from clustercheck.sample import healthy
from clusterctl.report import (
    curve,
    html,
    inventory,
    junit,
    markdown,
    matrix,
    measured,
    pairs,
    terminal,
    view,
)

HOSTILE = "<script>alert(1)</script> | `x` \x00"


def planted(check: str, fault: str) -> Evidence:
    """Healthy evidence with one check's own fault in it."""
    chosen = next(one for one in CHECKS if one.id == check)
    return next(one for one in chosen.faults if one.name == fault).inject(healthy())


def document(
    evidence: Evidence | None = None, culprits: tuple[Culprit, ...] = (), **changed: Any
) -> dict[str, Any]:
    """A whole document, as validate writes it."""
    known = evidence or healthy()
    results = complete(CHECKS, known, [r for check in CHECKS for r in evaluate(check, known)])
    made = Document(
        run="20261120T195700-validate-3fa2",
        started="2026-11-20T19:57:00Z",
        finished="2026-11-20T19:58:12Z",
        cluster="mysite",
        suite="quick",
        coverage=count(results),
        culprits=culprits,
        results=tuple(results),
        environment={"image": "registry01:5000/paddle@sha256:0", "nodes": {"gpu01": {"kernel": "6.1"}}},
        simulated=known.simulated,
    ).as_json()
    return {**made, **changed}


def failing(because: str = "rank 1 on gpu02 crashed") -> dict[str, Any]:
    """A cluster with one crashed rank on gpu02, who is blamed for it."""
    culprit = Culprit("node", "gpu02", because, "Look at its log.")
    made = document(planted("all-reduce", "node-lost"), (culprit,))
    for result in made["results"]:
        if result["verdict"] == "fail":
            result["because"] = because
    return made


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
    assert "<script>" in terminal.render(failing("<script> [red]x[/red]"))
    assert "[red]x[/red]" in terminal.render(failing("<script> [red]x[/red]"))


def parsed(text: str) -> ET.Element:
    return ET.fromstring(text)  # noqa: S314 - our own output


def test_junit_counts_what_did_not_run_as_an_error():
    made = failing()
    root = parsed(junit.render(made))
    assert int(root.get("tests")) == made["coverage"]["expected"]
    assert int(root.get("failures")) == made["coverage"]["fail"] > 0
    assert int(root.get("errors")) == made["coverage"]["not_run"] > 0
    assert int(root.get("skipped")) == made["coverage"]["excluded"]
    assert len(root.findall(".//failure")) == made["coverage"]["fail"]
    assert len(root.findall(".//error")) == made["coverage"]["not_run"]
    assert root.get("time") == "72"
    suites = root.findall("testsuite")
    assert sum(int(suite.get("tests")) for suite in suites) == made["coverage"]["expected"]
    assert all(case.get("name") and case.get("classname") for case in root.iter("testcase"))


@given(st.text())
def test_junit_is_well_formed_whatever_a_node_prints(text):
    result = {
        "check": "x",
        "scope": "host",
        "subject": {"node": text, "gpu": None, "peer": None},
        "verdict": "fail",
        "because": text,
    }
    made = {
        "run": "r", "suite": "quick", "started": "2026-11-20T19:57:00Z", "finished": "x", "cluster": text,
        "verdict": "fail", "simulated": False, "coverage": {}, "culprits": [], "results": [result],
    }  # fmt: skip
    parsed(junit.render(made))


def test_every_coverage_number_is_shown():
    made = failing()
    counts = made["coverage"]
    assert f"{counts['not_run']} not run" in terminal.render(made)
    row = "| {expected} | {pass} | {fail} | {not_run} | {excluded} |".format(**counts)
    assert row in markdown.render(made)
    assert f"<strong>{counts['not_run']}</strong> not run" in html.render(made)


def test_the_curve_of_the_group_is_drawn_with_what_was_asked_of_it():
    made = document()
    points = curve.curve_of(made)
    assert len(points) > 1
    assert [point.size for point in points] == sorted(point.size for point in points)
    assert any(point.floor for point in points)
    page = html.render(made)
    assert page.count('<svg class="curve"') == 2
    assert page.count('<circle class="measured"') == 2 * len(points)
    assert 'class="bound"' in page


def test_no_curve_is_drawn_where_none_was_measured():
    made = failing()
    assert curve.curve_of(made) == ()
    assert '<svg class="curve"' not in html.render(made)


@given(
    st.lists(
        st.tuples(st.integers(1, 2**40), st.floats(1e-6, 1e4)),
        min_size=1,
        max_size=20,
        unique_by=lambda p: p[0],
    )
)
def test_every_point_of_a_curve_lies_inside_the_picture(raw):
    points = tuple(curve.Point(size, speed, speed / 2, speed * 2) for size, speed in sorted(raw))
    text = str(curve.svg(points, 340, 260))
    for x, y in re.findall(r'cx="([-\d.]+)" cy="([-\d.]+)"', text):
        assert 0 <= float(x) <= 340
        assert 0 <= float(y) <= 260


@given(st.floats(1e-9, 1e9))
def test_the_axis_ends_just_above_the_highest_value(highest):
    top = curve.nice_ceiling(highest)
    assert highest <= top * (1 + 1e-9)
    assert top < highest * 2.6


def test_the_same_said_of_many_is_said_once():
    subjects = [{"node": "gpu01", "gpu": gpu, "peer": None} for gpu in (0, 1, 2, 5)]
    assert view.subjects_name([*subjects, {"node": "gpu02", "gpu": 3}]) == "gpu01, GPU 0-2, 5; gpu02, GPU 3"
    assert view.subjects_name([{"node": "gpu01"}, {"node": "gpu02"}]) == "gpu01, gpu02"
    assert view.subjects_name([{"node": None}]) == "all nodes"
    assert view.subjects_name([{"node": "gpu01", "gpu": None, "peer": "gpu02"}]) == "gpu01 - gpu02"


def test_every_result_has_its_place_in_the_matrix():
    made = failing()
    shown = matrix.matrix(made)
    assert shown is not None
    assert [row.names for row in shown.rows] == ["all nodes", "gpu01", "gpu02", "gpu03"]
    placed = sum(len(cell.verdicts) for row in shown.rows for cell in row.cells)
    pairs_count_twice = sum(result["subject"]["peer"] is not None for result in made["results"])
    assert placed == len(made["results"]) + pairs_count_twice
    assert shown.every == ()
    assert matrix.matrix({**made, "results": []}) is None


def test_a_cell_says_which_gpu_it_is():
    shown = matrix.matrix(document(planted("gpu-ecc", "ecc-dram")))
    cell = next(row for row in shown.rows if row.names == "gpu01").cells[shown.checks.index("gpu-ecc")]
    assert cell.verdict == "mixed"
    assert cell.shares[4] == ("fail", 1)
    assert cell.about == "7 pass, 1 fail (GPU 4)"


def test_of_many_nodes_those_that_are_alike_share_a_row():
    """As on a large cluster: the odd ones out come first, and none is lost."""
    checks, nodes = ("a", "b"), [f"gpu{n:02d}" for n in range(1, 101)]
    results = [
        {"check": check, "subject": {"node": node, "gpu": gpu, "peer": None}, "verdict": "pass"}
        for check in checks
        for node in nodes
        for gpu in range(8)
    ]
    results[3 * 8 + 5]["verdict"] = "fail"  # check a on gpu04
    for result in results[:8]:
        result["verdict"] = "not_run"  # check a on gpu01
    shown = matrix.matrix({"results": results})
    assert [(row.names, row.size) for row in shown.rows] == [
        ("gpu04", 1),
        ("gpu01", 1),
        ("gpu02, gpu03, gpu05-gpu100", 98),
    ]
    assert [row.names for row in shown.every] == nodes


def test_what_was_not_judged_is_told_by_its_reason():
    made = document(planted("gpu-ecc", "counters-missing"))
    (question,) = view.open_questions(made)
    assert question.because == "cannot read: the uncorrectable ECC counters are not printed"
    assert question.subjects == "gpu01, GPU 2"
    assert question.checks == ("gpu-ecc",)
    assert question.remedy == ""
    assert question.because in html.render(made)


def test_the_terminal_says_a_reason_once_that_many_checks_share():
    gone = planted("gpu-present", "gpu-gone-from-bus")
    made = document(gone, (Culprit("gpu", "gpu01", "gpu-present: it is gone", "Look.", 3),))
    text = terminal.render(made, width=140)
    assert text.count("the driver does not list this GPU") == 1
    assert sum(line.split()[1:3] == ["not", "run"] for line in text.splitlines()) > 3


def test_figures_stand_beside_what_was_expected_and_what_physics_allows():
    (pair,) = [one for one in measured.spreads(document()) if one.check == "pair-bandwidth"]
    assert (pair.lowest, pair.middle, pair.highest, pair.unit) == (2.2, 2.2, 2.2, "GB/s")
    assert pair.expected == (1.1,)
    assert [share for share, _ in pair.shares] == [0.704] * 3
    assert pair.floors == pytest.approx((0.352,))


def test_a_slow_node_is_a_cross_among_the_pairs():
    found = pairs.pairs(document(planted("pair-bandwidth", "slow-node")))
    slow = {place for place, (_, verdict) in found.measured.items() if verdict == "fail"}
    rows = [row for row in range(3) if all((row, c) in slow for c in range(3) if c != row)]
    assert len(rows) == 1
    assert 'class="fail"' in pairs.svg(found)
    assert pairs.pairs({**document(), "results": []}) is None


def test_many_pairs_are_said_in_one_row_with_their_range():
    slow = [
        {
            "check": "pair-bandwidth",
            "subject": {"node": f"gpu{n:02d}", "gpu": None, "peer": "gpu88"},
            "verdict": "fail",
            "measured": 0.05 + n / 1000,
            "unit": "GB/s",
            "expected": 1.1,
            "because": f"pair {n}",
            "remedy": "Check the cable.",
        }
        for n in range(9, 0, -1)
    ]
    (group,) = view.check_groups({"results": slow})
    (row,) = group.rows
    assert (row.subjects, row.measured) == ("gpu88 with 9 others", "0.051 GB/s to 0.059 GB/s")
    assert row.first["because"] == "pair 1"
    (few,) = view.check_groups({"results": slow[:3]})
    assert [row.subjects for row in few.rows] == [f"gpu0{n} - gpu88" for n in (9, 8, 7)]


def test_nodes_that_differ_are_told_from_the_others():
    nodes = {f"gpu{n:02d}": {"boot_id": str(n), "driver": "580.95.05", "os": "Debian"} for n in range(1, 20)}
    nodes["gpu07"]["driver"] = "580.65.06"
    made = document(environment={"nodes": nodes})
    assert inventory.common(made) == [("os", "Debian")]
    (driver,) = inventory.differences(made)
    assert driver.kinds == (("580.95.05", "gpu01-gpu06, gpu08-gpu19"), ("580.65.06", "gpu07"))
    assert inventory.nodes(made).columns == ("node", "boot_id")


def test_a_long_reason_is_cut_between_words_and_kept():
    long = "slow with " + ", ".join(f"gpu{n:03d}" for n in range(200))
    shown, rest = html._excerpt(long)
    assert shown + rest == long
    assert len(shown) <= html.LONGEST_REASON
    assert rest.startswith(" ")


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (["gpu01", "gpu02", "gpu03"], "gpu01-gpu03"),
        (["gpu09", "gpu10"], "gpu09, gpu10"),
        (["gpu98", "gpu99", "gpu100"], "gpu98-gpu100"),
        (["a", "b1", "c2"], "a, b1, c2"),
        ([], ""),
    ],
)
def test_names_that_count_up_are_said_as_a_range(names, text):
    assert view.names_in_ranges(names) == text


@pytest.mark.parametrize(
    ("measured", "unit", "text"),
    [
        (None, "GB/s", "–"),
        (0.00021, "GB/s", "0.00021 GB/s"),
        (12.3456, "GB/s", "12.35 GB/s"),
        (235.65, "GB/s", "235.7 GB/s"),
        (8, "", "8"),
        (True, "", "yes"),
        ("580.95.05", "", "580.95.05"),
    ],
)
def test_values_are_written_as_people_read_them(measured, unit, text):
    assert view.value(measured, unit) == text


@pytest.mark.parametrize(
    ("finished", "text"),
    [("2026-11-20T19:58:12Z", "1 min 12 s"), ("2026-11-20T19:57:09Z", "9 s"), ("soon", "–"), (None, "–")],
)
def test_how_long_it_took_is_written_as_people_read_it(finished, text):
    assert view.duration_text({"started": "2026-11-20T19:57:00Z", "finished": finished}) == text


def test_times_are_written_to_the_minute():
    assert view.moment("2026-11-20T19:57:00Z") == "2026-11-20 19:57 UTC"
    assert view.moment("2026-11-20T20:57:00+01:00") == "2026-11-20 19:57 UTC"
    assert view.moment("soon") == "soon"


def test_sizes_are_binary():
    assert [view.bytes_text(n) for n in (8, 65536, 16 << 20, 8 << 30)] == ["8 B", "64 KiB", "16 MiB", "8 GiB"]


def test_colour_only_where_it_is_asked_for(monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\x1b[" not in terminal.render(failing())
    assert "\x1b[" in terminal.render(failing(), colour=True)
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[" not in terminal.render(failing(), colour=True)
