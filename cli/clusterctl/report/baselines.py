"""Which earlier run a validation is compared with: a named one, the saved one, or one that passed."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Collection
from functools import cache
from itertools import pairwise
from pathlib import Path

from clustercheck.expect import baseline
from clustercheck.expect.baseline import Baseline
from clustercheck.result import reading
from clustercheck.result.document import Document
from clustercheck.running.suites import Suite, suites
from clusterctl import console
from clusterctl.cluster.bounded_file import UnusableFileError, describe_unusable, is_there, read_bounded_text
from clusterctl.cluster.directory import ClusterDirectory
from clusterctl.cluster.state_files import replace_file
from clusterctl.errors import ClusterctlError, ExplainedError
from clusterctl.report import files
from clusterctl.runs.store import Run, RunStore

NONE = "none"
NodesOf = Callable[[str], Collection[str]]
MOST_LOOKED_AT = 50  # of the runs that passed: a result of a thousand nodes takes seconds to read


def chosen(
    directory: ClusterDirectory,
    named: str | None,
    suite: Suite,
    nodes: Collection[str],
    nodes_of: NodesOf | None = None,
) -> Baseline | None:
    """The ``named`` baseline (a run, a file, ``none``); else the saved one; else, of the runs that passed,
    the last that has the checks of this suite and these nodes, or most of them.

    ``nodes_of`` says which nodes an earlier run's ``--limit`` names.
    Raises ExplainedError: ``baseline.*``, ``runs.unknown``, ``report.no-result``.
    """
    if named == NONE:
        return None
    if named is not None:
        path = Path(named)
        if path.is_file():
            return _read(path)
        run = RunStore(directory).get(named)
        return baseline.from_result(files.load_json(run), where=str(run.path(files.RESULT)))
    return _saved(directory.baseline_file) or _last_good(directory, suite, nodes, nodes_of)


def save(directory: ClusterDirectory, document: Document) -> Path:
    """Keep a validation that passed as the baseline. Raises ExplainedError (``baseline.unfit``)."""
    made = document.as_json()
    baseline.from_result(made, where=document.run)
    text = json.dumps(baseline.record_of(made), indent=1) + "\n"
    replace_file(directory.baseline_file, text, files.MODE)
    return directory.baseline_file


def _saved(path: Path) -> Baseline | None:
    try:
        return _read(path) if is_there(path) else None
    except OSError as error:
        raise _unreadable(path, error) from error


def _read(path: Path) -> Baseline:
    try:
        text = read_bounded_text(path, reading.MAX_BYTES)
    except (OSError, UnusableFileError) as error:
        raise _unreadable(path, error) from error
    return baseline.parse(text, where=str(path))


def _unreadable(path: Path, error: UnusableFileError | OSError) -> ClusterctlError:
    return ClusterctlError(
        f"the baseline cannot be read: {describe_unusable(error)}",
        code="baseline.unreadable",
        where=str(path),
        hint="Name a run that passed; `clusterctl validate --save-baseline` saves a new one.",
    )


def _last_good(
    directory: ClusterDirectory, suite: Suite, nodes: Collection[str], nodes_of: NodesOf | None
) -> Baseline | None:
    """The newest complete run that passed and measured something, of those that have most of what is to be
    compared: what a baseline lacks is compared with nothing. Unreadable ones are skipped, and named.
    """
    best, most, looked_at, wanted = None, 0, 0, {check.id for check in suite.selected()}
    for bound, run in _ranked(directory, wanted, nodes, nodes_of):
        if bound <= most or looked_at == MOST_LOOKED_AT:
            break
        try:
            if run.whole_summary().get("verdict") != "pass":
                continue
            looked_at += 1
            document = files.load_json(run)
            found = baseline.from_result(document, where=str(run.directory))
        except ExplainedError as error:
            console.say(f"run {run.id} passed, but is not used as the baseline: {error.what}")
            continue
        if not found.figures or document["environment"].get("only_checks"):
            continue
        shared = len(_checks_of(document["suite"], wanted)) * len(found.nodes.keys() & set(nodes))
        if shared > most:
            best, most = found, shared
    return best


def _ranked(
    directory: ClusterDirectory, wanted: set[str], nodes: Collection[str], nodes_of: NodesOf | None
) -> list[tuple[int, Run]]:
    """Validations, with how much of this one they have at most by their arguments: the most first, then the
    newest. So runs of smaller suites or fewer nodes, however many, are read last.
    """

    @cache
    def bound(suite: str | None, limit: str | None) -> int:
        among: Collection[str] = nodes
        if limit and nodes_of:
            with contextlib.suppress(ExplainedError):  # it names what is no longer there: nobody knows
                among = nodes_of(limit)
        checks = _checks_of(suite, wanted) if suite else wanted
        return len(checks) * len(set(nodes).intersection(among))

    ranked = []
    for run in reversed(RunStore(directory).list()):
        if run.kind == "validate" and run.finished and "--checks" not in run.arguments:
            given = dict(pairwise(run.arguments))
            ranked.append((bound(given.get("--suite"), given.get("--limit")), run))
    return sorted(ranked, key=lambda one: -one[0])


def _checks_of(suite: str, wanted: set[str]) -> set[str]:
    """Those of the wanted checks that a suite has; none if it is of another version."""
    known = suites().get(suite)
    return wanted.intersection(check.id for check in known.selected()) if known else set()
