"""Reports: the curve of the group, the matrix of results, the pairs, and figures with what was expected."""

from __future__ import annotations

import re
import sys
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clustercheck.model import Result, Scope, Subject, Verdict
from clusterctl.report import (
    curve,
    html,
    matrix,
    measured,
    pairs,
)

from .report_documents import document, failing, planted


def test_the_curve_of_the_group_is_drawn_with_what_was_asked_of_it():
    made = document()
    points = curve.curves_of(made)["all-reduce-bandwidth"]
    assert len(points) > 1
    assert [point.size for point in points] == sorted(point.size for point in points)
    assert any(point.floor for point in points)
    page = html.render(made)
    assert page.count('aria-label="Bus bandwidth of all-reduce-bandwidth over message size"') == 2
    # In two sizes: for a desk and for a telephone; the other collectives in one, each with its own limits.
    curves = curve.curves_of(made)
    assert next(iter(curves)) == "all-reduce-bandwidth"
    assert set(curves) > {"all-gather-bandwidth", "broadcast-bandwidth"}
    drawn = sum(len(points) for points in curves.values()) + len(points)
    assert page.count('<circle class="measured"') == drawn
    assert 'class="bound"' in page


def test_no_curve_is_drawn_where_none_was_measured():
    made = failing()
    assert "all-reduce-bandwidth" not in curve.curves_of(made)
    assert "Bus bandwidth of all-reduce-bandwidth" not in html.render(made)


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
    places = re.findall(r'cx="([-\d.]+)" cy="([-\d.]+)"', text)
    assert len(places) == len(points)
    for x, y in places:
        assert 0 <= float(x) <= 340
        assert 0 <= float(y) <= 260


@pytest.mark.parametrize("speed", [5e-324, 1e-310, sys.float_info.min, 1e308, sys.float_info.max])
def test_a_picture_has_room_for_any_number_that_a_node_says(speed):
    points = (curve.Point(1, speed), curve.Point(2, speed / 2, speed / 2))
    text = str(curve.svg(points, 340, 260))
    assert len(re.findall(r'c[xy]="[0-9.]+"', text)) == 2 * len(points)
    assert not re.search(r"\b(nan|inf)\b", text)


@given(st.floats(1e-9, 1e9))
def test_the_axis_ends_just_above_the_highest_value(highest):
    top = curve.nice_ceiling(highest)
    assert highest <= top * (1 + 1e-9)
    assert top < highest * 2.6


def test_every_result_has_its_place_in_the_matrix():
    made = failing()
    shown = matrix.matrix(made)
    assert shown is not None
    assert [row.names for row in shown.rows] == ["all nodes", "gpu01", "gpu02", "gpu03"]
    placed = sum(len(cell.outcomes) for row in shown.rows for cell in (*row.cells, row.rest))
    assert placed == sum(len(cell.outcomes) for row in shown.every for cell in row.cells)
    pairs_count_twice = sum(result.subject.peer is not None for result in made.results)
    assert placed == len(made.results) + pairs_count_twice
    assert {*shown.checks, *shown.folded} == set(shown.every_check)
    assert matrix.matrix(replace(made, results=())) is None


def test_a_matrix_of_more_cells_than_any_cluster_has_is_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    made = document(planted("gpu-ecc", "ecc-dram"))
    shown = matrix.matrix(made)
    assert shown is not None
    cells = len(shown.every_check) * len(shown.every)
    monkeypatch.setattr(matrix, "MAX_CELLS", cells)
    assert matrix.matrix(made) == shown
    monkeypatch.setattr(matrix, "MAX_CELLS", cells - 1)
    assert matrix.matrix(made) is None
    assert "".join(html.render(made)).count('<table class="matrix') == 0


def test_what_passes_wherever_it_could_be_judged_shares_a_column():
    gone = document(planted("node-reachable", "node-down"))
    shown = matrix.matrix(gone)
    out = next(row for row in shown.rows if "fail" in {cell.outcome for cell in row.cells})
    assert shown.checks[:1] == ("node-reachable",)
    assert len(shown.folded) > 40
    assert "not_run" in out.rest.outcomes  # who is out says so in the column that is shared, too
    assert all(row.rest.outcome == "pass" for row in shown.rows if row.size and row is not out)


def test_a_cell_says_which_gpu_it_is():
    shown = matrix.matrix(document(planted("gpu-ecc", "ecc-dram")))
    cell = next(row for row in shown.rows if row.names == "gpu01").cells[shown.checks.index("gpu-ecc")]
    assert cell.outcome == "mixed"
    assert cell.shares[4] == ("fail", 1)
    assert cell.about == "7 pass, 1 fail (GPU 4)"


def test_of_many_nodes_those_that_are_alike_share_a_row():
    """As on a large cluster: the odd ones out come first, and none is lost."""
    checks, nodes = ("a", "b"), [f"gpu{n:02d}" for n in range(1, 101)]
    results = [
        Result(check, Scope.GPU, Subject(node, gpu), Verdict.PASS)
        for check in checks
        for node in nodes
        for gpu in range(8)
    ]
    results[3 * 8 + 5] = replace(results[3 * 8 + 5], verdict=Verdict.FAIL)  # check a on gpu04
    results[:8] = [replace(result, verdict=Verdict.NOT_RUN) for result in results[:8]]  # check a on gpu01
    shown = matrix.matrix(document(results=tuple(results)))
    assert [(row.names, row.size) for row in shown.rows] == [
        ("gpu04", 1),
        ("gpu01", 1),
        ("gpu02, gpu03, gpu05-gpu100", 98),
    ]
    assert [row.names for row in shown.every] == nodes


def test_counts_stand_beside_what_was_expected():
    (clock,) = [one for one in measured.spreads(document()) if one.check == "clock"]
    assert (clock.unit, clock.expected) == ("s", (2.0,))
    assert clock.lowest == clock.middle == clock.highest == 0


def test_a_slow_node_is_a_cross_among_the_pairs():
    found = pairs.pairs(document(planted("pair-bandwidth", "slow-node")))
    slow = {place for place, (_, verdict) in found.measured.items() if verdict == "fail"}
    rows = [row for row in range(3) if all((row, c) in slow for c in range(3) if c != row)]
    assert len(rows) == 1
    assert 'class="fail"' in pairs.svg(found)
    assert {name for name, _, verdict in pairs.slowest(found) if verdict == "fail"} == {
        f"{found.nodes[a]} - {found.nodes[b]}" for a, b in slow if a < b
    }
    assert pairs.pairs(document(results=())) is None
