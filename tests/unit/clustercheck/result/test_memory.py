"""What a result takes of memory is known before it is read."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.bench.report_scale import collected, judge

from clustercheck.parse.document import count_marks
from clustercheck.parse.reading import CannotReadError
from clustercheck.result import memory, reading
from clusterctl.report.files import pieces

HEAD = (
    '{"schema": "clusterctl/result/1", "run": "x", "started": "", "finished": "", "cluster": "", "suite": "",'
    ' "verdict": "incomplete", "simulated": false, "coverage": {"expected": 0, "pass": 0, "fail": 0,'
    ' "not_run": 0, "excluded": 0}, "culprits": [], "results": [], "environment": {"a": '
)
MANY = 1_000_000


def result_of(environment: str) -> bytes:
    return (HEAD + environment + "}}").encode()


HOSTILE = {
    "objects within objects": "[" + ('{"a":' * 50 + "0" + "}" * 50 + " " * 120 + ",") * (MANY // 50) + "0]",
    "small objects": "[" + '{"a":0},        ' * MANY + "0]",
    "many members": "{" + ",".join(f'"{number:x}":0' for number in range(MANY // 4)) + "}",
}


@pytest.mark.parametrize("environment", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_result_that_takes_far_more_than_its_size_is_refused(environment: str) -> None:
    with pytest.raises(CannotReadError, match="far more"):
        reading.read(result_of(environment))


def test_a_result_beyond_all_memory_is_refused_with_its_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    content = result_of('"' + "x" * 100_000 + '"')
    assert reading.read(content).run == "x"
    monkeypatch.setattr(memory, "MAX_MEMORY", 100_000)
    with pytest.raises(CannotReadError, match="more than 4,000 nodes"):
        reading.read(content)


def needed_by(content: bytes) -> int:
    return memory.memory_needed(content, count_marks(content))


TEXTS = {
    "escaped": (r"\u0100", r"\u0041"),
    "a pair": (r"\ud83d\ude00", r"\u0041\u0041"),
    "written": ("\U0001f600", "abcd"),
    "after quotes": (r"\"" * 5 + "Ā", r"\"" * 5 + "ab"),
    "after more quotes": (r"\"" * 500 + "Ā", r"\"" * 500 + "ab"),
    "after a backslash": (r"\\" + r"\u0100", r"\\" + r"\u0041"),
    "after backslashes": (r"\\" * 500 + "Ā", r"\\" * 500 + "ab"),
    "after a quote and backslashes": (r"\"" + r"\\" * 500 + "Ā", r"\"" + r"\\" * 500 + "ab"),
}


@pytest.mark.parametrize(("wide", "narrow"), TEXTS.values(), ids=TEXTS.keys())
def test_a_text_with_a_wide_character_takes_four_bytes_for_each(wide: str, narrow: str) -> None:
    long = "x" * 10_000
    needed, others = (needed_by(f'["y", "{long}{one}{long}", "z"]'.encode()) for one in (wide, narrow))
    assert 60_000 < needed - others < 70_000


def test_texts_with_wide_characters_are_read_where_they_are_short() -> None:
    content = result_of("[" + '"0 … 1",' * 10_000 + "0]")
    assert reading.read(content).run == "x"
    assert needed_by(content) < needed_by(content.replace("…".encode(), b"abc")) + 500_000


def test_a_real_result_of_4000_nodes_is_read() -> None:
    nodes = 8
    document = judge(collected(nodes, "quick"), "quick", {})
    members: dict[str, Any] = document.members()
    content = "".join(pieces(members)).encode()
    assert len(json.loads(content)["results"]) > 200 * nodes
    needed = needed_by(content)
    assert needed * 4000 / nodes < memory.MAX_MEMORY
    assert needed < memory.MEMORY_PER_BYTE * len(content)
    assert content.count(b":") < memory.MEMBERS_PER_OBJECT * content.count(b"{")


def test_marks_in_texts_of_a_node_do_not_make_a_result_unreadable() -> None:
    for mark in (",", "[", "{", ":", '\\"[{', "\\\\"):
        content = result_of(json.dumps(mark * 300_000))
        assert reading.read(content).run == "x"


@pytest.mark.parametrize("dense", [[0] * 20_000, [{}] * 20_000, dict.fromkeys(map(str, range(20_000)), 0)])
def test_evidence_that_would_have_the_whole_result_refused_is_omitted(dense: Any, tmp_path: Path) -> None:
    document = judge(collected(3, "quick"), "quick", {})
    results = [
        replace(result, evidence={"said": dense}) if result.subject.node == "gpu02" else result
        for result in document.results
    ]
    hostile = replace(document, results=tuple(results))
    content = "".join(pieces(hostile.members())).encode()
    assert len(reading.read(content).results) == len(results)
    found = {one["subject"]["node"]: one["evidence"] for one in json.loads(content)["results"]}
    assert found["gpu02"] == {"omitted": "it has far more values than its size allows"}
    assert "omitted" not in found["gpu01"]


def test_no_evidence_of_a_real_result_is_omitted() -> None:
    document = judge(collected(8, "full"), "full", {})
    lines = list(map(json.dumps, document.members()["results"]))
    assert len(lines) > 1000
    assert not [line for line in lines if memory.is_dense(line.encode())]
