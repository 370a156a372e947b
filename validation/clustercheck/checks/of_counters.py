"""What checks of counters share: how much they grew over the run's jobs, whatever they counted before."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from clustercheck.evidence import Evidence
from clustercheck.node_evidence import NodeEvidence
from clustercheck.parse.reading import CannotReadError, NotDoneError

# How many errors by where and name: ("link 3", "replay errors").
Counts = Mapping[tuple[str, str], int]
K = TypeVar("K")


def before_and_after(
    evidence: Evidence, node: str, read: Callable[[NodeEvidence], Counts]
) -> tuple[Counts, Counts]:
    """The counts before the run's jobs and after them.

    Where no job ran there, what has never counted anything is as good after as before. Raises
    CannotReadError, and NotDoneError where no job ran and something was counted before.
    """
    before = read(evidence.counted_first[node])
    later = evidence.later.get(node)
    if later is None:
        if any(before.values()):
            said = ", ".join(f"{where}: {count} {name}" for (where, name), count in _most(before))
            raise NotDoneError(f"no job of this run loaded it; what it had counted before: {said}")
        return before, before
    if later.unreachable:
        raise CannotReadError(f"the counters could not be read again after the jobs: {later.unreachable}")
    return before, read(later)


def grown(
    before: Counts, after: Counts, widest: Mapping[str, int] | None = None
) -> dict[tuple[str, str], int]:
    """By how much each grew; a part that was not there before has counted from zero.

    ``widest`` has the count at which a counter stops, by its name. Raises CannotReadError for one that had
    stopped before, for one that counts less than before, and for one that is gone.
    """
    found = {}
    if gone := [where for where, name in before if (where, name) not in after]:
        raise CannotReadError(f"{gone[0]} counted before the jobs, and does not any more")
    for (where, name), count in after.items():
        first = before.get((where, name), 0)
        if first == (widest or {}).get(name) or count < first:
            why = "had counted to its end before" if count >= first else "was cleared between the readings"
            raise CannotReadError(f"{where}: the counter of {name} {why}: its growth cannot be told")
        found[where, name] = count - first
    return found


def _most(counts: Counts) -> list[tuple[tuple[str, str], int]]:
    return sorted(((key, count) for key, count in counts.items() if count), key=lambda each: -each[1])[:4]
