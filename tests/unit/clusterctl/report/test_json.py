"""The result document as JSON: its schema knows every word of the code, and every state that there is."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from tests.support.judged import compared, failing, incomplete, passing
from tests.support.tree import ROOT

from clustercheck.checks.all import CHECKS
from clustercheck.checks.base import evaluate
from clustercheck.model import Direction, Part, Scope, Severity, Verdict
from clustercheck.result.document import Document
from clustercheck.running.coverage import count_coverage
from clustercheck.samples.sample import healthy
from clusterctl.report import files

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    path = ROOT / "docs" / "result.schema.json"
    return json.loads(path.read_text(encoding="utf-8"))


def test_the_schema_knows_the_words_of_the_code_and_no_other(schema):
    result, figure, part = (schema["$defs"][name] for name in ("result", "figure", "part"))
    assert result["properties"]["verdict"]["enum"] == [word.value for word in Verdict]
    assert result["properties"]["scope"]["enum"] == [word.value for word in Scope]
    assert result["properties"]["severity"]["enum"] == [word.value for word in Severity]
    assert part["properties"]["part"]["enum"] == [word.value for word in Part]
    assert figure["properties"]["better"]["enum"] == [word.value for word in Direction]


def kinds(made: dict[str, Any]) -> list[dict[str, Any]]:
    """Of the results that say the same of many subjects one: a validator takes a millisecond for each."""
    return list({(r["check"], r["verdict"], r["because"]): r for r in made["results"]}.values())


@pytest.mark.parametrize("make", [passing, failing, incomplete, compared])
def test_whole_documents_are_as_the_schema_says(schema, make):
    made = json.loads("".join(files.pieces(make().members())))
    assert made["results"]
    Draft202012Validator(schema).validate({**made, "results": kinds(made)})


def test_every_state_of_a_result_and_of_each_part_is_as_the_schema_says(schema):
    validator = Draft202012Validator({"$defs": schema["$defs"], "$ref": "#/$defs/result"})
    good, seen, parts = healthy(), set(), set()
    made = [
        Document(
            "", "", "", "", "", count_coverage([]), (), tuple(evaluate(check, fault.inject(good))), {}
        ).as_json()
        for check in CHECKS
        for fault in check.faults
    ]
    for result in (result for one in (*made, compared().as_json()) for result in kinds(one)):
        validator.validate(json.loads(json.dumps(result)))
        seen.add(result["verdict"])
        parts |= {(part["part"], part["verdict"]) for f in result.get("figures", ()) for part in f["parts"]}
    assert seen == {word.value for word in Verdict}
    assert parts >= {
        ("ceiling", "pass"), ("ceiling", "not_run"), ("floor", "pass"), ("floor", "fail"),
        ("baseline", "pass"), ("baseline", "fail"), ("peers", "pass"), ("peers", "fail"),
    }  # fmt: skip


@given(st.dictionaries(st.text(), JSON, max_size=5))
def test_pieces_are_the_whole_document(made):
    assert json.loads("".join(files.pieces(made))) == made


def test_a_result_stands_on_a_line_of_its_own():
    made = failing()
    lines = "".join(files.pieces(made.members())).splitlines()
    assert sum(line.startswith(' {"check": ') for line in lines) == len(made.results)
    assert max(map(len, files.pieces(compared().members()))) < 200_000  # never the whole document at once
