"""A run's result on disk: result.json, which is the truth, and the reports that are made from it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from pydantic_core import from_json

from clustercheck.parse.document import require_few_values
from clustercheck.parse.plain_text import one_line, plain_text
from clustercheck.parse.reading import CannotReadError
from clustercheck.result import reading
from clustercheck.result.document import Document
from clustercheck.result.gc_pause import gc_paused
from clustercheck.result.memory import is_dense, require_bounded_memory
from clusterctl.cluster.bounded_file import UnusableFileError, describe_unusable, read_bounded
from clusterctl.cluster.state_files import replace_file
from clusterctl.errors import ClusterctlError
from clusterctl.report import html, junit, markdown, prometheus
from clusterctl.runs import chain
from clusterctl.runs.store import Run

RESULT = chain.RESULT
LINES_AT_ONCE = 1000
ITEMS_AT_ONCE = 100


Report = Callable[[Document], Iterator[str]]


def _plain(render: Callable[[Document], str]) -> Report:
    """The same report without control characters: somebody will print the file to a terminal."""
    return lambda document: iter((plain_text(render(document)),))


def _plain_lines(lines: Report) -> Report:
    """The same of a report that comes in whole lines: no control sequence goes across the end of one."""

    def cleaned(document: Document) -> Iterator[str]:
        made = lines(document)
        while part := "".join(islice(made, LINES_AT_ONCE)):
            yield plain_text(part)

    return cleaned


REPORTS: Mapping[str, tuple[str, Report]] = {
    "html": ("report.html", _plain(html.render)),
    "junit": ("junit.xml", _plain_lines(junit.lines)),
    "markdown": ("report.md", _plain(markdown.render)),
    "prometheus": ("metrics.prom", _plain_lines(prometheus.lines)),
}
MODE = 0o644
MAX_REASON = 200
ENCODE = json.JSONEncoder(default=str).encode


def judged(runs: Iterable[Run]) -> list[Run]:
    """The runs that ended and have a result: one that did not end is in no link of the chain."""
    return [run for run in runs if run.finished and run.path(RESULT).is_file()]


def write_result(run: Run, document: Document) -> None:
    """Write the result into the run's directory."""
    with gc_paused():
        replace_file(run.path(RESULT), pieces(document.members()), MODE)


def write_reports(run: Run, document: Document) -> list[str]:
    """Write every report into the run's directory; returns which could not be made, with the reason.

    Each by itself: what a node says, which no report was made for, ends neither the others nor the verdict.
    """
    failed: list[str] = []
    with gc_paused():
        for name, renderer in REPORTS.values():
            try:
                replace_file(run.path(name), renderer(document), MODE)
            except ClusterctlError as error:  # nothing can be written there
                return [*failed, error.what]
            except Exception as error:  # noqa: BLE001 - the other reports are made all the same
                failed.append(f"{name}: {_explain_unmade(error)}")
    return failed


def page_of(run: Run) -> Path | None:
    """The path of a run's HTML page; None if it has none."""
    page = run.path(REPORTS["html"][0])
    return page if page.is_file() else None


def pieces(members: Mapping[str, Any]) -> Iterator[str]:
    """Members as JSON text, piece by piece: each item of a list, an iterator or a mapping has its own line.

    A thousand nodes make hundreds of megabytes, of which only some lines are held at a time.
    """
    opening = "{\n"
    for key, value in members.items():
        yield f"{opening}{json.dumps(key)}: "
        opening = ",\n"
        if isinstance(value, (list, Iterator)):
            yield from _lines("[]", _encoded(iter(value)))
        elif isinstance(value, Mapping):
            each = ((json.dumps(name), ENCODE(item)) for name, item in value.items())
            yield from _lines("{}", (f"{name}: {item}" for name, item in each))
        else:
            yield ENCODE(value)
    yield "\n}\n" if members else "{}\n"


