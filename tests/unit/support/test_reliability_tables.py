"""The campaigns' records become the tables of docs/reliability.md."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.lab import reliability

from clusterlab import faults

PAGE = "\n".join(["# Page", *reliability.FAULTS, "between", *reliability.CLEAN, "the end", ""])
RECORD = {
    "node": "gpu02",
    "gpu": 5,
    "peer": None,
    "checks": ["pcie-link", "gpu-transfer"],
    "blamed": {"scope": "gpu", "node": "gpu02", "gpu": 5, "peer": None},
    "seconds": 41.6,
}


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    (tmp_path / "reliability.md").write_text(PAGE, encoding="utf-8")
    return tmp_path


def test_a_record_is_a_row_and_what_stands_around_stays(docs: Path) -> None:
    reliability.keep(docs, "faults", "pcie-narrow", RECORD)
    text = (docs / "reliability.md").read_text(encoding="utf-8")
    row = "| `pcie-narrow` | gpu02 GPU 5 | `pcie-link`, `gpu-transfer` | gpu gpu02 GPU 5 | 42 s | "
    assert text.count(row) == 1
    assert "between" in text
    assert text.endswith("the end\n")


def test_a_later_record_takes_the_place_of_an_earlier_one(docs: Path) -> None:
    reliability.keep(docs, "faults", "xid", {**RECORD, "seconds": 1})
    reliability.keep(docs, "faults", "pcie-narrow", RECORD)
    reliability.keep(docs, "faults", "xid", RECORD)
    kept = json.loads((docs / "reliability.json").read_text(encoding="utf-8"))["faults"]
    assert list(kept) == ["pcie-narrow", "xid"]
    assert kept["xid"]["seconds"] == RECORD["seconds"]


def test_clean_runs_are_counted(docs: Path) -> None:
    reliability.keep(docs, "clean runs", "quick", {"alarms": 0, "seconds": [30.0, 50.0, 31.0]})
    assert "| `quick` | 3 | 0 | 31 s | " in (docs / "reliability.md").read_text(encoding="utf-8")


def test_a_page_without_a_place_is_said(docs: Path) -> None:
    (docs / "reliability.md").write_text("# Page\n", encoding="utf-8")
    with pytest.raises(ValueError, match="no place"):
        reliability.keep(docs, "faults", "xid", RECORD)


def test_the_page_in_the_tree_is_made_of_what_was_kept(repository: Path, tmp_path: Path) -> None:
    kept = json.loads((repository / "docs/reliability.json").read_text(encoding="utf-8"))
    page = (repository / "docs/reliability.md").read_text(encoding="utf-8")
    (tmp_path / "page.md").write_text(page, encoding="utf-8")
    reliability.write(tmp_path / "page.md", kept)
    assert (tmp_path / "page.md").read_text(encoding="utf-8") == page


def test_the_page_on_support_has_seen_in_the_lab_what_found_a_fault_there(repository: Path) -> None:
    kept = json.loads((repository / "docs/reliability.json").read_text(encoding="utf-8"))["faults"]
    ran = {faults.known()[kind].suite for kind in kept}
    page = (repository / "docs/support.md").read_text(encoding="utf-8")
    rows = [line.split(" | ") for line in page.splitlines() if line.startswith("| Suite `")]
    by_suite = {what.split("`")[1]: lab for what, _, lab, _ in rows}
    assert by_suite
    assert [suite for suite, lab in by_suite.items() if (lab == "never") is (suite in ran)] == []


def test_a_place_says_the_peer() -> None:
    assert reliability.place({"node": "gpu01", "gpu": None, "peer": "gpu03"}) == "gpu01 towards gpu03"
