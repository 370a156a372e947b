"""How much of Harbor's answers is kept at the same time, in all and of each project."""

from __future__ import annotations

import threading

from clustercheck.parse.document import count_marks

# Of all that is kept: what nobody reads takes memory, too.
KEPT_BYTES, KEPT_VALUES = 64 << 20, 2_000_000
# Of that what belongs to one project, whose administrator decides how much there is.
SHARES = 8


class Kept:
    """What is kept, counted. Safe to use from several threads.

    One that is a part ``of`` another has a share of that one's limits, and counts there, too.
    """

    def __init__(self, of: Kept | None = None) -> None:
        self._bytes = self._values = 0
        self._of = of
        self._most_bytes, self._most_values = (
            limit // (SHARES if of else 1) for limit in (KEPT_BYTES, KEPT_VALUES)
        )
        self._lock = threading.Lock()

    def add(self, answer: bytes) -> str:
        """Count an answer; where it is too much with those before, count nothing and return why."""
        return self._add(len(answer), count_marks(answer, exactly=True).values)

    def give_back(self) -> None:
        """Count nothing of this part any more in the whole: it is not kept."""
        if self._of:
            self._of._add(-self._bytes, -self._values)

    def _add(self, size: int, values: int) -> str:
        with self._lock:
            fits = self._bytes + size <= self._most_bytes and self._values + values <= self._most_values
            if not fits:
                limits = f"{self._most_bytes} bytes or {self._most_values} values"
                return f"Harbor's answers have more than {limits}{'' if self._of else ' in all'}"
            if self._of and (why := self._of._add(size, values)):
                return why
            self._bytes += size
            self._values += values
            return ""
