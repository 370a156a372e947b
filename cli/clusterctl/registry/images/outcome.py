"""What became of each image."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from clusterctl.cluster.lock import LockedImage
from clusterctl.errors import EXIT_CLUSTER_BAD, EXIT_GOOD, EXIT_INCOMPLETE, ExplainedError


class State(StrEnum):
    """``THERE``: nothing was to be done. ``UNKNOWN``: it could not be judged."""

    THERE = "there"
    COPIED = "copied"
    MISSING = "missing"
    FAILED = "failed"
    UNKNOWN = "unknown"


BAD = (State.MISSING, State.FAILED)


@dataclass(frozen=True)
class Outcome:
    """One image at the end of a command. ``moved`` are bytes that came from the source for it."""

    image: LockedImage
    state: State
    error: ExplainedError | None = None
    moved: int = 0

    def as_record(self) -> dict[str, Any]:
        """For --json and the run's summary."""
        image = self.image
        record: dict[str, Any] = {
            "type": "image",
            "name": image.name,
            "source": image.source,
            "target": image.target,
            "digest": image.digest,
            "size": image.size,
            "state": self.state.value,
            "moved": self.moved,
        }
        if self.error is not None:
            error = self.error
            record |= {"code": error.code, "what": error.what, "where": error.where, "hint": error.hint}
        return record


def exit_code(outcomes: Sequence[Outcome]) -> int:
    """1 where one is bad, else 3 where one could not be judged."""
    states = {outcome.state for outcome in outcomes}
    if states & set(BAD):
        return EXIT_CLUSTER_BAD
    return EXIT_INCOMPLETE if State.UNKNOWN in states else EXIT_GOOD
