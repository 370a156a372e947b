"""Whether nodes can connect to each other at the ports that jobs choose: TCP, without framework or master.

One rank a node. Each listens at its own endpoint and connects to those of the ranks after it. A collective
library does the same, to fewer of them, and says of a firewall no more than that it waited in vain.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import socket
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from clustercheck.jobs import meeting
    from clustercheck.jobs.rank import Progress
else:  # shipped to a node they lie side by side, and are no package
    meeting = importlib.import_module(f"{__package__}.meeting" if __package__ else "meeting")

PHASE = "waiting for the other nodes to connect"


class World:
    """All ranks' endpoints, as the launcher gave them."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self.rank = int(os.environ["PADDLE_TRAINER_ID"])
        self.interface = os.environ.get("GLOO_SOCKET_IFNAME", "")
        ends = [each.rsplit(":", 1) for each in os.environ["PADDLE_TRAINER_ENDPOINTS"].split(",")]
        self.endpoints = [(host, int(port)) for host, port in ends]

    def describe(self) -> dict[str, Any]:
        """What every verdict says of where it was measured."""
        return {"rank": self.rank, "world": len(self.endpoints), "interface": self.interface}

    def at(self, phase: str, *, collective: bool = False) -> None:
        """Note where this rank is."""
        self._progress.at(phase, collective=collective)

    def barrier(self) -> None:
        """No rank needs another once it has spoken."""


def join(progress: Progress) -> World:
    """Nobody is met: who cannot be connected to could not be."""
    return World(progress)


def partners(rank: int, size: int, most: int) -> tuple[list[int], list[int]]:
    """Whom a rank connects to, and who connects to it: the ``most`` after it and before it, cyclically."""
    count = min(most, size - 1)
    after = [(rank + step) % size for step in range(1, count + 1)]
    return after, [(rank - step) % size for step in range(1, count + 1)]


def run(world: World, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments: peers (a rank connects to so many), limit_s, secret. The verdict has each one's error.

    A rank ends when all who are to connect to it have, or its time is over: seconds where nothing is wrong.
    """
    address, port = world.endpoints[world.rank]
    listener = meeting.listen(address, port)
    after, before = partners(world.rank, len(world.endpoints), int(arguments["peers"]))
    limit_s, secret = float(arguments["limit_s"]), str(arguments["secret"])
    world.at(PHASE, collective=True)
    begun = time.time()
    with contextlib.closing(listener), ThreadPoolExecutor(max(1, len(after))) as pool:
        asked = {
            peer: pool.submit(_connect, world.endpoints[peer], world.rank, secret, limit_s) for peer in after
        }
        heard = _greeted(listener, secret, before, limit_s)
        reached = {str(peer): future.result() for peer, future in asked.items()}
    listened = [
        begun,
        time.time(),
    ]  # by this node's clock: who comes when the others have gone was not closed
    return {"ok": True, "because": "", "reached": reached, "heard": sorted(heard), "listened": listened}


def _connect(endpoint: tuple[str, int], rank: int, secret: str, limit_s: float) -> str:
    """Why this peer cannot be connected to, empty where it can."""
    try:
        line = meeting.connect(*endpoint, secret, str(rank), limit_s)
        line.close()
    except (OSError, meeting.MeetingError) as error:
        return str(error)
    return ""


def _greeted(listener: socket.socket, secret: str, before: Sequence[int], limit_s: float) -> set[int]:
    """The ranks of ``before`` that connected, until all have or the time is over."""
    end, heard, expected = time.monotonic() + limit_s, set[int](), {str(rank) for rank in before}
    while len(heard) < len(expected) and (left := end - time.monotonic()) > 0:
        listener.settimeout(left)
        with contextlib.suppress(TimeoutError):
            came = meeting.accept(listener, secret)
            if came is not None:
                came[0].close()
                heard |= {int(came[1])} if came[1] in expected else set()
    return heard