def _encoded(items: Iterator[Any]) -> Iterator[str]:
    """A line of each; without evidence that would have the whole document refused."""
    while some := list(islice(items, ITEMS_AT_ONCE)):
        lines = list(map(ENCODE, some))
        # What is not dense together makes the whole no denser, and one look is cheaper than many.
        is_usual = not is_dense("".join(lines).encode())
        yield from lines if is_usual else map(_without_dense_evidence, some, lines)


def _without_dense_evidence(item: Any, line: str) -> str:
    if isinstance(item, Mapping) and "evidence" in item and is_dense(line.encode()):
        return ENCODE({**item, "evidence": {"omitted": "it has far more values than its size allows"}})
    return line


def _lines(brackets: str, items: Iterable[str]) -> Iterator[str]:
    opening = before = f"{brackets[0]}\n "
    for item in items:
        yield f"{before}{item}"
        before = ",\n "
    yield brackets if before is opening else f"\n{brackets[1]}"


def render(run: Run, renderer: Callable[[Document], str]) -> str:
    """A report of a run's result. Raises ClusterctlError as ``load`` does, and (``report.unreadable``) where
    no report can be made of it: members whose form checks know alone may have any."""
    document = load(run)
    try:
        return renderer(document)
    except Exception as error:
        raise _unreadable(_path(run), _explain_unmade(error)) from error


def _explain_unmade(error: Exception) -> str:
    return f"no report can be made of it: {type(error).__name__}: {one_line(str(error), MAX_REASON)}"


def load(run: Run) -> Document:
    """A run's result document.

    Raises ClusterctlError: ``report.no-result`` if the run has none, ``report.unreadable`` if it is not a
    result document, ``report.changed`` if it is not the one that was recorded in the chain.
    """
    path = _path(run)
    content, head = _recorded(run, path)
    try:
        document = reading.read(content)
    except CannotReadError as error:
        raise _unreadable(path, str(error)) from error
    _require_own(run, document.run)
    return replace(document, chain_head=head)


def load_json(run: Run) -> dict[str, Any]:
    """The same as the JSON that was written, for programs. Raises ClusterctlError as ``load`` does."""
    path = _path(run)
    content = _recorded(run, path)[0]
    try:
        require_few_values(content)
        require_bounded_memory(content)
        document = from_json(content)  # no deeper than it can be written again
    except (CannotReadError, ValueError) as error:
        raise _unreadable(path, str(error)) from error
    if not isinstance(document, dict) or not str(document.get("schema", "")).startswith("clusterctl/result/"):
        raise _unreadable(path, "it is not a result document")
    _require_own(run, document.get("run"))
    return document


def _require_own(run: Run, named: object) -> None:
    if named != run.id:
        raise _unreadable(_path(run), "it is that of another run")


def _recorded(run: Run, path: Path) -> tuple[bytes, str]:
    """A result as it was recorded, and the head of its run's newest link; empty for one in no chain."""
    try:
        content = read_bounded(path, reading.MAX_BYTES)
    except (UnusableFileError, OSError) as error:
        raise _unreadable(path, describe_unusable(error)) from error
    link = chain.link_of(run.directory)
    if link is None:
        return content, ""
    if hashlib.sha256(content).hexdigest() != link.files.get(RESULT):
        raise ClusterctlError(
            f"the result of run {run.id} is not the one that was recorded when it ended",
            code="report.changed",
            where=str(path),
            hint="It was changed since: see clusterctl runs verify. Validate again.",
        )
    return content, link.head


def _path(run: Run) -> Path:
    path = run.path(RESULT)
    if path.is_symlink() or not path.is_file():
        raise ClusterctlError(
            f"run {run.id} has no result: only a validation that finished has one",
            code="report.no-result",
            where=str(run.directory),
            hint="clusterctl runs list shows which runs have a verdict.",
        )
    return path


def _unreadable(path: Path, why: str) -> ClusterctlError:
    return ClusterctlError(
        f"the result cannot be read: {why}",
        code="report.unreadable",
        where=str(path),
        hint="Validate again, more than 4,000 nodes in parts (--limit); other runs are not affected.",
    )
