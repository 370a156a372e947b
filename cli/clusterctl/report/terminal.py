"""A run as a table for the terminal: the verdict first, then what is faulty and what was covered."""

from __future__ import annotations

import io
import os
import shutil
from collections.abc import Iterator, Sequence

from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from clustercheck.model import Culprit, Verdict
from clustercheck.result.document import Document
from clusterctl.console import CleanConsole
from clusterctl.report import change, culprits, view
from clusterctl.report.inventory import job_environment
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
CHANGE_STYLES = {"regressed": "bold red", "improved": "green", "cannot tell": "yellow"}
MAX_SHOWN = 8
MIN_WIDTH, MAX_WIDTH = 60, 140


def render(document: Document, *, colour: bool = False, width: int | None = None) -> str:
    """The table as text, with colour codes if asked for and NO_COLOR is not set."""
    stream = io.StringIO()
    console = CleanConsole(
        file=stream,
        width=max(MIN_WIDTH, min(width or shutil.get_terminal_size((100, 24)).columns, MAX_WIDTH)),
        force_terminal=colour and not os.environ.get("NO_COLOR"),
        color_system="auto",
        no_color=not colour,
    )
    style = "bold green" if document.verdict == "pass" else STYLES[document.verdict]
    lines: list[RenderableType] = [Text(view.headline(document), style=style), view.summary(document)]
    for culprit, details in culprits.culprit_details(document):
        lines += _culprit(culprit, details, console.width)
    questions = view.open_questions(document)[:MAX_SHOWN]
    for question in questions:
        lines += _question(question)
    if compared := change.comparison(document):
        lines += _comparison(compared)
    printed = {reason for one in document.culprits for reason in (one.because, *one.reasons)}
    printed |= {one.because for one in questions}
    counted = ", ".join(f"{count} {view.WORDS[outcome]}" for outcome, count in view.covered(document))
    lines += [
        "",
        _table(document, printed),
        f"coverage: {document.coverage.expected} expected: {counted}",
    ]
    if variables := job_environment(document):
        lines.append(Text(f"environment of the jobs: {', '.join(variables)}", style="dim"))
    if document.chain_head:
        head = f"run chain: head {document.chain_head}"
        lines.append(Text(head, style="dim", no_wrap=True, overflow="ignore"))
    for line in lines:
        console.print(line, soft_wrap=False)
    return "".join(f"{line.rstrip()}\n" for line in stream.getvalue().splitlines())


def _culprit(culprit: Culprit, details: culprits.CulpritDetails, width: int) -> Iterator[RenderableType]:
    """One line, and below it the figures that it is about, other reasons, and the remedy."""
    name = culprit_name(culprit)
    line = culprits.fitted(culprit, width - len(name) - 2)
    yield Text.assemble("\n", (name, "bold red"), f": {line}")
    if full := culprits.cut_reason(culprit, details, line):
        yield Padding(Text(full, style="dim"), (0, 0, 0, 2))
    if details.figures:
        yield Padding(_figures(details.figures), (0, 0, 0, 2))
    if details.more_figures:
        yield Text(
            f"  and {details.more_figures} more quantities: clusterctl report --format json", style="dim"
        )
    for reason in details.reasons:
        yield Padding(Text(reason, style="dim"), (0, 0, 0, 2))
    if details.more_reasons:
        yield Text(f"  and {details.more_reasons} more reasons: clusterctl report --format json", style="dim")
    if culprit.remedy:
        yield Text.assemble("  ", ("remedy:", "cyan"), f" {culprit.remedy}")


def _figures(figures: Sequence[culprits.CulpritFigure]) -> Table:
    table = Table(box=None, pad_edge=False, show_edge=False, header_style="dim")
    table.add_column("check", no_wrap=True)
    table.add_column("quantity")
    for name in ("measured", "floor", "baseline", "peers"):
        table.add_column(name, justify="right")
    for one in figures:
        quantity = f"{one.quantity}, {one.who}" if one.who else one.quantity
        table.add_row(one.check, quantity, one.measured, *(text or view.NOTHING for text in one.compared))
    return table


def _comparison(compared: change.Comparison) -> Iterator[RenderableType]:
    """What is another than in the baseline's run: first the environment, then what the figures did."""
    yield Text.assemble(
        "\n", ("since the baseline", "bold"), f": run {compared.run} of {compared.finished[:10]}"
    )
    table = Table(box=None, pad_edge=False, show_edge=False, show_header=False)
    table.add_column("outcome", no_wrap=True)
    table.add_column("what", overflow="fold", ratio=1)
    rows = [("changed", text) for text in compared.differs] or [("changed", change.NO_CHANGE)]
    for group in (rows, list(compared.findings), [("not compared", text) for text in compared.not_compared]):
        for outcome, text in group[:MAX_SHOWN]:
            table.add_row(Text(outcome, style=CHANGE_STYLES.get(outcome, "dim")), Text(text))
        if len(group) > MAX_SHOWN:
            table.add_row("", f"and {len(group) - MAX_SHOWN} more: clusterctl report --format json")
    yield Padding(table, (0, 0, 0, 2))


def _question(question: view.OpenQuestion) -> Iterator[Text]:
    yield Text.assemble("\n", ("not run", "yellow"), f": {question.because}")
    yield Text.assemble("  ", (f"{question.subjects}: {', '.join(question.checks)}", "dim"))


def _table(document: Document, above: set[str]) -> Table:
    """Check, outcome and finding; reasons that were printed ``above`` are not repeated."""
    printed = set(above)
    table = Table(box=None, pad_edge=False, show_edge=False, show_header=False)
    table.add_column("check", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    table.add_column("what", overflow="fold", ratio=1)
    for group in view.check_groups(document):
        for index, row in enumerate(group.rows[:MAX_SHOWN]):
            table.add_row(group.check if index == 0 else "", *_cells(row, printed))
            if row.first.verdict is Verdict.EXCLUDED:
                printed.add(row.first.because)
        if len(group.rows) > MAX_SHOWN:
            table.add_row("", "", f"and {len(group.rows) - MAX_SHOWN} more: clusterctl report --format json")
        if group.passed:
            name = "" if group.rows else group.check
            words = f"{len(group.passed)} others" if group.rows else f"all {len(group.passed)}"
            words = "1 other" if words == "1 others" else words
            words += f": {group.common}" if group.common else ""
            table.add_row(name, Text("pass", style=STYLES["pass"]), words)
    return table


def _cells(row: view.Row, printed: set[str]) -> tuple[Text, Text]:
    result, words = row.first, row.subjects
    if result.measured not in (None, ""):
        words += f": {row.measured}"
        if result.expected not in (None, "", result.measured):
            words += f" (expected {view.value(result.expected, result.unit)})"
    text = Text(words)
    # A culprit's reason has the check in front, as in culprits.find_culprits.
    if result.because and printed.isdisjoint((result.because, f"{result.check}: {result.because}")):
        text.append(f"\n{result.because}", style="dim")
    return Text(view.WORDS[row.outcome], style=STYLES[row.outcome]), text
