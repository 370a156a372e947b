"""A run as Markdown, for an issue or a chat: short, the verdict first."""

from __future__ import annotations

import re

from clustercheck.result.document import Document
from clusterctl.engine.wording import counted
from clusterctl.report import view
from clusterctl.report.inventory import job_environment
from clusterctl.report.subjects import culprit_name

SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|])")


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
        for culprit in document.culprits:
            lines.append(f"- **{_text(culprit_name(culprit))}**: {_text(culprit.because)}")
            if culprit.remedy:
                lines.append(f"  - Remedy: {_text(culprit.remedy)}")
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
