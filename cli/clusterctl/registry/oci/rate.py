"""The least rate of blobs: who gives a byte every few seconds, or little for hours, is not waited for."""

from __future__ import annotations

import threading
from collections.abc import Iterator

from clusterctl.registry.oci.deadline import now, within
from clusterctl.registry.oci.errors import RegistryError

# Bytes a second that a registry must give, seen over this long of waiting for it alone.
LEAST_RATE, RATE_SEEN_S = 1000.0, 60.0
# Bytes a second over all of its blobs, for each second that one of them is waited for, and how many seconds
# it may be behind. With several jobs on a slow line each has its part of the rate.
WHOLE_RATE, MAX_BEHIND_S = 100e3, 3600.0


class Pace:
    """How far one registry is behind `WHOLE_RATE`, over all of its blobs. Safe from many threads."""

    def __init__(self) -> None:
        self._behind_s = 0.0
        self._lock = threading.Lock()

    def kept(self, pieces: Iterator[bytes], host: str, what: str) -> Iterator[bytes]:
        """The pieces of a blob, while the registry keeps up; questions and pauses for them count as well.

        Raises RegistryError.
        """
        while self._behind_s < MAX_BEHIND_S:
            began, piece = now(), b""
            try:
                piece = next(pieces)
            except StopIteration:
                return
            finally:
                with self._lock:
                    # What it was fast before makes up for no later hour.
                    self._behind_s = max(0.0, self._behind_s + now() - began - len(piece) / WHOLE_RATE)
            yield piece
        raise RegistryError(
            f"{host} gives less than {WHOLE_RATE / 1000:.0f} kB a second for each blob that it is asked for",
            code="images.unreachable",
            where=f"{host}: {what}",
            hint="Does it hold us back, or is the line slow? Then use --jobs 1; what came is kept.",
        )


def longest_s(size: int) -> float:
    """How long a registry may take for a blob of this size."""
    return MAX_BEHIND_S + size / WHOLE_RATE


def fast_enough(pieces: Iterator[bytes], host: str, what: str) -> Iterator[bytes]:
    """The pieces, while they come at the least rate; how long who takes them needs does not count.

    Raises RegistryError, and httpx.ReadTimeout where no piece becomes whole, as in a chunk's header.
    """
    waited, got = 0.0, 0
    while True:
        began = now()
        with within(2 * RATE_SEEN_S):
            piece = next(pieces, None)
        if piece is None:
            return
        waited, got = waited + now() - began, got + len(piece)
        if waited >= RATE_SEEN_S:
            if got < LEAST_RATE * waited:
                raise RegistryError(
                    f"{host} gives {got / waited:.0f} bytes a second",
                    code="images.unreachable",
                    where=f"{host}: {what}",
                    hint="Is the way to it broken, or does it hold us back? Run it again: what came is kept.",
                    lasting=False,
                )
            waited, got = 0.0, 0
        yield piece
