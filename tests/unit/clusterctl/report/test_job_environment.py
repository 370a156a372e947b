"""What the settings gave the jobs stands in every report that a person reads."""

from __future__ import annotations

from html import unescape

from clustercheck.result.document import Document
from clusterctl.report import html, inventory, markdown, terminal

from .report_documents import document

SAME = {"NCCL_IB_HCA": "=mlx5_0,mlx5_1", "NCCL_IB_TC": "106"}


def with_variables(*by_node: dict[str, str]) -> Document:
    nodes = {f"gpu{n:02d}": {"job_environment": each} for n, each in enumerate(by_node, 1)}
    return document(environment={"nodes": nodes})


def test_what_all_nodes_have_is_named_once() -> None:
    found = with_variables(SAME, SAME, SAME)
    assert inventory.job_environment(found) == ["NCCL_IB_HCA==mlx5_0,mlx5_1", "NCCL_IB_TC=106"]
    line = "environment of the jobs: NCCL_IB_HCA==mlx5_0,mlx5_1, NCCL_IB_TC=106"
    assert line in terminal.render(found, width=140)
    assert "- NCCL\\_IB\\_TC=106\n" in markdown.render(found)
    page = unescape(html.render(found))
    assert "job environment</th><td>NCCL_IB_HCA==mlx5_0,mlx5_1, NCCL_IB_TC=106" in page


def test_what_differs_has_its_nodes() -> None:
    found = with_variables(SAME, {**SAME, "NCCL_IB_TC": "105"}, SAME)
    lines = inventory.job_environment(found)
    assert lines[1:] == ["NCCL_IB_TC=105 on gpu02", "NCCL_IB_TC=106 on gpu01, gpu03"]
    assert all(line.replace("_", "\\_") in markdown.render(found) for line in lines[1:])
    (one,) = inventory.differences(found)
    assert (one.name, one.kinds[1]) == (
        "job_environment",
        ("NCCL_IB_HCA==mlx5_0,mlx5_1, NCCL_IB_TC=105", "gpu02"),
    )


def test_where_nothing_is_set_nothing_is_said() -> None:
    for found in (with_variables({}, {}), document(), document(environment={})):
        assert inventory.job_environment(found) == []
        assert "environment of the jobs" not in terminal.render(found)
        assert "Environment of the jobs" not in markdown.render(found)
        assert "job environment" not in html.render(found)


def test_what_is_set_is_shown_as_text() -> None:
    page = html.render(with_variables({"NCCL_TOPO_FILE": "<script>alert(1)</script>"}))
    assert "<script>alert(1)" not in page
