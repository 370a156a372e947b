"""A run's result on disk: result.json, which is the truth, and the reports that are made from it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from clustercheck.result.gc_pause import gc_paused
from clusterctl.cluster.state_files import replace_file
from clusterctl.errors import ClusterctlError
from clusterctl.report import html, junit, markdown, prometheus
from clusterctl.report.view import Document
from clusterctl.runs.store import Run

RESULT = "result.json"
REPORTS: Mapping[str, tuple[str, Callable[[Document], str]]] = {
    "html": ("report.html", html.render),
    "junit": ("junit.xml", junit.render),
    "markdown": ("report.md", markdown.render),
    "prometheus": ("metrics.prom", prometheus.render),
}
MODE = 0o644


def write_all(run: Run, document: Document) -> Path:
    """Write the result and every report into the run's directory; returns the HTML page's path."""
    replace_file(run.path(RESULT), pieces(document), MODE)
    with gc_paused():
        for name, renderer in REPORTS.values():
            replace_file(run.path(name), renderer(document), MODE)
    return run.path(REPORTS["html"][0])


def pieces(document: Mapping[str, Any]) -> Iterator[str]:
    """A document as JSON text, piece by piece: each result, or node, on a line of its own.

    Of a thousand nodes there are hundreds of megabytes of it, of which no more than a line is ever held.
    """
    opening = "{\n"
    for key, value in document.items():
        yield f"{opening}{json.dumps(key)}: "
        opening = ",\n"
        if isinstance(value, list) and value:
            yield from _lines("[]", (json.dumps(item, default=str) for item in value))
        elif isinstance(value, Mapping) and value:
            each = ((json.dumps(name), json.dumps(item, default=str)) for name, item in value.items())
            yield from _lines("{}", (f"{name}: {item}" for name, item in each))
        else:
            yield json.dumps(value, default=str)
    yield "\n}\n" if document else "{}\n"


def _lines(brackets: str, items: Iterable[str]) -> Iterator[str]:
    before = f"{brackets[0]}\n "
    for item in items:
        yield f"{before}{item}"
        before = ",\n "
    yield f"\n{brackets[1]}"


def load(run: Run) -> dict[str, Any]:
    """A run's result document.

    Raises ClusterctlError: ``report.no-result`` where the run has none, ``report.unreadable`` where it is
    not what it should be.
    """
    path = run.path(RESULT)
    if not path.is_file():
        raise ClusterctlError(
            f"run {run.id} has no result: only a validate that came to its end has one",
            code="report.no-result",
            where=str(run.directory),
            hint="clusterctl runs list shows which runs have a verdict.",
        )
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise _unreadable(path, str(error)) from error
    if not isinstance(document, dict) or not str(document.get("schema", "")).startswith("clusterctl/result/"):
        raise _unreadable(path, "it is no result document")
    return document


def _unreadable(path: Path, why: str) -> ClusterctlError:
    return ClusterctlError(
        f"the result cannot be read: {why}",
        code="report.unreadable",
        where=str(path),
        hint="Validate again; other runs are not touched.",
    )
