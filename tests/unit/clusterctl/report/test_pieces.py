"""Reports of very many lines are written in pieces: never one text, and the same text all the same."""

from __future__ import annotations

from xml.etree import ElementTree as ET

import pytest
from tests.support.judged import hostile, many

from clustercheck.parse.plain_text import plain_text
from clusterctl.report import files, junit, prometheus

WHOLE = {"junit": junit.render, "prometheus": prometheus.render}


@pytest.mark.parametrize("form", WHOLE)
def test_a_large_report_comes_in_pieces_that_are_cleaned_alike(form):
    made = many(70)
    pieces = list(files.REPORTS[form][1](made))
    whole = WHOLE[form](made)
    assert "".join(pieces) == plain_text(whole)
    assert len(pieces) >= whole.count("\n") // (2 * files.LINES_AT_ONCE) > 2
    assert all(piece.endswith("\n") for piece in pieces)


@pytest.mark.parametrize("form", WHOLE)
def test_what_a_node_said_is_cleaned_in_pieces_as_in_the_whole(form):
    made = hostile()
    assert "".join(files.REPORTS[form][1](made)) == plain_text(WHOLE[form](made))


def test_the_xml_is_as_a_library_would_write_it():
    """Escapes, order of attributes and indents: written by hand, since a tree of it all takes its memory."""
    text = junit.render(hostile())
    root = ET.fromstring(text)  # noqa: S314 - our own
    ET.indent(root)
    assert text == f'<?xml version="1.0" encoding="UTF-8"?>\n{ET.tostring(root, encoding="unicode")}\n'
