"""What goes wrong after the change itself: it is said, and does not replace how the change ended."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from clusterctl import console
from clusterctl.errors import ClusterctlError

# What a disk, a node or a person may do to what comes after the work.
OF_AFTERWARDS = (ClusterctlError, OSError, KeyboardInterrupt)


@dataclass
class Unfinished:
    """Sentences of what was not done any more."""

    sentences: list[str] = field(default_factory=list)

    @contextlib.contextmanager
    def collect_errors(self, what: str) -> Iterator[None]:
        """Do what comes afterwards; where it cannot be done, say that ``what``."""
        try:
            yield
        except OF_AFTERWARDS as error:
            why = "interrupted" if isinstance(error, KeyboardInterrupt) else str(error)
            self.sentences.append(f"{what}: {why}")
            console.say(self.sentences[-1])

    def as_record(self) -> dict[str, Any]:
        """For the summary; nothing where all was done."""
        return {"unfinished": list(self.sentences)} if self.sentences else {}
