"""What the bench of pulls makes and writes: an image that an engine takes, and a table between its marks."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest
from tests.bench import locate_figures, pull_figures, validation_parts


def test_the_table_of_pulls_stands_between_its_marks(tmp_path: Path) -> None:
    document = tmp_path / "performance.md"
    document.write_text("before\n{}\nold\n{}\nafter\n".format(*pull_figures.MARKS), encoding="utf-8")
    one = {
        "bytes": 10**9, "link_mbps": 400, "limit_s": 42.5, "pull": [50.0, 60.0, 55.0], "download": [45.0],
        "moved": [1.01], "apply": [70.0], "measured": "2026-01-01",
    }  # fmt: skip
    pull_figures.write(document, {"2": one, "8": {"problems": ["no lab"]}}, "the command")
    text = document.read_text(encoding="utf-8")
    assert text.startswith("before\n")
    assert text.endswith("\nafter\n")
    assert "old" not in text
    row = "| 2 | 2.00 GB | 400 Mbit/s | 42.5 s | 55.0 s (3) | 45.0 s | 77% | 1.01 | 70.0 s | 2026-01-01 |"
    assert row in text
    assert "- 8: no lab" in text
    document.write_text("no marks", encoding="utf-8")
    with pytest.raises(ValueError, match="no place"):
        pull_figures.write(document, {}, "the command")


def test_the_tables_and_the_picture_of_the_search_are_made_of_its_figures(tmp_path: Path) -> None:
    document = tmp_path / "performance.md"
    document.write_text("before\n{}\n{}\nafter\n".format(*locate_figures.MARKS), encoding="utf-8")
    one = {
        "right": 3,
        "unsure": 1,
        "false": 0,
        "rounds": [7, 8, 8, 9],
        "trials": 40,
        "bound": 14,
        "tellable": True,
    }
    large = {**one, "right": 4, "unsure": 0, "rounds": [9, 9, 9, 11], "bound": 20}
    kept = {"8": {"node": {"1": one, "2": one}}, "64": {"node": {"1": large}}}
    locate_figures.write(document, kept, "the command")
    text = document.read_text(encoding="utf-8")
    assert "| 8 | 8 | 6 (75.00%) | 2 (25.00%) | 0 (0.00%) | 9 | 14 | 9 | 14 |" in text
    assert "| 8 | node | 75 % / 75 % | 25 % / 25 % | 0 / 0 | 8, 9 | 14 | 40 | 4 / 4 |" in text
    root = ElementTree.fromstring(locate_figures.picture(kept, ["node"]))  # noqa: S314 - our own
    lines = root.findall("{http://www.w3.org/2000/svg}polyline")
    assert len(lines) == 2
    heights = [[float(point.partition(",")[2]) for point in line.attrib["points"].split()] for line in lines]
    assert all(bound < seen for bound, seen in zip(*heights, strict=True))  # the bound lies above


def test_the_parts_of_a_validation_are_all_of_it(tmp_path: Path) -> None:
    told = [
        (1.0, "suite"), (2.0, "probe"), (4.0, "probe"), (4.5, "result"),
        (5.0, "job"), (6.0, "job_placed"), (7.0, "job_started"), (8.0, "job_started"),
        (11.0, "job_node_ended"), (12.0, "job_node_ended"), (12.5, "job_finished"),
        (13.0, "job"), (14.0, "job_finished"), (15.0, "verdict"),
    ]  # fmt: skip
    parts = validation_parts.parts(told, 20.0)
    assert parts == {"program": 6.0, "looking": 3.0, "jobs at work": 4.0, "containers": 4.5, "judging": 2.5}
    with pytest.raises(ValueError, match="no verdict"):
        validation_parts.parts(told[:-1], 20.0)
    document = tmp_path / "performance.md"
    document.write_text("before\n{}\n{}\nafter\n".format(*validation_parts.MARKS), encoding="utf-8")
    one = {"runs": [{"wall": 20.0, **parts}], "verdict": "pass", "measured": "2026-01-01"}
    validation_parts.write(document, {"3": one}, "the command")
    row = "| 3 | 20.0 s (1) | 6.0 s | 3.0 s | 4.0 s | 4.5 s | 2.5 s | 2.86 | pass | 2026-01-01 |"
    assert row in document.read_text(encoding="utf-8")
