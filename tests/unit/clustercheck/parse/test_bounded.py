"""A document of others: in plain text, and refused where no honest one is as large."""

from __future__ import annotations

import json
import tracemalloc
from typing import Any

import pytest

from clustercheck.parse.bounded import MAX_KEY, Bounds, clean, cut
from clustercheck.parse.document import MAX_VALUES, read_answer, read_json
from clustercheck.parse.reading import CannotReadError

BOUNDS = Bounds(text=20, long_texts={"stdout": 50}, prose={"because": 30, "errors": 30}, entries=3)


def test_texts_and_names_are_plain() -> None:
    found = clean(
        {"a\x1b[2J": ["\x1b]52;c;cm0=\x07b", {"c": "\u202ed\te\n"}], "n": 1, "f": None}, BOUNDS, "it"
    )
    assert found == {"a": ["b", {"c": "d\te\n"}], "n": 1, "f": None}


@pytest.mark.parametrize(
    "document",
    [
        {"a": "x" * 21},
        {"a": [{"b": "x" * 21}]},
        {"stdout": "x" * 51},
        {"stdout": {"b": "x" * 21}},
        {"a": [1, 2, 3, 4]},
        {"a": dict.fromkeys("abcd")},
        {"a" * (MAX_KEY + 1): 1},
    ],
)
def test_what_is_larger_than_honest_documents_is_refused(document: dict[str, Any]) -> None:
    with pytest.raises(CannotReadError, match=r"^it.* (characters|entries)"):
        clean(document, BOUNDS, "it")


def test_of_prose_the_start_is_kept_and_of_output_all() -> None:
    found = clean({"stdout": "x" * 50, "because": "y" * 99, "errors": {"smi": "z" * 99}}, BOUNDS, "it")
    assert found["stdout"] == "x" * 50
    assert found["because"].startswith("yy") and len(found["because"]) <= 30
    assert found["errors"]["smi"].startswith("zz") and len(found["errors"]["smi"]) <= 30


@pytest.mark.parametrize(
    "text",
    [
        '{"a": [' + "[], " * MAX_VALUES + "[]]}",
        '{"a": [' + "{}, " * MAX_VALUES + "{}]}",
        '{"a": [' + "1, " * MAX_VALUES + "1]}",
        '{"a": [' + '"", ' * MAX_VALUES + "1]}",
        '{"a": "' + '\\"' * 2_000_000 + '[[[[[,,,,,"' + ",[" * MAX_VALUES * 2,
        '{"a": "' + "\\" * 2_000_001 + ",[" * MAX_VALUES * 2,
    ],
)
def test_too_many_values_are_refused_before_they_take_memory(text: str) -> None:
    tracemalloc.start()
    with pytest.raises(CannotReadError):
        read_answer(text, "it")
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 10 * len(text) + 5_000_000


def test_commas_and_brackets_of_texts_are_no_values() -> None:
    text = json.dumps({"log": '[0] -> 1, {"\\' * 3 * MAX_VALUES})
    assert read_answer(text, "it") == json.loads(text)


@pytest.mark.parametrize("number", ["1e999999999", "1e-999999999", "0e999999999", "9" * 30])
def test_numbers_that_would_fill_the_memory_are_refused(number: str) -> None:
    with pytest.raises(CannotReadError, match="number"):
        read_json(f'{{"a": {number}}}', "it")
    if "e" not in number:
        with pytest.raises(CannotReadError, match="number"):
            read_answer(f'{{"a": {number}}}', "it")


def test_evidence_is_cut_to_size_and_says_so() -> None:
    small = {"a": "x", "b": {"c": [1, 2.5, None]}}
    assert cut(small, text=10, characters=1000) == small
    found = cut({"a": "x" * 99, "b": ["y" * 9] * 100}, text=40, characters=300)
    assert len(found["a"]) <= 40
    assert 0 < len(found["b"]) < 100
    assert found["values omitted"] == 100 - len(found["b"])
