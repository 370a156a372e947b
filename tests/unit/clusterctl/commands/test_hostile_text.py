"""What a hostile host, registry or file says, printed by every command: it acts on no terminal."""

from __future__ import annotations

import json

import pytest
from tests.support.hostile import TEXTS, acting_characters
from tests.support.renderings import RENDERINGS, captured, document_of, draw_live, reports_of

from clusterctl.live_area import LiveArea
from clusterctl.live_area import _fitting as fitting

from ..report.report_documents import failing


@pytest.mark.parametrize("colours", [False, True], ids=["plain", "colours"])
@pytest.mark.parametrize("command", RENDERINGS)
def test_only_our_styles_reach_the_terminal(command, colours):
    for text in TEXTS:
        printed = captured(RENDERINGS[command], text, colours=colours)
        assert acting_characters(printed.out, styled=colours) == [], text
        assert acting_characters(printed.err, styled=colours) == [], text
        for line in printed.out.splitlines():
            if line.startswith("{"):
                json.loads(line)


@pytest.mark.parametrize("command", RENDERINGS)
def test_harmless_text_is_printed_as_it_is(command):
    printed = captured(RENDERINGS[command], "[bold]plain[/]")
    assert "[bold]plain[/]" in printed.out + printed.err


def test_the_live_screen_draws_what_it_draws_for_harmless_text(monkeypatch):
    drawn = []
    monkeypatch.setattr(
        LiveArea, "draw", lambda _, lines: drawn.extend(fitting(one, 90).plain for one in lines)
    )
    for text in TEXTS:
        printed = captured(draw_live, text, colours=True)
        assert acting_characters(printed.err, styled=True) == []
    assert drawn
    assert acting_characters("".join(drawn)) == []


def test_no_report_holds_what_acts_on_a_terminal():
    for name, report in reports_of(document_of(failing(), "".join(TEXTS))).items():
        assert acting_characters(report) == [], name
