"""A result document read again: the same document, within bounds, whatever version wrote it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.support.judged import compared, failing, hostile, incomplete, passing

from clustercheck.model import Coverage, Result, Scope, Subject, Verdict
from clustercheck.parse.reading import CannotReadError
from clustercheck.result import reading
from clustercheck.result.document import Document

Json = dict[str, Any]


@pytest.fixture(scope="module")
def written() -> str:
    """A failing document with figures, as JSON."""
    return json.dumps(failing().as_json())


@pytest.mark.parametrize("make", [passing, failing, incomplete, compared, hostile])
def test_what_is_read_is_written_byte_for_byte_the_same(make: Callable[[], Document]) -> None:
    text = json.dumps(make().as_json())
    assert json.dumps(reading.read(text).as_json()) == text


def test_figures_are_judged_as_they_were() -> None:
    made = compared()
    read = reading.read(json.dumps(made.as_json()))
    for before, after in zip(made.results, read.results, strict=True):
        for one, again in zip(before.figures, after.figures, strict=True):
            assert again.verdict is one.verdict
            assert again.figure.efficiency == one.figure.efficiency


@pytest.mark.parametrize(("measured", "efficiency"), [(0.0, 0.0), (0.01, 0.0), (5.0, 1.0), (5, 0.3333)])
def test_an_efficiency_is_kept_also_at_its_ends(written: str, measured: float, efficiency: float) -> None:
    made = json.loads(written)
    figure = next(f for result in made["results"] for f in result.get("figures", ()))
    figure.update(measured=measured, efficiency=efficiency)
    read = reading.read(json.dumps(made))
    first = next(judged for result in read.results for judged in result.figures)
    assert first.figure.efficiency == efficiency
    assert first.figure.measured == measured


def test_a_document_of_an_older_version_lacks_what_was_added_later(written: str) -> None:
    made = json.loads(written)
    del made["coverage"]["warning"]
    for result in made["results"]:
        for added in ("severity", "margin", "figures"):
            result.pop(added, None)
    read = reading.read(json.dumps(made))
    assert read.coverage.warnings == 0
    assert {result.figures for result in read.results} == {()}
    assert read.verdict == made["verdict"]


def test_members_of_a_newer_version_are_ignored(written: str) -> None:
    made = json.loads(written)
    made["weather"] = made["results"][0]["weather"] = "fine"
    assert len(reading.read(json.dumps(made)).results) == len(made["results"])


@pytest.mark.parametrize(
    ("because", "waived"),
    [
        ("excluded by ops until 2026-12-01: bad cable", True),
        ("gpu02 is taken out: bad cable", True),
        ("the node is virtual (docker)", False),
    ],
)
def test_before_the_flag_the_reason_says_what_the_operator_waived(because: str, *, waived: bool) -> None:
    result = Result("xid", Scope.HOST, Subject("gpu02"), Verdict.EXCLUDED, because=because)
    made = replace(passing(), results=(result,))
    (read,) = reading.read(json.dumps(made.as_json())).results
    assert read.waived is waived


def test_the_flag_is_read_where_it_is_written() -> None:
    result = Result("xid", Scope.HOST, Subject("gpu02"), Verdict.EXCLUDED, because="so", waived=True)
    (read,) = reading.read(json.dumps(replace(passing(), results=(result,)).as_json())).results
    assert read.waived


def change_first(**members: Any) -> Callable[[Json], None]:
    return lambda made: made["results"][0].update(members)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda made: made.pop("schema"), "schema: Field required"),
        (lambda made: made.update(schema="clusterctl/baseline/1"), "schema: "),
        (lambda made: made.pop("coverage"), "coverage: Field required"),
        (lambda made: made["coverage"].update({"fail": -1}), "coverage.fail: "),
        (lambda made: made.update(verdict="pass"), "its verdict is pass, by its coverage it is fail"),
        (lambda made: made.update(simulated="no"), "simulated: "),
        (lambda made: made.update(results={}), "results: "),
        (change_first(verdict="perhaps"), "results.0.verdict: "),
        (change_first(subject=None), "results.0.subject"),
        (change_first(subject={"node": "gpu01", "gpu": 10**9, "peer": None}), "results.0.subject.gpu: "),
        (change_first(measured=[1]), "results.0.measured"),
        (change_first(efficiency=1.5), "results.0.efficiency: "),
        (change_first(because="x" * (reading.MAX_TEXT + 1)), "results.0.because: "),
    ],
)
def test_what_is_not_a_result_document_is_refused_with_the_place(
    written: str, change: Callable[[Json], Any], said: str
) -> None:
    made = json.loads(written)
    change(made)
    with pytest.raises(CannotReadError) as refused:
        reading.read(json.dumps(made))
    assert str(refused.value).startswith(said)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "[" * 100_000, b"\xff"])
def test_what_is_not_even_json_is_refused(text: str | bytes) -> None:
    with pytest.raises(CannotReadError):
        reading.read(text)


def test_evidence_nested_without_end_is_refused(written: str) -> None:
    deep = '{"a":' * 10_000 + "1" + "}" * 10_000
    made = json.loads(written)
    made["results"][0]["evidence"] = "DEEP"
    with pytest.raises(CannotReadError):
        reading.read(json.dumps(made).replace('"DEEP"', deep))


def test_coverage_is_that_of_the_document(written: str) -> None:
    counts = json.loads(written)["coverage"]
    assert reading.read(written).coverage == Coverage(
        counts["expected"], counts["pass"], counts["fail"], counts["not_run"], counts["excluded"]
    )


@pytest.mark.parametrize("member", ["measured", "expected"])
def test_no_whole_number_is_longer_than_formats_have_room_for(written: str, member: str) -> None:
    made = json.loads(written)
    made["results"][0][member] = 10**400
    (first, *_) = reading.read(json.dumps(made)).results
    assert isinstance(getattr(first, member), float)
    made["results"][0][member] = 2**64
    assert getattr(reading.read(json.dumps(made)).results[0], member) == 2**64
    made["coverage"]["expected"] = 10**400
    with pytest.raises(CannotReadError, match="expected"):
        reading.read(json.dumps(made))
