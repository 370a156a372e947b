"""`clusterctl runs list|show|verify`: what was done to this cluster, how it ended, if its record is whole."""

from __future__ import annotations

import json
from dataclasses import asdict
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import click

from clustercheck.parse.plain_text import one_line
from clusterctl import console
from clusterctl.cluster.directory import find_cluster_directory
from clusterctl.engine.wording import counted
from clusterctl.errors import EXIT_CLUSTER_BAD, EXIT_GOOD, EXIT_INCOMPLETE, ClusterctlError
from clusterctl.report import files, terminal
from clusterctl.runs import verification
from clusterctl.runs.chain import CHAIN_FILE
from clusterctl.runs.events import open_containers
from clusterctl.runs.state import RunState, duration_s, state_of
from clusterctl.runs.store import Run, RunStore, UnreadableRun

MAX_FACT = 4096
TORN = (
    "the chain's last line is incomplete, as after a crash: the next run that ends removes it, and "
    "records the run whose link it was"
)

OLDER = "not covered, as they say that they ended before the chain began: {}"


@click.group("runs")
def command() -> None:
    """List and show the runs of this cluster."""


@command.command("list")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per run, oldest first.")
@click.pass_obj
def list_runs(named: Path | None, as_json: bool) -> None:
    """List every run, oldest first."""
    store = RunStore(find_cluster_directory(named))
    if as_json:
        listing = store.scan()
        for record in chain(map(record_of, listing.runs), map(record_of_unreadable, listing.unreadable)):
            console.emit(record)
        return
    runs = store.list()
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
    row = run.id, run.kind, run.started, took, run.operator, code, ending(run)
    return tuple(map(one_line, row))


@command.command("show")
@click.argument("run", default="last")
@click.option("--json", "as_json", is_flag=True, help="The run's record, and its result if it has one.")
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
        console.RESULTS.print(f"{name:<10} {one_line(value, MAX_FACT)}")
    for one in _left_containers(chosen):
        words = f"left behind: container {one['container'][:12]} of job {one['job']} on {one['node']}"
        console.RESULTS.print(one_line(words))
    if judged:
        text = files.render(chosen, partial(terminal.render, colour=console.has_colours()))
        console.write_rendered(f"\n{text}")
    elif summary := chosen.whole_summary():
        console.RESULTS.print(json.dumps(dict(summary), indent=2))


@command.command("verify")
@click.option("--head", help="A head from a report or from syslog: it must be in the chain.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@click.pass_obj
def verify(named: Path | None, head: str | None, as_json: bool) -> int:
    """Compare the records of all runs with the hash chain. Exit code 1 if they differ, 3 without a chain.

    Only a head kept elsewhere shows that nobody with access to this directory wrote the chain again.
    """
    directory = find_cluster_directory(named)
    checked = verification.verify(directory, head)
    if as_json:
        console.emit({"type": "chain", **asdict(checked), "head": checked.newest, "good": checked.good})
    else:
        for problem in checked.problems:
            console.RESULTS.print(problem)
        if checked.torn:
            console.RESULTS.print(TORN)
        if checked.older:
            console.RESULTS.print(OLDER.format(", ".join(checked.older)))
        console.RESULTS.print(_chain_sentence(checked))
    if not checked.good:
        return EXIT_CLUSTER_BAD
    return EXIT_INCOMPLETE if checked.unchained else EXIT_GOOD


def _chain_sentence(checked: verification.ChainVerification) -> str:
    if not checked.good:
        return f"{counted(len(checked.problems), 'problem')} in the record of {counted(checked.runs, 'run')}"
    if checked.unchained:
        ended = counted(len(checked.unchained), "run")
        return f"{ended} ended, and there is no chain: was {CHAIN_FILE} removed?"
    if not checked.links:
        return "no run is recorded in a chain yet"
    chained = f"{counted(checked.runs, 'run')} in {counted(checked.links, 'link')}"
    found = f"{chained}, unchanged; head {checked.newest}"
    if checked.anchored:
        since = f"up to link {checked.anchored} was changed since the given head was printed"
        if not checked.recorded_again:
            return f"{found}\nnothing {since}"
        return "\n".join((found, f"nothing else {since} than:", *checked.recorded_again))
    return (
        f"{found}\nwithout --head this does not show that nobody wrote the chain again; "
        "heads are in reports, and in syslog where site_syslog is set"
    )


def _left_containers(run: Run) -> list[dict[str, Any]]:
    """What an interrupted run left on nodes, as far as its journal says so."""
    try:
        return open_containers(run.journal) if state_of(run) is RunState.CUT_OFF else []
    except ClusterctlError as error:
        console.say(error.what)
        return []


def record_of_unreadable(run: UnreadableRun) -> dict[str, Any]:
    """A run of which only the directory is known, as JSON for machines."""
    return {"type": "unreadable_run", "id": run.id, "directory": str(run.directory), "error": run.error.what}


def record_of(run: Run) -> dict[str, Any]:
    """A run as JSON for machines."""
    record = run.as_record()
    record.update(directory=str(run.directory), state=str(state_of(run)), duration_s=duration_s(run))
    return {"type": "run", **record}


def ending(run: Run) -> str:
    """One phrase on how a run ended."""
    if run.finished is None:
        return str(state_of(run))
    summary = run.whole_summary()
    verdict = str(summary.get("verdict") or "")
    if verdict:
        named = summary.get("culprits")
        culprits = ", ".join(map(str, named)) if isinstance(named, list) else ""
        return f"{verdict}: {culprits}" if culprits else verdict
    changed, failed = summary.get("changed"), summary.get("failed")
    if changed is not None:
        return f"{changed} changed, {failed or 0} failed"
    return "interrupted" if run.exit_code == 130 else ""
