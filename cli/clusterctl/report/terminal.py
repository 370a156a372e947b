"""A run as a table for the terminal: the verdict first, then who is to blame and what was covered."""

from __future__ import annotations

import io
import os
import shutil
from collections.abc import Collection, Mapping
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from clusterctl.report import view
from clusterctl.report.view import Document

STYLES = {
    "pass": "green",
    "fail": "bold red",
    "warning": "yellow",
    "not_run": "yellow",
    "excluded": "dim",
    "incomplete": "bold yellow",
}
MOST_SHOWN = 8
NARROWEST, WIDEST = 60, 140


def render(document: Document, *, colour: bool = False, width: int | None = None) -> str:
    """The table as text, with colour codes where asked for and NO_COLOR is not set."""
    stream = io.StringIO()
    console = Console(
        file=stream,
        width=max(NARROWEST, min(width or shutil.get_terminal_size((100, 24)).columns, WIDEST)),
        force_terminal=colour and not os.environ.get("NO_COLOR"),
        no_color=not colour,
        highlight=False,
    )
    style = "bold green" if document["verdict"] == "pass" else STYLES.get(str(document["verdict"]), "bold")
    console.print(f"[{style}]{escape(view.headline(document))}[/]")
    console.print(escape(view.blame(document)))
    for culprit in document.get("culprits") or []:
        _print_culprit(console, culprit)
    questions = view.open_questions(document)[:MOST_SHOWN]
    for question in questions:
        _print_question(console, question)
    console.print()
    told = {str(culprit["because"]).partition(": ")[2] for culprit in document.get("culprits") or []}
    console.print(_table(document, told | {question.because for question in questions}))
    coverage = document["coverage"]
    counted = ", ".join(f"{count} {view.WORDS[name]}" for name, count in view.covered(document))
    console.print(f"coverage: {coverage['expected']} expected: {counted}")
    return "".join(f"{line.rstrip()}\n" for line in stream.getvalue().splitlines())


def _print_culprit(console: Console, culprit: Mapping[str, Any]) -> None:
    console.print(f"\n[bold red]{escape(view.culprit_name(culprit))}[/]: {escape(str(culprit['because']))}")
    if culprit.get("remedy"):
        console.print(f"  [cyan]what to do:[/] {escape(str(culprit['remedy']))}")


def _print_question(console: Console, question: view.OpenQuestion) -> None:
    console.print(f"\n[yellow]not judged[/]: {escape(question.because)}")
    console.print(f"  [dim]{escape(question.subjects)}: {escape(', '.join(question.checks))}[/]")


def _table(document: Document, told: Collection[str]) -> Table:
    """Check, verdict, and what was found; a reason that was ``told``, or why a node is out, stands once."""
    said = set(told)
    table = Table(box=None, pad_edge=False, show_edge=False, show_header=False)
    table.add_column("check", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    table.add_column("what", overflow="fold", ratio=1)
    for group in view.check_groups(document):
        for index, row in enumerate(group.rows[:MOST_SHOWN]):
            table.add_row(escape(group.check) if index == 0 else "", *_cells(row, said))
            if row.first["verdict"] == "excluded":
                said.add(str(row.first.get("because")))
        if len(group.rows) > MOST_SHOWN:
            table.add_row("", "", f"and {len(group.rows) - MOST_SHOWN} more: clusterctl report --format json")
        if group.passed:
            name = "" if group.rows else group.check
            words = ("the other" if group.rows else "all") + f" {len(group.passed)}"
            words += f": {escape(group.common)}" if group.common else ""
            table.add_row(escape(name), f"[{STYLES['pass']}]pass[/]", words)
    return table


def _cells(row: view.Row, told: Collection[str]) -> tuple[str, str]:
    result, unit = row.first, str(row.first.get("unit") or "")
    verdict = str(result["verdict"])
    words = row.subjects
    if result.get("measured") not in (None, ""):
        words += f": {row.measured}"
        if result.get("expected") not in (None, "", result["measured"]):
            words += f" (expected {view.value(result['expected'], unit)})"
    text = escape(words)
    if result.get("because") and result["because"] not in told:
        text += f"\n[dim]{escape(str(result['because']))}[/]"
    return f"[{STYLES.get(verdict, '')}]{view.WORDS.get(verdict, verdict)}[/]", text
