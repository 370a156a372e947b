"""The least rate of a blob: who gives a byte every few seconds is not waited for until the end."""

from __future__ import annotations

from collections.abc import Iterator

from clusterctl.registry.oci.deadline import now, within
from clusterctl.registry.oci.errors import RegistryError

# Bytes a second that a registry must give, seen over this long of waiting for it alone.
LEAST_RATE, RATE_SEEN_S = 1000.0, 60.0


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
