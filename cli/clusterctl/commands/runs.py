"""`clusterctl runs list|show`: what was done to this cluster, and how it ended."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from clusterctl import console
from clusterctl.cluster.directory import find_cluster_directory
from clusterctl.report import files, terminal
from clusterctl.runs.events import open_containers
from clusterctl.runs.state import RunState, duration_s, state_of
from clusterctl.runs.store import Run, RunStore


@click.group("runs")
def command() -> None:
    """List and show the runs of this cluster."""


@command.command("list")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per run, oldest first.")
@click.pass_obj
def list_runs(named: Path | None, as_json: bool) -> None:
    """List every run, oldest first."""
    runs = RunStore(find_cluster_directory(named)).list()
    if as_json:
        for run in runs:
            console.emit(record_of(run))
        return
    if not runs:
        console.say("no runs yet")
        return
    rows = [("run", "what", "started", "took", "by", "exit", "how it ended"), *map(_row, runs)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        console.RESULTS.print("  ".join(cells).rstrip())


def _row(run: Run) -> tuple[str, ...]:
    seconds = duration_s(run)
    took = "" if seconds is None else f"{seconds:.0f} s"
    code = "" if run.exit_code is None else str(run.exit_code)
    return run.id, run.kind, run.started, took, run.operator, code, ending(run)


@command.command("show")
@click.argument("run", default="last")
@click.option("--json", "as_json", is_flag=True, help="The run's record, and its result where it has one.")
@click.pass_obj
def show(named: Path | None, run: str, as_json: bool) -> None:
    """Show one run: an id, a unique prefix of one, or `last`."""
    chosen = RunStore(find_cluster_directory(named)).get(run)
    judged = chosen.path(files.RESULT).is_file()
    if as_json:
        console.emit(record_of(chosen))
        if judged:
            console.emit(files.load_json(chosen))
        return
    facts = {
        "run": chosen.id,
        "command": " ".join((chosen.kind, *chosen.arguments)),
        "by": f"{chosen.operator} on {chosen.controller}",
        "started": chosen.started,
        "finished": chosen.finished or str(state_of(chosen)),
        "exit code": "" if chosen.exit_code is None else str(chosen.exit_code),
        "files": str(chosen.directory),
    }
    for name, value in facts.items():
        console.RESULTS.print(f"{name:<10} {value}")
    for one in open_containers(chosen.journal) if state_of(chosen) is RunState.CUT_OFF else []:
        words = f"left behind: container {one['container'][:12]} of job {one['job']} on {one['node']}"
        console.RESULTS.print(words)
    if judged:
        text = terminal.render(files.load(chosen), colour=console.has_colours())
        console.write_rendered(f"\n{text}")
    elif chosen.summary:
        console.RESULTS.print(json.dumps(dict(chosen.summary), indent=2))


def record_of(run: Run) -> dict[str, Any]:
    """A run as JSON for machines."""
    record = asdict(run)
    record.update(directory=str(run.directory), state=str(state_of(run)), duration_s=duration_s(run))
    return {"type": "run", **record}


def ending(run: Run) -> str:
    """One phrase on how a run ended."""
    if run.finished is None:
        return str(state_of(run))
    verdict = run.summary.get("verdict")
    if verdict:
        culprits = ", ".join(run.summary.get("culprits") or [])
        return f"{verdict}: {culprits}" if culprits else str(verdict)
    changed, failed = run.summary.get("changed"), run.summary.get("failed")
    if changed is not None:
        return f"{changed} changed, {failed or 0} failed"
    return "interrupted" if run.exit_code == 130 else ""
