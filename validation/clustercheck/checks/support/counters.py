"""What checks of counters share: how much they grew over the run's jobs, whatever they counted before."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from clustercheck.evidence.cluster import Evidence
from clustercheck.evidence.node import NodeEvidence
from clustercheck.parse.reading import CannotReadError, NotDoneError

# Where something is counted, and its name: ("link 3", "replay errors").
Key = tuple[str, str]
SATURATED = "it was saturated during the jobs"


@dataclass(frozen=True)
class Counters:
    """One reading: the links that are ``up``, and ``counts`` by link and name; None if unknown."""

    up: frozenset[str]
    counts: Mapping[Key, int | None]

    @property
    def above_zero(self) -> dict[Key, int]:
        """What has counted anything."""
        return dict(sorted((key, count) for key, count in self.counts.items() if count))


@dataclass(frozen=True)
class Growth:
    """What a node's counters did over the jobs.

    ``grew`` has what each counted at least, where that is not nothing; ``gone`` names links that were up and
    are not any more. ``untold`` says of which growth is not known, and why; ``doubt`` why that is so of all.
    """

    before: Counters
    grew: Mapping[Key, int] = field(default_factory=dict)
    gone: tuple[str, ...] = ()
    untold: Mapping[Key, str] = field(default_factory=dict)
    doubt: CannotReadError | None = None

    def require_told(self, needed: Collection[Key]) -> None:
        """Raises CannotReadError where the growth of one of these is not known."""
        if self.doubt is not None:
            raise self.doubt
        for key, why in self.untold.items():
            if key in needed:
                raise CannotReadError(f"{key[0]}: the growth of {key[1]} cannot be determined: {why}")


def growth_over_jobs(
    evidence: Evidence,
    node: str,
    read: Callable[[NodeEvidence], Counters],
    *,
    loaded_by: Collection[str],
    widest: Mapping[str, int] | None = None,
) -> Growth:
    """What grew from before the run's jobs until after them; ``loaded_by`` names those that loaded the links.

    Without such a job, what has never counted anything is as good after as before; what has is in doubt.
    ``widest`` has the count at which a counter stops, by its name.
    Raises CannotReadError where nothing could be read before.
    """
    before = read(evidence.counted_first[node])
    later = evidence.later.get(node)
    if later is None:
        return Growth(before, doubt=_not_loaded(before))
    if later.unreachable:
        why = f"the counters could not be read again after the jobs: {later.unreachable}"
        return Growth(before, doubt=CannotReadError(why))
    try:
        after = read(later)
    except CannotReadError as error:
        return Growth(before, doubt=error)
    grew, untold = _compare(before.counts, after.counts, widest or {})
    gone = tuple(sorted(before.up - after.up))
    return Growth(before, grew, gone, untold, None if loaded_by else _not_loaded(before))


def _not_loaded(before: Counters) -> NotDoneError | None:
    most = sorted(before.above_zero.items(), key=lambda each: -each[1])[:4]
    if not most:
        return None
    message = ", ".join(f"{where}: {count} {name}" for (where, name), count in most)
    return NotDoneError(f"no job of this run loaded it; counted before: {message}")


def _compare(
    before: Mapping[Key, int | None], after: Mapping[Key, int | None], widest: Mapping[str, int]
) -> tuple[dict[Key, int], dict[Key, str]]:
    """What grew, and why growth is not known; a counter that was not there before has counted from zero."""
    if before == after and not widest and None not in before.values():
        return {}, {}  # as of nearly all links
    grew, untold = {}, {}
    for key in {**before, **after}:
        first, last = before.get(key, 0), after.get(key)
        if first is None or last is None:
            untold[key] = "the counter is not reported"
        elif first == widest.get(key[1]):
            untold[key] = "it had been saturated before"
        elif last < first:
            untold[key] = "it was cleared between the readings"
            grew[key] = last  # since then
        else:
            grew[key] = last - first
            if grew[key] and last == widest.get(key[1]):
                untold[key] = SATURATED
    return dict(sorted((key, count) for key, count in grew.items() if count)), untold
