"""Reports: the four parts of an expectation, each by itself; the baseline; maps and nodes."""

from __future__ import annotations

import re
from dataclasses import replace
from html import unescape

import pytest
from tests.support.judged import compared, failing, many, passing

from clustercheck.model import Direction, Part, Verdict
from clusterctl.report import change, expectation, heat, html, inventory, nodes

SLOW = ("gpu04", 2)  # in `compared`: all that it computes takes longer


@pytest.fixture(scope="module")
def against_baseline():
    return compared()


def test_every_quantity_is_held_to_the_parts_that_could_be_asked(against_baseline):
    made = {(one.check, one.metric): one for one in expectation.quantities(against_baseline)}
    gemm = made["gpu-gemm", "gemm_bf16"]
    assert list(gemm.limits) == list(Part)
    assert {part: one.verdict for part, one in gemm.limits.items()} == {
        "ceiling": "pass", "floor": "pass", "baseline": "fail", "peers": "fail",
    }  # fmt: skip
    assert gemm.limits["peers"].who == "gpu04, GPU 2"
    assert gemm.limits["peers"].margin < 0 < gemm.limits["floor"].margin
    assert gemm.limits["ceiling"].lowest > gemm.highest > gemm.limits["floor"].highest
    assert gemm.limits["peers"].asked == len(gemm.figures) == 64
    assert {part for part, source, method in gemm.grounds if source} == set(Part)
    assert 0 < gemm.shares[0][0] < gemm.shares[-1][0] < 1
    assert all(0 < floor < 1 for floor in gemm.floors)


def test_a_result_tells_of_each_part_its_limit_margin_source_and_method(against_baseline):
    page = html.render(against_baseline)
    start = page.index('id="check-gpu-gemm"')
    article = unescape(page[start : page.index("</article>", start)])
    (failed,) = [
        result
        for result in against_baseline.results
        if result.check == "gpu-gemm" and result.verdict is Verdict.FAIL
    ]
    for judged in failed.figures:
        assert expectation.metric_name(judged.figure.metric) in article
        for part in judged.parts:
            assert f"<td>{part.part}</td>" in article
            assert f"{part.margin:+.1%}" in article
            assert part.source in article
            assert part.method in article


@pytest.mark.parametrize(
    ("part", "better", "sign"),
    [
        ("ceiling", "higher", "≤"),
        ("floor", "higher", "≥"),
        ("peers", "lower", "≤"),
        ("ceiling", "lower", "≥"),
    ],
)
def test_a_limit_is_said_in_its_direction(part, better, sign):
    assert expectation.bound(Part(part), Direction(better)) == sign


def test_a_size_is_said_in_the_units_of_messages():
    assert expectation.metric_name("busbw_67108864") == "busbw 64 MiB"
    assert expectation.metric_name("gemm_bf16") == "gemm bf16"


def test_the_comparison_says_what_is_slower_than_it_was_and_what_could_not_be_compared(against_baseline):
    found = change.comparison(against_baseline)
    made = {one.metric: one for one in found.changes if one.check == "gpu-gemm"}
    assert change.worst_name(made["gemm_bf16"]) == "gpu04, GPU 2"
    assert made["gemm_bf16"].worst.change == pytest.approx(-0.09, abs=1e-3)
    assert made["gemm_bf16"].before == pytest.approx(268.0, rel=1e-3)  # the limit has the tolerance taken off
    assert made["gemm_bf16"].beyond == 1
    assert made["gemm_bf16"].compared == 63  # a GPU that was replaced is compared with nothing
    assert not change.is_even(made["gemm_bf16"])
    latency = next(one for one in found.changes if one.metric == "kernel_launch_wall")
    assert latency.before == pytest.approx(14.0, rel=1e-2)
    assert change.is_even(latency)
    assert [text.rpartition(": ")[2] for text in found.differs] == ["gpu02"]
    assert "gpu02 GPU 5 is another one" in found.not_compared[0]
    page = html.render(against_baseline)
    assert page.index('id="measured"') < page.index('id="baseline"') < page.index('id="checks"')


def test_without_a_baseline_nothing_is_compared():
    assert change.comparison(passing()) is None
    assert 'id="baseline"' not in html.render(passing())


