"""How many logins may run at a time: few through one jump host, whose sshd sees all of ours."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from clusterctl.cluster.endpoint import Endpoint

# sshd starts to drop logins at 10 that have not authenticated (MaxStartups).
PARALLEL_LOGINS_PER_JUMP = 8
PARALLEL_DIRECT_LOGINS = 32
LONGEST_PAUSE_S = 5.0  # of one that was dropped, where others stall


class LoginGates:
    """A gate for each jump host, and one for direct lines: a jump host that stalls delays its own hosts."""

    def __init__(self) -> None:
        self._gates: dict[str, threading.BoundedSemaphore] = {}
        self._under_way = 0
        self._fewer = threading.Condition()

    def gate(self, way: Endpoint | None) -> threading.BoundedSemaphore:
        """What is held while logging in that way; all that are not known share one."""
        jump = _first_jump(way) if way else "not known"
        limit = PARALLEL_LOGINS_PER_JUMP if jump else PARALLEL_DIRECT_LOGINS
        return self._gates.setdefault(jump, threading.BoundedSemaphore(limit))

    @contextmanager
    def under_way(self, *, again: bool) -> Iterator[None]:
        """A login, within its gate; one that was dropped waits until few others are under way.

        Jump hosts behind one that only SSH's configuration names have gates of their own, and that one sshd.
        """
        with self._fewer:
            if again:
                self._fewer.wait_for(lambda: self._under_way < PARALLEL_LOGINS_PER_JUMP, LONGEST_PAUSE_S)
            self._under_way += 1
        try:
            yield
        finally:
            with self._fewer:
                self._under_way -= 1
                self._fewer.notify_all()


def _first_jump(way: Endpoint) -> str:
    """The first jump host, which sees the logins to all behind it; of a ProxyCommand all of it."""
    if "-J" in way.proxy:
        hops = way.proxy[way.proxy.index("-J") + 1]
    elif way.jump and "-W" in way.proxy:
        hops = way.jump
    else:  # it may have the host's own address written out
        return way.jump.replace(way.address, "%h")
    return re.sub(r"^(ssh://)?([^@]*@)?|:22$", "", hops.split(",")[0])
