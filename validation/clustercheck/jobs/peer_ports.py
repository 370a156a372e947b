"""Whether nodes can connect to each other at the ports that jobs choose: TCP, no framework or master.

One rank per node. Each listens at its own endpoint and connects to those of the ranks after it. A collective
library connects to fewer of them, and with a firewall only reports a timeout.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from clustercheck.jobs import meeting
    from clustercheck.jobs.rank import Progress
else:  # on a node they are single files, not a package
    meeting = importlib.import_module(f"{__package__}.meeting" if __package__ else "meeting")

PHASE = "waiting for the other nodes to connect"


class EndpointWorld:
    """All ranks' endpoints, as the launcher assigned them."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self.rank = int(os.environ["PADDLE_TRAINER_ID"])
        self.interface = os.environ.get("GLOO_SOCKET_IFNAME", "")
        ends = [each.rsplit(":", 1) for each in os.environ["PADDLE_TRAINER_ENDPOINTS"].split(",")]
        self.endpoints = [(host, int(port)) for host, port in ends]

    def describe(self) -> dict[str, Any]:
        """What every verdict records about where it was measured."""
        return {"rank": self.rank, "world": len(self.endpoints), "interface": self.interface}

    def set_phase(self, phase: str, *, collective: bool = False) -> None:
        """Record the phase of this rank."""
        self._progress.set_phase(phase, collective=collective)

    def barrier(self) -> None:
        """Ranks do not wait for each other at the end."""


def join(progress: Progress) -> EndpointWorld:
    """Connects to no one: connections are what this program tests."""
    return EndpointWorld(progress)


def list_partners(rank: int, size: int, most: int) -> tuple[list[int], list[int]]:
    """The ranks that a rank connects to, and those that connect to it: ``most`` after and before it."""
    count = min(most, size - 1)
    after = [(rank + step) % size for step in range(1, count + 1)]
    return after, [(rank - step) % size for step in range(1, count + 1)]


def run(world: EndpointWorld, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments: peers (how many a rank connects to), limit_s. The verdict has each one's error.

    A rank ends when all expected ones have connected or its time limit passed: seconds on a healthy cluster.
    """
    address, port = world.endpoints[world.rank]
    listener = meeting.listen(address, port)
    after, before = list_partners(world.rank, len(world.endpoints), int(arguments["peers"]))
    limit_s, keys = float(arguments["limit_s"]), meeting.read_keys(Path())
    world.set_phase(PHASE, collective=True)
    started_at = time.time()
    door = meeting.Door(listener, keys.get)
    with contextlib.closing(door), ThreadPoolExecutor(max(1, len(after))) as pool:
        attempts = {
            peer: pool.submit(_try_connect, world.endpoints[peer], world.rank, keys[str(peer)], limit_s)
            for peer in after
        }
        connected = _accept_peers(door, before, limit_s)
        reached = {str(peer): future.result() for peer, future in attempts.items()}
    # By this node's clock: a peer that connects after that was not blocked.
    listened = [started_at, time.time()]
    return {"ok": True, "because": "", "reached": reached, "heard": sorted(connected), "listened": listened}


def _try_connect(endpoint: tuple[str, int], rank: int, key: str, limit_s: float) -> str:
    """Why this peer cannot be reached, empty if it can."""
    try:
        line = meeting.connect(*endpoint, key, str(rank), limit_s)
        line.close()
    except (OSError, meeting.MeetingError) as error:
        return str(error)
    return ""


def _accept_peers(door: meeting.Door, before: Sequence[int], limit_s: float) -> set[int]:
    """The ranks of ``before`` that connected before the time limit."""
    end, connected, expected = time.monotonic() + limit_s, set[int](), {str(rank) for rank in before}
    while len(connected) < len(expected) and (came := door.next(end - time.monotonic())) is not None:
        line, rank = came
        line.close()
        connected |= {int(rank)} if rank in expected else set()
    return connected
