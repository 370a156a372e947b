"""A run as one HTML file: no script, no font, no picture from elsewhere; readable offline and on paper."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup, escape

from clustercheck.result.document import SCHEMA, Document, plain
from clusterctl.engine.wording import counted
from clusterctl.report import (
    change,
    culprits,
    curve,
    expectation,
    heat,
    inventory,
    matrix,
    measured,
    nodes,
    pairs,
    view,
)
from clusterctl.report.subjects import culprit_name

TEMPLATES = Path(__file__).with_name("templates")
WIDE, NARROW = (1032, 320), (358, 260)
MAX_EVIDENCE = 4000
MAX_REASON = 200
CODE = re.compile(r"`([^`]+)`")


def render(document: Document) -> str:
    """The page for one result document."""
    return _environment().get_template("report.html.j2").render(_context(document))


def _context(document: Document) -> dict[str, Any]:
    groups = view.check_groups(document)
    maps = heat.maps(document)
    return {
        "document": document,
        "culprits": culprits.culprit_details(document),
        "schema": SCHEMA,
        "headline": view.headline(document),
        "sentence": view.SENTENCES[document.verdict],
        "notes": view.notes(document),
        "simulated": document.simulated,
        "took": view.duration_text(document),
        "nodes": view.node_names(document),
        "coverage": _coverage(document),
        "covered": dict(view.covered(document)),
        "matrix": matrix.matrix(document),
        "questions": view.open_questions(document),
        "quantities": expectation.quantities(document),
        "spreads": measured.spreads(document),
        "comparison": change.comparison(document),
        "maps": maps,
        "max_rows": heat.MAX_ROWS,
        "curves": _curves(document),
        "failed": [group for group in groups if group.outcome == "fail"],
        "others": [group for group in groups if group.outcome != "fail"],
        "sections": nodes.sections(document, maps),
        **_pairs(document),
        **_environment_of(document),
    }


def _curves(document: Document) -> list[dict[str, Any]]:
    """Every collective's curve, the first in two sizes: wide, and for a phone."""
    return [
        {
            "check": check,
            "points": points,
            "wide": curve.svg(points, *WIDE, check) if number == 0 else "",
            "narrow": curve.svg(points, *NARROW, check),
            "judged": any(point.floor is not None for point in points),
            "bounded": any(point.ceiling is not None for point in points),
        }
        for number, (check, points) in enumerate(curve.curves_of(document).items())
    ]


def _pairs(document: Document) -> dict[str, Any]:
    found = pairs.pairs(document)
    drawn = found is not None and len(found.nodes) <= pairs.MAX_NODES
    return {
        "pairs": found,
        "pairs_picture": pairs.svg(found) if found and drawn else "",
        "slowest_pairs": pairs.slowest(found) if found and not drawn else [],
    }


def _environment_of(document: Document) -> dict[str, Any]:
    return {
        "facts": inventory.facts(document),
        "common": inventory.common(document),
        "differences": inventory.differences(document),
        "lock": inventory.locked(document),
        "tables": [table for table in (inventory.nodes(document), *inventory.parts(document)) if table],
    }


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
        culprit=culprit_name,
        counted=counted,
        word=lambda outcome: view.WORDS[outcome],
        size=view.bytes_text,
        evidence=_evidence,
        excerpt=_excerpt,
        moment=view.moment,
        prose=_prose,
        bar=measured.bar,
        metric=expectation.metric_name,
        bound=expectation.bound,
        signed=_signed,
        drawn=heat.svg,
        worst=change.worst_name,
        percent=lambda share: "–" if share is None else f"{share:.0%}",
    )
    environment.tests.update(unchanged=change.is_even)
    return environment


def _signed(part: float | None) -> str:
    """A change or a margin: ``+4.2%``; zero in one decimal has no sign."""
    return view.NOTHING if part is None else f"{part:+.1%}" if abs(part) >= 0.0005 else "0%"


def _coverage(document: Document) -> list[tuple[str, int, float]]:
    """(outcome, count, share of the expected in per cent), for the bar."""
    expected = max(1, document.coverage.expected)
    return [(name, count, 100 * count / expected) for name, count in view.covered(document)]


def _excerpt(text: str) -> tuple[str, str]:
    """The visible part of a long reason and the rest: cut between words."""
    if len(text) <= MAX_REASON:
        return text, ""
    end = text.rfind(" ", 0, MAX_REASON)
    end = end if end > 0 else MAX_REASON
    return text[:end], text[end:]


def _prose(text: str) -> Markup:
    """Words with `commands` in them."""
    return Markup(CODE.sub(r"<code>\1</code>", str(escape(text))))  # noqa: S704 - escaped in here


def _evidence(evidence: Any) -> str:
    text = json.dumps(plain(evidence), indent=1, sort_keys=True, default=str)
    return text if len(text) <= MAX_EVIDENCE else f"{text[:MAX_EVIDENCE]}\n… (the rest is in result.json)"
