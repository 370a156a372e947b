"""A run as one HTML file: no script, no font, no picture from elsewhere; readable offline and on paper."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import jinja2

from clusterctl.report import curve, inventory, view
from clusterctl.report.view import Document

TEMPLATES = Path(__file__).with_name("templates")
WIDE, NARROW = (880, 300), (340, 260)
LONGEST_EVIDENCE = 4000


def render(document: Document) -> str:
    """The page for one result document."""
    measured = curve.curve_of(document)
    pictures = [curve.svg(measured, *size) for size in (WIDE, NARROW)] if measured else []
    return (
        _environment()
        .get_template("report.html.j2")
        .render(
            document=document,
            headline=view.headline(document),
            blame=view.blame(document),
            simulated=view.is_simulated(document),
            coverage=_coverage(document),
            groups=view.check_groups(document),
            nodes=view.node_rows(document),
            facts=inventory.facts(document),
            made_of=inventory.nodes(document),
            parts=inventory.parts(document),
            curve=measured,
            judged=any(point.floor is not None for point in measured),
            bounded=any(point.ceiling is not None for point in measured),
            pictures=pictures,
        )
    )


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        value=view.value,
        subject=view.subject_name,
        culprit=view.culprit_name,
        word=lambda verdict: view.WORDS.get(verdict, verdict),
        size=view.bytes_text,
        evidence=_evidence,
        percent=lambda share: "–" if share is None else f"{share:.0%}",
    )
    return environment


def _coverage(document: Document) -> list[tuple[str, int, float]]:
    """(verdict, count, share of the expected in per cent), for the bar."""
    counts = document["coverage"]
    expected = max(1, int(counts["expected"]))
    return [(name, int(counts[name]), 100 * int(counts[name]) / expected) for name in view.AS_READ]


def _evidence(evidence: Any) -> str:
    text = json.dumps(evidence, indent=1, sort_keys=True, default=str)
    return (
        text
        if len(text) <= LONGEST_EVIDENCE
        else f"{text[:LONGEST_EVIDENCE]}\n… (all of it is in result.json)"
    )