def test_a_map_shades_each_gpu_by_its_distance_from_the_median(against_baseline):
    made = {one.metric: one for one in heat.maps(against_baseline)}
    node, gpu = SLOW
    assert made["gemm_bf16"].cells[node][gpu].shade == "fail"
    others = {cell.shade for row in made["gemm_bf16"].cells.values() for cell in row.values()} - {"fail"}
    assert others == {"even"}
    assert not made["gemm_bf16"].even
    assert made["device_copy"].even
    assert heat.shade(95.0, "pass", 100.0, 1) == "low2"
    assert heat.shade(95.0, "pass", 100.0, -1) == "up2"  # of a latency less is better
    assert heat.shade(85.0, "pass", 100.0, 1) == "low3"


def test_a_lost_gpu_is_a_hole_in_the_map():
    made = next(one for one in heat.maps(failing()) if one.metric == "gemm_bf16")
    assert set(made.cells["gpu01"]) == set(range(8))
    for row in made.cells.values():
        assert row


def test_a_map_of_many_nodes_has_a_cell_for_every_gpu_and_stays_small():
    made = {
        f"gpu{n:04d}": {gpu: heat.HeatCell(1.0, "even" if gpu != 5 else "low1") for gpu in range(8)}
        for n in range(1000)
    }
    text = str(heat.svg(heat.Map("gpu-gemm", "gemm_bf16", "TFLOPS", 1.0, 8, made)))
    strokes = {
        name: sum(float(length) for length in re.findall(r"h([\d.]+)", path))
        for name, path in re.findall(r'<path class="(\w+)" d="([^"]+)"', text)
    }
    assert strokes == {"even": 7000 * 4, "low1": 1000 * 4}
    assert len(text) < 60_000
    width, height = map(int, re.search(r'viewBox="0 0 (\d+) (\d+)"', text).groups())
    for x, y, length in re.findall(r"M([\d.]+) ([\d.]+)h([\d.]+)", text):
        assert 0 <= float(x) <= float(x) + float(length) <= width
        assert 0 < float(y) < height


def test_every_node_has_its_section_with_what_it_is_and_what_was_found(against_baseline):
    found = nodes.sections(against_baseline, heat.maps(against_baseline))
    assert [node.name for node in found.shown] == [f"gpu{n:02d}" for n in range(1, 9)]
    slow = found.shown[3]
    assert slow.outcome == "fail"
    assert {row.first.check for row in slow.rows} == {"gpu-gemm", "gpu-burn"}
    assert slow.gpus[2].serial == "1650000040002"
    assert ("driver", "580.95.05") in slow.facts
    page = html.render(against_baseline)
    for node in found.shown:
        assert f'<details id="node-{node.name}"' in page
    assert '<a href="#node-gpu04">gpu04, GPU 2</a>' in page


def test_where_a_gpu_is_gone_no_serial_stands_beside_another():
    found = nodes.sections(failing(), ())
    gone = next(node for node in found.shown if node.name == "gpu03")
    assert {gpu.serial for gpu in gone.gpus} == {""}


@pytest.mark.parametrize("gpus", [[[]], [1], {"a": 1}, 7, "x"])
def test_a_list_of_gpus_that_is_none_gives_no_serial(gpus):
    made = failing()
    recorded = {**made.environment["nodes"]["gpu03"], "gpus": gpus * 8 if isinstance(gpus, list) else gpus}
    environment = {**made.environment, "nodes": {**made.environment["nodes"], "gpu03": recorded}}
    found = nodes.sections(replace(made, environment=environment), ())
    assert {gpu.serial for node in found.shown if node.name == "gpu03" for gpu in node.gpus} == {""}


def test_of_many_nodes_the_troubled_ones_have_sections():
    made = many(200)
    found = nodes.sections(made, heat.maps(made))
    assert {node.name for node in found.shown} == {"gpu13", "gpu17", "gpu42", "gpu60"}
    assert found.passed_count == 196
    assert found.passed.startswith("gpu01-gpu12, gpu14-gpu16")


def test_the_lock_is_part_of_the_environment():
    image = {"name": "training", "tag": "3.0", "digest": f"sha256:{'0' * 64}", "cuda": "12.6"}
    made = passing()
    made = replace(made, environment={**made.environment, "lock": {"driver": "580", "images": [image]}})
    table = inventory.locked(made)
    assert table.columns == ("name", "tag", "digest", "cuda")
    assert f"<td>sha256:{'0' * 64}</td>" in html.render(made)
    assert inventory.locked(passing()) is None
