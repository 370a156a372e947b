"""Compares the runs' records with the hash chain over them, and the chain with itself."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from clustercheck.parse.plain_text import one_line, shortened
from clusterctl.cluster.bounded_file import UnusableFileError, describe_unusable
from clusterctl.cluster.directory import ClusterDirectory
from clusterctl.runs import chain
from clusterctl.runs.chain import EVIDENCE, RESULT, RUN_FILE, START, ChainLink
from clusterctl.runs.store import RunStore, seconds_after

# Written before a run's first link, and never again.
FINAL = (RESULT, EVIDENCE)
UNRECORDED = (
    "{} of run {} is in no link: the run is ending just now, or was added, or clusterctl was killed or its "
    "disk was full as it ended (then move the run's directory away)"
)


@dataclass(frozen=True)
class ChainVerification:
    """``anchored`` is the number of the link whose head was given, 0 without one. ``torn``: the chain ends
    with what a writer that died left of a link. ``recorded_again``: records that the head covered and that
    were recorded otherwise since, as where jobs of an interrupted run have ended. ``older``: runs that say
    that they started and ended before the chain began, which it does not cover. ``unchained``: those that
    ended, where there is no chain at all."""

    links: int
    runs: int
    newest: str
    anchored: int
    problems: tuple[str, ...]
    torn: bool = False
    recorded_again: tuple[str, ...] = ()
    older: tuple[str, ...] = ()
    unchained: tuple[str, ...] = ()

    @property
    def good(self) -> bool:
        """Whether nothing differs."""
        return not self.problems


def verify(directory: ClusterDirectory, head: str | None = None) -> ChainVerification:
    """Compare the chain with itself, with the runs' files, and with a head that was kept elsewhere.

    Raises ClusterctlError as RunStore.scan does.
    """
    links, problems, torn = chain.read(directory)
    problems += problems_of(links, directory)
    not_linked, older = _not_linked(directory, links)
    problems += not_linked
    covered = next((count for count, link in enumerate(links, 1) if link.head == head), 0)
    anchored = links[covered - 1].number if covered else 0
    if head is not None and not covered:
        problems.append(f"no link has the head {shortened(head, 80)}: the chain was cut, or written again")
    newest = links[-1].head if links else ""
    ended = () if links else tuple(run.id for run in RunStore(directory).scan().runs if run.finished)
    return ChainVerification(
        links=len(links),
        runs=len({link.run for link in links}),
        newest=newest,
        anchored=anchored,
        problems=tuple(problems),
        torn=torn,
        recorded_again=tuple(_recorded_again(links, covered)),
        older=tuple(older),
        unchained=ended,
    )


def _not_linked(directory: ClusterDirectory, links: list[ChainLink]) -> tuple[list[str], list[str]]:
    """What is wrong with runs that are in no link, and those that started and ended before the chain began.

    `runs list` names the unreadable ones.
    """
    if not links:
        return [], []
    linked, first = {link.run for link in links}, links[0]
    problems, older = [], []
    for run in RunStore(directory).scan().runs:
        if not run.finished or run.id in linked:
            continue
        linked.add(run.id)
        # Its name says when it started.
        if -math.inf < seconds_after(run, first.at) <= 0 and run.id < first.run:
            older.append(run.id)
        else:
            problems.append(UNRECORDED.format(RUN_FILE, run.id))
    # Whatever the others say of themselves, or if they say nothing: only a run that ends has these.
    for path in sorted(directory.runs.iterdir()) if directory.runs.is_dir() else ():
        has = [name for name in FINAL if path.name not in linked and os.path.lexists(path / name)]
        problems += [UNRECORDED.format(name, one_line(path.name)) for name in has]
    return problems, older


def problems_of(links: Iterable[ChainLink], directory: ClusterDirectory) -> list[str]:
    """Where links do not follow each other, where a run's result differs between its links, and where its
    files differ from its newest link."""
    problems: list[str] = []
    newest: dict[str, ChainLink] = {}
    before: ChainLink | None = None
    for link in links:
        number, previous = (before.number + 1, before.head) if before else (1, START)
        if link.head != link.expected_head():
            problems.append(f"link {link.number} ({link.run}) was changed")
        if (link.number, link.previous) != (number, previous):
            problems.append(f"link {link.number} ({link.run}) does not follow link {number - 1}")
        problems += _changed_results(newest.get(link.run), link)
        newest[link.run], before = link, link
    for run, link in newest.items():
        problems += _changes(run, link.files, directory.runs / run)
    return problems


def _changed_results(before: ChainLink | None, link: ChainLink) -> list[str]:
    """A run that has a result has ended for good: nothing of it is written again."""
    if before is None or not any(name in each.files for each in (before, link) for name in FINAL):
        return []
    return [
        f"{name} of run {link.run} was changed between its links {before.number} and {link.number}"
        for name in _different(before, link)
    ]


def _recorded_again(links: Sequence[ChainLink], covered: int) -> list[str]:
    """Records in the first ``covered`` links that later links have otherwise."""
    newest = {link.run: link for link in links[:covered]}
    found = []
    for link in links[covered:]:
        before = newest.get(link.run)
        if before is not None and (names := _different(before, link)):
            found.append(f"{' and '.join(names)} of run {link.run}, recorded again in link {link.number}")
            newest[link.run] = link
    return found


def _different(before: ChainLink, link: ChainLink) -> list[str]:
    return sorted(
        name for name in {**before.files, **link.files} if before.files.get(name) != link.files.get(name)
    )


def _changes(run: str, recorded: Mapping[str, str], path: Path) -> list[str]:
    if not path.is_dir():
        return [f"run {run} was removed"]
    try:
        present = chain.digests(path)
    except (OSError, UnusableFileError) as error:
        return [f"run {run} cannot be read: {describe_unusable(error)}"]
    gone = [f"{name} of run {run} was removed" for name in recorded if name not in present]
    links = [f"{name} of run {run} is a link" for name in chain.RECORDED if (path / name).is_symlink()]
    both = [name for name in recorded if name in present]
    changed = [f"{name} of run {run} was changed" for name in both if present[name] != recorded[name]]
    added = [f"{name} of run {run} was added" for name in present if name not in recorded]
    return [*gone, *links, *changed, *added]
