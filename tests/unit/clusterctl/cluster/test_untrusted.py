"""What hosts answer: bounded, cleaned, typed, and refused in words that hold nothing of it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.hostile import TEXTS, acting_characters

from clustercheck.parse.reading import CannotReadError
from clusterctl.cluster.untrusted import MAX_VALUES, Count, HostAnswer, Sentence, bounded, read_answer_as

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


class Sample(HostAnswer):
    words: Sentence = ""
    number: Count = 0
    more: dict[str, Any] | None = None


@given(JSON)
def test_a_value_is_cleaned_or_refused(value):
    try:
        kept = bounded(value)
    except ValueError:
        return
    assert acting_characters(json.dumps(kept, ensure_ascii=False)) == []
    assert bounded(kept) == kept


@pytest.mark.parametrize("text", TEXTS)
def test_texts_and_names_are_cleaned_wherever_they_stand(text):
    kept = bounded({text: [text, {"a": text}]})
    ((name, (first, inner)),) = kept.items()
    assert acting_characters("".join((name, first, inner["a"]))) == []
    assert "\n" not in name


def deep(levels):
    return [deep(levels - 1)] if levels else []


@pytest.mark.parametrize(
    "value",
    [deep(30), [0] * (MAX_VALUES + 1), 10**30, float("nan"), float("inf"), {1, 2}, b"x"],
    ids=["deep", "many", "large", "nan", "inf", "set", "bytes"],
)
def test_what_no_module_answers_is_refused(value):
    with pytest.raises(ValueError, match="it "):
        bounded(value)


@pytest.mark.parametrize(
    "value",
    [None, 1, [], "x", {"words": 1}, {"words": None}, {"number": "1"}, {"number": -1}, {"number": True},
     {"number": 1.5}, {"more": []}, {"number": {"\x1b[2J": "\x1b[2J"}}],
    ids=str,
)  # fmt: skip
def test_an_answer_of_the_wrong_kind_is_refused_without_its_words(value):
    with pytest.raises(CannotReadError, match="its answer cannot be read: ") as refused:
        read_answer_as(Sample, value, "its answer")
    assert acting_characters(str(refused.value)) == []
    assert len(str(refused.value)) < 200


def test_what_a_later_version_says_besides_is_passed_over():
    assert read_answer_as(Sample, {"words": " a  b ", "new": [1]}, "it") == Sample(words="a b")
