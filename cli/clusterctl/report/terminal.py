"""A run as a table for the terminal: the verdict first, then what is faulty and what was covered."""

from __future__ import annotations

import io
import os
import shutil

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from clustercheck.model import Culprit, Verdict
from clustercheck.result.document import Document
from clusterctl.report import view
from clusterctl.report.subjects import culprit_name

STYLES = {
    "pass": "green",
    "fail": "bold red",
    "warning": "yellow",
    "not_run": "yellow",
    "excluded": "dim",
    view.NOT_APPLICABLE: "dim",
    "incomplete": "bold yellow",
}
MAX_SHOWN = 8
MIN_WIDTH, MAX_WIDTH = 60, 140


def render(document: Document, *, colour: bool = False, width: int | None = None) -> str:
    """The table as text, with colour codes if asked for and NO_COLOR is not set."""
    stream = io.StringIO()
    console = Console(
        file=stream,
        width=max(MIN_WIDTH, min(width or shutil.get_terminal_size((100, 24)).columns, MAX_WIDTH)),
        force_terminal=colour and not os.environ.get("NO_COLOR"),
        no_color=not colour,
        highlight=False,
    )
    style = "bold green" if document.verdict == "pass" else STYLES[document.verdict]
    console.print(f"[{style}]{escape(view.headline(document))}[/]")
    console.print(escape(view.summary(document)))
    for culprit in document.culprits:
        _print_culprit(console, culprit)
    questions = view.open_questions(document)[:MAX_SHOWN]
    for question in questions:
        _print_question(console, question)
    console.print()
    printed = {culprit.because for culprit in document.culprits} | {one.because for one in questions}
    console.print(_table(document, printed))
    counted = ", ".join(f"{count} {view.WORDS[outcome]}" for outcome, count in view.covered(document))
    console.print(f"coverage: {document.coverage.expected} expected: {counted}")
    return "".join(f"{line.rstrip()}\n" for line in stream.getvalue().splitlines())


def _print_culprit(console: Console, culprit: Culprit) -> None:
    console.print(f"\n[bold red]{escape(culprit_name(culprit))}[/]: {escape(culprit.because)}")
    if culprit.remedy:
        console.print(f"  [cyan]remedy:[/] {escape(culprit.remedy)}")


def _print_question(console: Console, question: view.OpenQuestion) -> None:
    console.print(f"\n[yellow]not run[/]: {escape(question.because)}")
    console.print(f"  [dim]{escape(question.subjects)}: {escape(', '.join(question.checks))}[/]")


def _table(document: Document, above: set[str]) -> Table:
    """Check, outcome and finding; reasons that were printed ``above`` are not repeated."""
    printed = set(above)
    table = Table(box=None, pad_edge=False, show_edge=False, show_header=False)
    table.add_column("check", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    table.add_column("what", overflow="fold", ratio=1)
    for group in view.check_groups(document):
        for index, row in enumerate(group.rows[:MAX_SHOWN]):
            table.add_row(escape(group.check) if index == 0 else "", *_cells(row, printed))
            if row.first.verdict is Verdict.EXCLUDED:
                printed.add(row.first.because)
        if len(group.rows) > MAX_SHOWN:
            table.add_row("", "", f"and {len(group.rows) - MAX_SHOWN} more: clusterctl report --format json")
        if group.passed:
            name = "" if group.rows else group.check
            words = f"{len(group.passed)} others" if group.rows else f"all {len(group.passed)}"
            words = "1 other" if words == "1 others" else words
            words += f": {escape(group.common)}" if group.common else ""
            table.add_row(escape(name), f"[{STYLES['pass']}]pass[/]", words)
    return table


def _cells(row: view.Row, printed: set[str]) -> tuple[str, str]:
    result, words = row.first, row.subjects
    if result.measured not in (None, ""):
        words += f": {row.measured}"
        if result.expected not in (None, "", result.measured):
            words += f" (expected {view.value(result.expected, result.unit)})"
    text = escape(words)
    # A culprit's reason has the check in front, as in culprits.find_culprits.
    if result.because and printed.isdisjoint((result.because, f"{result.check}: {result.because}")):
        text += f"\n[dim]{escape(result.because)}[/]"
    return f"[{STYLES[row.outcome]}]{view.WORDS[row.outcome]}[/]", text
