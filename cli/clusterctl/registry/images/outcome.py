"""What became of each image."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from clusterctl.cluster.lock import LockedImage
from clusterctl.errors import EXIT_CLUSTER_BAD, EXIT_GOOD, EXIT_INCOMPLETE, EXIT_USAGE, ExplainedError


class TransferState(StrEnum):
    """``THERE``: nothing was to be done. ``UNKNOWN``: it could not be judged."""

    THERE = "there"
    COPIED = "copied"
    MISSING = "missing"
    FAILED = "failed"
    UNKNOWN = "unknown"


BAD = (TransferState.MISSING, TransferState.FAILED)
# What says that the bytes are wrong or absent; anything else says that nobody could look.
WRONG = ("images.corrupt", "images.not-found", "images.manifest", "images.tag-moved", "images.signature")


@dataclass(frozen=True)
class TransferOutcome:
    """One image at the end of a command. ``moved`` are bytes that came from the source for it.

    ``signature`` is the state of its signatures, where a policy demands any.
    """

    image: LockedImage
    state: TransferState
    error: ExplainedError | None = None
    moved: int = 0
    signature: str = ""

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
        if self.signature:
            record["signature"] = self.signature
        if self.error is not None:
            error = self.error
            record |= {"code": error.code, "what": error.what, "where": error.where, "hint": error.hint}
        return record


def looked_at(image: LockedImage, error: ExplainedError | None) -> TransferOutcome:
    """What looking at an image has found, without changing it."""
    if error is None:
        return TransferOutcome(image, TransferState.THERE)
    return TransferOutcome(
        image, TransferState.FAILED if error.code in WRONG else TransferState.UNKNOWN, error
    )


def exit_code(outcomes: Sequence[TransferOutcome]) -> int:
    """1 where one is bad, or 2 where all that is bad are the settings; else 3 where one was not judged."""
    states = {outcome.state for outcome in outcomes}
    bad = [outcome.error for outcome in outcomes if outcome.state in BAD]
    if bad:
        ours = all(error is not None and error.exit_code == EXIT_USAGE for error in bad)
        return EXIT_USAGE if ours else EXIT_CLUSTER_BAD
    return EXIT_INCOMPLETE if TransferState.UNKNOWN in states else EXIT_GOOD
