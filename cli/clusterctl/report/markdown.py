"""A run as Markdown, for an issue or a chat: short, the verdict first."""

from __future__ import annotations

import re

from clusterctl.report import view
from clusterctl.report.view import Document

SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|])")


def render(document: Document) -> str:
    """The Markdown text."""
    coverage = document["coverage"]
    lines = [
        f"# {_text(view.headline(document))}",
        "",
        _text(view.blame(document)),
        "",
        f"Run `{document['run']}`, suite {_text(document['suite'])}, "
        f"{_text(document['started'])} to {_text(document['finished'])}.",
    ]
    if view.is_simulated(document):
        lines += [
            "",
            "**Devices say of themselves that they are simulated; figures are not those of real hardware.**",
        ]
    if document.get("culprits"):
        lines += ["", "## To blame", ""]
        for culprit in document["culprits"]:
            lines.append(f"- **{_text(view.culprit_name(culprit))}**: {_text(culprit['because'])}")
            if culprit.get("remedy"):
                lines.append(f"  - What to do: {_text(culprit['remedy'])}")
    lines += [
        "",
        "## Coverage",
        "",
        "| " + " | ".join(["expected", *view.WORDS.values()]) + " |",
        "|" + "---:|" * (1 + len(view.WORDS)),
        "| " + " | ".join(map(str, [coverage["expected"], *dict(view.covered(document)).values()])) + " |",
        "",
        "## Checks",
        "",
        "| check | verdict | subject | measured | expected | why |",
        "|---|---|---|---|---|---|",
    ]
    for group in view.check_groups(document):
        lines += [_row(group.check, row) for row in group.rows]
        if group.passed:
            lines.append(f"| {_text(group.check)} | pass | {len(group.passed)} subjects | | | |")
    return "\n".join(lines) + "\n"


def _row(check: str, row: view.Row) -> str:
    result = row.first
    unit = str(result.get("unit") or "")
    cells = [
        check,
        view.WORDS.get(str(result["verdict"]), str(result["verdict"])),
        row.subjects,
        row.measured,
        view.value(result.get("expected"), unit),
        str(result.get("because") or ""),
    ]
    return "| " + " | ".join(_text(cell) for cell in cells) + " |"


def _text(words: object) -> str:
    """Plain words: nothing that a node printed becomes markup, and no line break ends a table row."""
    return SPECIAL.sub(r"\\\1", " ".join(str(words).split()))
