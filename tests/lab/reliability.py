"""What campaigns have seen, kept next to docs/reliability.md, and the tables there that are made of it."""

from __future__ import annotations

import datetime
import json
import platform
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .fault_cases import BY_KIND

Records = dict[str, Any]

FAULTS = ("<!-- faults: written by the campaign -->", "<!-- end of faults -->")
CLEAN = ("<!-- clean runs: written by the campaign -->", "<!-- end of clean runs -->")


def keep(docs: Path, part: str, name: str, record: Mapping[str, Any]) -> None:
    """Keep a record in reliability.json, in place of an earlier one of its name, and make the page again."""
    file = docs / "reliability.json"
    kept: Records = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    kept.setdefault(part, {})[name] = {**record, "measured": today()}
    kept[part] = dict(sorted(kept[part].items()))
    lines = [
        f'"{each}": {{\n'
        + ",\n".join(f'  "{key}": {json.dumps(value)}' for key, value in rows.items())
        + "\n}"
        for each, rows in sorted(kept.items())
    ]
    file.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    write(docs / "reliability.md", kept)


def write(page: Path, kept: Records) -> None:
    """Put the tables between their marks. Raises ValueError where the page has no place for them."""
    text = page.read_text(encoding="utf-8")
    for marks, table in ((FAULTS, faults_table(kept)), (CLEAN, clean_table(kept))):
        begin, end = marks
        before, _, rest = text.partition(begin)
        _, mark, after = rest.partition(end)
        if not mark:
            raise ValueError(f"{page} has no place for what {begin} names")
        text = f"{before}{begin}\n\n{table}\n\n{end}{after}"
    page.write_text(text, encoding="utf-8")


def faults_table(kept: Records) -> str:
    """A row a fault: what found it, who was blamed, how long the validation took; or that it was not run."""
    lines = [
        "| fault | put in place on | found by | blamed | validation | seen |",
        "|---|---|---|---|---|---|",
    ]
    seen: Records = kept.get("faults", {})
    for kind in sorted({*seen, *BY_KIND}):
        if kind not in seen:
            case = BY_KIND[kind]
            where = place({"node": case.node, "gpu": case.gpu, "peer": case.peer})
            lines.append(f"| `{kind}` | {where} | – | – | – | not run yet |")
            continue
        one = seen[kind]
        checks = ", ".join(f"`{check}`" for check in one["checks"])
        blamed = f"{one['blamed']['scope']} {place(one['blamed'])}" if one["blamed"] else "nobody: a warning"
        lines.append(
            f"| `{kind}` | {place(one)} | {checks} | {blamed} | {one['seconds']:.0f} s | {one['measured']} |"
        )
    return "\n".join(lines)


def clean_table(kept: Records) -> str:
    """A row a campaign of clean runs."""
    lines = ["| suite | runs | alarms | one validation, median | seen |", "|---|---|---|---|---|"]
    for suite, one in kept.get("clean runs", {}).items():
        middle = statistics.median(one["seconds"])
        row = (f"`{suite}`", str(len(one["seconds"])), str(one["alarms"]), f"{middle:.0f} s", one["measured"])
        lines.append(f"| {' | '.join(row)} |")
    return "\n".join(lines)


def place(one: Mapping[str, Any]) -> str:
    """Node, GPU and peer, as far as there are."""
    gpu = f" GPU {one['gpu']}" if one.get("gpu") is not None else ""
    peer = f" towards {one['peer']}" if one.get("peer") else ""
    return f"{one['node']}{gpu}{peer}"


def checks_of(failed: Sequence[Mapping[str, Any]]) -> list[str]:
    """The checks of these results, each once, in the report's order."""
    return list(dict.fromkeys(result["check"] for result in failed))


def today() -> str:
    """The date, and on what kernel: a lab is as fast as its machine."""
    return f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}, Linux {platform.release().partition('-')[0]}"
