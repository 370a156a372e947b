"""How much of what nodes answer is kept until a validation has ended: one node must not fill the memory."""

from __future__ import annotations

import threading

from clustercheck.parse.reading import CannotReadError

# Of one node, over all jobs. Of 50 nodes each takes 2 MB, of 4,000 some 85: what ranks say of their peers.
MAX_KEPT = 128 << 20
BYTES_PER_VALUE = 100
WIDEST = 4  # bytes of a character, where one of its text is beyond U+FFFF


class KeptAnswers:
    """Counts by node and job; a job that runs again, as in a burn-in, replaces what it said before."""

    def __init__(self) -> None:
        self._sizes: dict[str, dict[str, int]] = {}
        self._lock = threading.Lock()

    def add(self, node: str, job: str, text: str) -> None:
        """Count an answer. Raises CannotReadError where it is too much with those to the other jobs."""
        narrow = text.isascii() and "\\u" not in text
        size = len(text) * (1 if narrow else WIDEST) + BYTES_PER_VALUE * sum(map(text.count, ",[{"))
        with self._lock:
            of_node = self._sizes.setdefault(node, {})
            others = sum(kept for name, kept in of_node.items() if name != job)
            if others + size > MAX_KEPT:
                raise CannotReadError(f"its answers to all jobs would take more than {MAX_KEPT >> 20} MiB")
            of_node[job] = size
