"""How much there is in JSON is counted before it is read; marks in its texts are none."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clustercheck.parse import document
from clustercheck.parse.document import count_marks, has_more_values

TEXTS = st.text(alphabet=st.sampled_from('a,[{:"\\\n\N{GREEK SMALL LETTER ALPHA}'), max_size=12)
DOCUMENTS = st.recursive(
    st.one_of(st.integers(), TEXTS),
    lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner),
    max_leaves=20,
)


def counted(value: Any) -> tuple[int, int, int]:
    """Commas and brackets, objects and members."""
    if isinstance(value, (list, dict)):
        inside = [counted(one) for one in (value.values() if isinstance(value, dict) else value)]
        values, objects, members = (sum(one[n] for one in inside) for n in range(3))
        is_object = isinstance(value, dict)
        commas = max(0, len(value) - 1)
        return values + commas + 1, objects + is_object, members + (len(value) if is_object else 0)
    return 0, 0, 0


@given(DOCUMENTS, st.integers(1, 40))
def test_marks_outside_of_texts_are_counted_wherever_a_piece_ends(value: Any, piece: int) -> None:
    content = json.dumps(value, ensure_ascii=False).encode()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(document, "PIECE", piece)
        exact, most = count_marks(content, exactly=True), count_marks(content)
    assert (exact.values, exact.objects, exact.members) == counted(value)
    assert most.values >= exact.values


def test_a_text_full_of_marks_is_one_value_and_an_end_that_is_missing_hides_none() -> None:
    assert not has_more_values(json.dumps(["," * 1000]).encode(), 2)
    assert has_more_values(b"[" + b"0," * 1000, 999)
    assert has_more_values(b"[" + b"0," * 1000 + b'\\"', 999)
