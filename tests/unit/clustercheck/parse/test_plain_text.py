"""No text of others acts on a terminal, or is longer than asked."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.hostile import acting_characters

from clustercheck.parse.plain_text import in_ranges, one_line, plain_text, shortened, some_of


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("6.8.0-31-generic", "6.8.0-31-generic"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x9b31mred", "red"),
        ("a\x1b]0;title\x07b", "ab"),
        ("a\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\b", "alinkb"),
        ("a\x1b]52;c;cm0gLXJm\x07b", "ab"),
        ("a\x9d52;c;cm0gLXJm\x9cb", "ab"),
        ("a\x1bPq#0\x1b\\b", "ab"),
        ("a\x1b(Bb\x1bcd", "abd"),
        ("a\rb\x08c\x7f", "abc"),
        ("abc\u202egnp.exe", "abcgnp.exe"),
        ("a\u2066b\u2069\u200f\u061cc", "abc"),
        ("a\u2028b\u2029c", "abc"),
        ("a\ud800b", "ab"),
        ("two\nlines\tand a tab", "two\nlines\tand a tab"),
        ("Grüße, 東京 🙂", "Grüße, 東京 🙂"),
    ],
)
def test_what_acts_on_a_terminal_is_removed(text: str, wanted: str) -> None:
    assert plain_text(text) == wanted


@given(
    st.text(st.characters(exclude_categories=()) | st.sampled_from("\x1b[]P;\x07\\\x9b\x9d52c"), max_size=60)
)
def test_nothing_is_left_that_is_a_control(text: str) -> None:
    assert acting_characters(plain_text(text)) == []


@given(st.text(max_size=400), st.integers(60, 200))
def test_no_text_is_longer_than_its_limit(text: str, limit: int) -> None:
    assert len(shortened(text, limit)) <= limit
    line = one_line(text, limit)
    assert len(line) <= limit
    assert "\n" not in line


@pytest.mark.parametrize("shorten", [shortened, one_line])
def test_what_is_shortened_stays_as_it_is_when_it_is_read_again(shorten: Callable[[str, int], str]) -> None:
    for limit in range(60, 70):
        once = shorten("word " * 100, limit)
        assert shorten(once, limit) == once


def test_what_is_omitted_is_counted() -> None:
    text = shortened("x" * 1000, 100)
    assert len(text) == 100
    assert text.endswith("xx [... 900 characters omitted]")


@pytest.mark.parametrize(
    ("names", "sentence"),
    [
        ([], ""),
        (["a"], "a"),
        (["a", "b", "c"], "a, b, c"),
        (["a", "b", "c", "d"], "a, b, c and 1 more"),
        (list("abcdefgh"), "a, b, c and 5 more"),
    ],
)
def test_a_sentence_names_some_and_counts_the_rest(names: list[str], sentence: str) -> None:
    assert some_of(names, 3) == sentence


def test_numbers_that_count_up_are_a_range() -> None:
    assert in_ranges([7, 0, 1, 2, 4, 6]) == "0-2, 4, 6-7"
    assert in_ranges([3, 4], ",") == "3-4"
    assert in_ranges([]) == ""
