"""Figures of the bench as they are kept between runs, and as docs/performance.md shows them."""

from __future__ import annotations

import datetime
import json
import os
import platform
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

BEGIN, END = "<!-- figures: written by the bench -->", "<!-- end of figures -->"
NOT_MEASURED = "–"


def load(path: Path) -> dict[str, Any]:
    """Figures by number of hosts, of an earlier run too."""
    try:
        kept: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return kept


def save(path: Path, figures: Mapping[str, Any]) -> None:
    """Keep them."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(figures, indent=1), encoding="utf-8")


def machine() -> str:
    """The machine in one line: cores, memory, kernel, Python."""
    gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    system = f"Linux {platform.release()}, Python {platform.python_version()}"
    return f"{os.cpu_count()} cores, {gib:.0f} GiB, {system}"


def table(figures: Mapping[str, Any]) -> str:
    """A row a size of lab: medians, and second applies of the others as multiples of ours."""
    lines = [
        "| GPU nodes (and a registry) | first apply | second apply | CPU of the controller per host | "
        "the same with --full | its CPU per host | plain ansible-playbook | pyinfra | ansible / ours | "
        "ours / pyinfra | validate | measured |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for size, one in sorted(figures.items(), key=lambda item: int(item[0])):
        ours, plain, other = (middle(one.get(name)) for name in ("second", "ansible", "pyinfra"))
        cpu, full_cpu = middle(one.get("second_cpu")), middle(one.get("full_cpu"))
        cells = [
            size,
            seconds(middle(one.get("first"))),
            seconds(ours, one.get("second")),
            a_host(cpu, size),
            seconds(middle(one.get("full")), one.get("full")),
            a_host(full_cpu, size),
            seconds(plain, one.get("ansible")),
            seconds(other, one.get("pyinfra")),
            ratio(plain, ours),
            ratio(ours, other),
            seconds(middle(one.get("validate"))) + verdict(one),
            str(one.get("measured", NOT_MEASURED)),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    problems = [f"- {size}: {text}" for size, one in figures.items() for text in one.get("problems", ())]
    return "\n".join([*lines, *(["", "Not measured:", "", *problems] if problems else [])])


def parts(figures: Mapping[str, Any]) -> str:
    """Where a second apply's time goes, by what commands take that do the first of it and no more."""
    lines = [
        "| GPU nodes (and a registry) | the program's start | the inventory | looking at the hosts |",
        "|---|---|---|---|",
    ]
    for size, one in sorted(figures.items(), key=lambda item: int(item[0])):
        start, read, whole = (middle(one.get(name)) for name in ("start", "inventory", "second"))
        if start is not None and read is not None and whole is not None:
            lines.append(f"| {size} | {start:.1f} s | {read - start:.1f} s | {whole - read:.1f} s |")
    return "\n".join(lines)


def middle(values: Sequence[float] | None) -> float | None:
    """The median; None if nothing was measured."""
    return statistics.median(values) if values else None


def a_host(cpu_s: float | None, size: str) -> str:
    """CPU of the controller by all hosts: the nodes and the registry's."""
    return NOT_MEASURED if cpu_s is None else f"{cpu_s / (int(size) + 1):.2f} s"


def seconds(value: float | None, of: Sequence[float] | None = None) -> str:
    """A median, and of how many it is one."""
    if value is None:
        return NOT_MEASURED
    return f"{value:.1f} s" + (f" ({len(of)})" if of else "")


def verdict(one: Mapping[str, Any]) -> str:
    """How a validation was judged, in brackets; nothing where that was not kept."""
    return f" ({one['validate_verdict']})" if "validate_verdict" in one else ""


def ratio(over: float | None, under: float | None) -> str:
    """One median as a multiple of another."""
    return NOT_MEASURED if over is None or under is None else f"{over / under:.2f}"


def write(document: Path, figures: Mapping[str, Any], command: str) -> None:
    """Put the table between its marks. Raises ValueError without marks."""
    today = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d")
    head = f"{machine()}. {today}, by `{command}`, a size at a time. Medians; in brackets of how many runs."
    where = (
        "Of a second apply, medians: `clusterctl --version`, what `clusterctl hosts list` takes beyond it, "
        "and what the apply takes beyond that."
    )
    written = "\n\n".join([head, table(figures), where, parts(figures)])
    place(document, (BEGIN, END), written)


def place(document: Path, marks: tuple[str, str], written: str) -> None:
    """Put text between its marks; all else in the document stays. Raises ValueError without marks."""
    begin, end = marks
    text = document.read_text(encoding="utf-8")
    before, _, rest = text.partition(begin)
    _, mark, after = rest.partition(end)
    if not mark:
        raise ValueError(f"{document} has no place for figures")
    document.write_text(f"{before}{begin}\n\n{written}\n\n{end}{after}", encoding="utf-8")
