"""The last step before a terminal: whatever is printed, only our own styles act on it."""

from __future__ import annotations

import io
import json

import click
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from rich.table import Table
from rich.text import Text
from tests.support.hostile import TEXTS, acting_characters

from clusterctl import console
from clusterctl.console import CleanConsole
from clusterctl.errors import ClusterctlError
from clusterctl.live_area import LiveArea

MARKUP = "[/red] [bold]x[/] [link=http://evil.example]y[/link] :boom: [red"


def printed(*parts, colours=False):
    stream = io.StringIO()
    system = "truecolor" if colours else None
    screen = CleanConsole(file=stream, width=500, force_terminal=colours, color_system=system)
    for part in parts:
        screen.print(part)
    return stream.getvalue()


def table_of(text):
    table = Table(text, title=text)
    table.add_column(Text(text, style="red"))
    table.add_row(text, Text("busy: ", style="red").append(text, style="yellow"))
    return table


@pytest.mark.parametrize("colours", [False, True], ids=["plain", "colours"])
@pytest.mark.parametrize("text", TEXTS)
def test_only_our_styles_act_on_a_terminal(text, colours):
    out = printed(
        text, Text(text, style="red"), Text.assemble("a", (text, "bold")), table_of(text), colours=colours
    )
    assert acting_characters(out, styled=colours) == []
    assert ("\x1b[" in out) is colours


@given(st.text())
def test_no_text_at_all_acts_on_a_terminal(text):
    assert acting_characters(printed(text, Text(text), table_of(text))) == []


def test_markup_of_others_is_text():
    assert printed(MARKUP) == f"{MARKUP}\n"
    assert printed(table_of(MARKUP)).count(MARKUP) == 5


def test_what_json_cannot_say_is_null(capsys: pytest.CaptureFixture[str]) -> None:
    """A file that others wrote may hold it: json.loads takes Infinity, NaN and 1e999."""
    console.emit({"days": float("inf"), "of": [float("-inf"), {"n": float("nan")}], "n": 1.5})
    assert capsys.readouterr().out == '{"days": null, "of": [null, {"n": null}], "n": 1.5}\n'


def test_json_has_no_control_character(capsys: pytest.CaptureFixture[str]) -> None:
    text = "".join(map(chr, range(1, 160)))
    console.emit({"x": text})
    out = capsys.readouterr().out
    assert out.isascii()
    assert out.rstrip("\n").isprintable()
    assert json.loads(out) == {"x": text}


def test_our_styles_stay_where_nothing_was_removed():
    out = printed(Text.assemble("is ", ("bad", "red")), colours=True)
    assert out == "is \x1b[31mbad\x1b[0m\n"


@pytest.mark.parametrize("text", TEXTS)
def test_messages_and_questions_are_plain(text, capsys):
    console.say(text)
    console.tell(text, (text, text), style="red")
    console.explain(ClusterctlError(text, code="internal.bug", where=text, hint=text))
    console.write(f"{text}\n")
    console.RESULTS.print(text)
    console.emit({text: [text], "b": {"c": text}})
    captured = capsys.readouterr()
    assert acting_characters(captured.out) == []
    assert acting_characters(captured.err) == []
    assert json.loads(captured.out.splitlines()[-1])[text] == [text]

    @click.command()
    def ask():
        console.confirm(text)

    assert acting_characters(CliRunner().invoke(ask, input="y\n").output) == []


@pytest.mark.parametrize("text", TEXTS)
def test_lines_that_are_redrawn_in_place_hold_nothing_of_others_that_acts(text):
    def drawn(line):
        stream = io.StringIO()
        area = LiveArea(CleanConsole(file=stream, width=120, force_terminal=True, color_system="truecolor"))
        area.draw([line])
        area.draw([Text("another")])
        return stream.getvalue()

    hostile = drawn(Text("a ").append(text, style="red"))
    own = drawn(Text("a harmless line"))
    assert set(acting_characters(hostile, styled=True)) <= set(acting_characters(own, styled=True))
    assert hostile.count("\x1b") <= own.count("\x1b") + 2
