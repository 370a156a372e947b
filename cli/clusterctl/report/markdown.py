"""A run as Markdown, for an issue or a chat: short, the verdict first."""

from __future__ import annotations

import re
from collections.abc import Iterator

from clustercheck.result.document import Document
from clusterctl.engine.wording import counted
from clusterctl.report import change, culprits, view
from clusterctl.report.inventory import job_environment
from clusterctl.report.subjects import culprit_name

MAX_LINES = 16
SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~]|:(?=//))")


def render(document: Document) -> str:
    """The Markdown text."""
    covered = dict(view.covered(document))
    lines = [
        f"# {_text(view.headline(document))}",
        "",
        _text(view.summary(document)),
        "",
        f"Run `{_text(document.run)}`, suite {_text(document.suite)}, "
        f"{_text(document.started)} to {_text(document.finished)}.",
    ]
    if document.simulated:
        lines += [
            "",
            "**Simulated devices: the figures are not those of real hardware.**",
        ]
    if document.culprits:
        lines += ["", "## Faulty components", ""]
        for culprit, details in culprits.culprit_details(document):
            lines.append(f"- **{_text(culprit_name(culprit))}**: {_text(culprit.because)}")
            lines += _details(details)
            if culprit.remedy:
                lines.append(f"  - Remedy: {_text(culprit.remedy)}")
    if compared := change.comparison(document):
        lines += _comparison(compared)
    lines += [
        "",
        "## Coverage",
        "",
        "| " + " | ".join(["expected", *(view.WORDS[outcome] for outcome in covered)]) + " |",
        "|" + "---:|" * (1 + len(covered)),
        "| " + " | ".join(map(str, [document.coverage.expected, *covered.values()])) + " |",
        "",
        "## Checks",
        "",
        "| check | verdict | subject | measured | expected | why |",
        "|---|---|---|---|---|---|",
    ]
    for group in view.check_groups(document):
        lines += [_row(group.check, row) for row in group.rows]
        if group.passed:
            lines.append(f"| {_text(group.check)} | pass | {counted(len(group.passed), 'subject')} | | | |")
    if variables := job_environment(document):
        lines += ["", "## Environment of the jobs", "", *(f"- {_text(variable)}" for variable in variables)]
    if document.chain_head:
        lines += ["", f"Head of the run chain: `{document.chain_head}` (`clusterctl runs verify --head`)."]
    return "\n".join(lines) + "\n"


def _details(details: culprits.CulpritDetails) -> Iterator[str]:
    """Below a culprit's line: its figures as a table within the list item, then the other reasons."""
    if details.figures:
        yield from (
            "",
            "  | check | quantity | measured | floor | baseline | peers |",
            "  |---|---|---:|---:|---:|---:|",
        )
        for one in details.figures:
            quantity = f"{one.quantity}, {one.who}" if one.who else one.quantity
            cells = (one.check, quantity, one.measured, *(text or view.NOTHING for text in one.compared))
            yield f"  | {' | '.join(map(_text, cells))} |"
        yield ""
    if details.more_figures:
        yield f"  - {details.more_figures} more quantities"
    for reason in details.reasons:
        yield f"  - {_text(reason)}"
    if details.more_reasons:
        yield f"  - {details.more_reasons} more reasons"


def _comparison(compared: change.Comparison) -> Iterator[str]:
    """What changed since the baseline: the environment, then the figures."""
    yield from ("", "## Changes since the baseline", "")
    yield f"Baseline: run `{_text(compared.run)}` of {_text(compared.finished[:10])}."
    yield ""
    rows = [("changed", text) for text in compared.differs] or [("changed", change.NO_CHANGE)]
    for group in (rows, list(compared.findings), [("not compared", text) for text in compared.not_compared]):
        for outcome, text in group[:MAX_LINES]:
            yield f"- {outcome}: {_text(text)}"
        if len(group) > MAX_LINES:
            yield f"- and {len(group) - MAX_LINES} more"


def _row(check: str, row: view.Row) -> str:
    result = row.first
    cells = [
        check,
        view.WORDS[row.outcome],
        row.subjects,
        row.measured,
        view.value(result.expected, result.unit),
        result.because,
    ]
    return "| " + " | ".join(_text(cell) for cell in cells) + " |"


def _text(words: object) -> str:
    """Plain words: nothing that a node printed becomes markup, and no line break ends a table row."""
    return SPECIAL.sub(r"\\\1", " ".join(str(words).split()))
