"""Results as people read them."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from clusterctl import console
from clusterctl.engine.failure import Failure
from clusterctl.engine.ledger import BAD, HostRecord, HostState
from clusterctl.engine.wording import alike, counted, format_hosts
from clusterctl.rollout.preflight import PreflightFinding, PreflightReport, PreflightSeverity
from clusterctl.rollout.site import NOT_STARTED, SiteOutcome

STYLES = {PreflightSeverity.ERROR: "red", PreflightSeverity.WARNING: "yellow", PreflightSeverity.INFO: "dim"}
DIFF_LINES = 30
# Of one host: lines before times lines after, over all parts. To compare takes up to the cube of the lines.
MAX_COMPARED = 2_000_000
WIDTH_OF_FILES = 160
# More hosts than this are a table that is too long to read.
ROWS_FOR_EACH = 16


def show(*parts: RenderableType) -> None:
    """Print results: as wide as the terminal, and wide enough to be read if there is none."""
    width = None if console.RESULTS.is_terminal else WIDTH_OF_FILES
    out = console.CleanConsole(file=console.RESULTS.file, width=width)
    for part in parts:
        out.print(part)


def new_table(*heads: str) -> Table:
    """A table whose cells are wrapped, never truncated: truncated names cannot be looked up."""
    table = Table(show_edge=False, pad_edge=False, box=box.SIMPLE_HEAD)
    for head in heads:
        table.add_column(head, overflow="fold")
    return table


def findings_table(findings: Sequence[PreflightFinding]) -> RenderableType:
    """Every finding with what to do about it, equal ones of several hosts on one line."""
    table = new_table("host", "", "what", "found")
    merged: dict[tuple[Any, ...], list[str]] = {}
    for f in findings:
        merged.setdefault((f.severity, f.subject, f.found, f.expected, f.remedy, f.code), []).append(f.host)
    for (severity, subject, found, expected, remedy, code), hosts in merged.items():
        cell = Text(found + (f" (expected: {expected})" if expected else ""))
        if remedy:
            cell.append(f"\n{remedy}", style="dim")
        if code:
            cell.append(f"\ncode: {code}", style="dim")
        table.add_row(
            Text(format_hosts(hosts)), Text(severity.value, style=STYLES[severity]), Text(subject), cell
        )
    return table


def preflight_headline(report: PreflightReport) -> str:
    """One line: how many hosts, how many findings of what weight."""
    words = {
        PreflightSeverity.ERROR: "error",
        PreflightSeverity.WARNING: "warning",
        PreflightSeverity.INFO: "note",
    }
    found = (counted(sum(1 for f in report.findings if f.severity is s), w) for s, w in words.items())
    return f"preflight of {counted(len(report.states), 'host')}: {', '.join(found)}"


def hosts_table(hosts: Sequence[str], outcome: SiteOutcome) -> RenderableType:
    """How each host stands after an apply; where they are many, those that stand alike on one line."""
    table = new_table("host", "state", "ok", "changed", "failed", "")
    rows: dict[tuple[str, ...], list[str]] = {}
    for host in hosts:
        one = outcome.records.get(host) or HostRecord(host)
        state = outcome.states.get(host)
        word = "busy" if host in outcome.busy else state.value if state else NOT_STARTED
        because = outcome.busy.get(host) or outcome.reasons.get(host, "")
        row = (word, str(one.ok), str(one.changed), str(one.failed), because)
        rows.setdefault(row if len(hosts) > ROWS_FOR_EACH else (*row, host), []).append(host)
    for (word, ok, changed, failed, because, *_), group in rows.items():
        style = "red" if word in BAD else "green" if word == HostState.GOOD else "yellow"
        table.add_row(Text(format_hosts(group)), Text(word, style=style), ok, changed, failed, Text(because))
    return table


def tell_failures(failures: Iterable[Failure]) -> None:
    """Each failure in full, as a message: the task's own words, and what to do.

    Hosts that failed alike are told together, in the words of the first.
    """
    groups: dict[tuple[str, ...], list[Failure]] = {}
    for failure in failures:
        answer = (failure.task, failure.message, failure.detail, failure.where, failure.remedy)
        groups.setdefault(tuple(alike(text, failure.host) for text in answer), []).append(failure)
    for first, *others in groups.values():
        console.tell(
            f"{format_hosts([first.host, *(other.host for other in others)])}: {first.task}",
            *(("", line) for line in first.message.splitlines()),
            *(("|", line) for line in first.detail.splitlines()),
            ("where:", first.where),
            ("hint: ", first.remedy),
            ("code: ", first.code),
            style="bold red",
        )


def planned(records: Mapping[str, HostRecord]) -> RenderableType:
    """What would change: hosts that would change alike are told together."""
    alike: dict[tuple[Any, ...], list[HostRecord]] = {}
    for one in records.values():
        alike.setdefault((tuple(one.changes), diff_texts(one)), []).append(one)
    parts: list[RenderableType] = []
    for (changes, diffs), group in alike.items():
        hosts = format_hosts(one.name for one in group)
        if not changes:
            parts.append(Text(f"{hosts}: nothing would change", style="green"))
            continue
        parts.append(Text(f"{hosts}: {counted(len(set(changes)), 'thing')} would change", style="bold"))
        for change in dict.fromkeys(changes):
            parts.append(Text(f"  ~ {change}", style="yellow"))
            for text in (text for title, text in diffs if title == change):
                parts += [_coloured(line) for line in text.splitlines()]
    return Group(*parts)


def diff_texts(one: HostRecord) -> tuple[tuple[str, str], ...]:
    """What would change on a host: each part with the title of its task, cut at DIFF_LINES lines.

    What a host says in excess of MAX_COMPARED is counted and not compared.
    """
    texts, left = [], MAX_COMPARED
    for title, part in one.diffs:
        before, after = (part.get(side, "").splitlines() for side in ("before", "after"))
        if "prepared" in part:
            lines = part["prepared"].splitlines()
        elif (size := len(before) * len(after)) <= left:
            left -= size
            lines = list(difflib.unified_diff(before, after, lineterm="", n=1))[2:]  # without its headlines
        else:
            lines = [f"[too long to compare: {len(before)} lines before, {len(after)} after]"]
        if part.get("header"):
            lines = [part["header"], *lines]
        if len(lines) > DIFF_LINES:
            lines = [*lines[:DIFF_LINES], f"[{len(lines) - DIFF_LINES} more lines]"]
        texts.append((title, "\n".join(lines)))
    return tuple(texts)


def _coloured(line: str) -> Text:
    style = {"+": "green", "-": "red", "@": "cyan"}.get(line[:1], "dim")
    return Text(f"      {line}", style=style)
