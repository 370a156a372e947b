"""How many logins may run at a time: few through one jump host, whose sshd sees all of ours."""

from __future__ import annotations

import re
import threading

from clusterctl.cluster.endpoint import Endpoint

# sshd starts to drop logins at 10 that have not authenticated (MaxStartups).
PARALLEL_LOGINS_PER_JUMP = 8
PARALLEL_DIRECT_LOGINS = 32


class LoginGates:
    """A gate for each jump host, and one for direct lines: a jump host that stalls delays its own hosts."""

    def __init__(self) -> None:
        self._gates: dict[str, threading.BoundedSemaphore] = {}

    def gate(self, way: Endpoint | None) -> threading.BoundedSemaphore:
        """What is held while logging in that way; all that are not known share one."""
        jump = _first_jump(way) if way else "not known"
        limit = PARALLEL_LOGINS_PER_JUMP if jump else PARALLEL_DIRECT_LOGINS
        return self._gates.setdefault(jump, threading.BoundedSemaphore(limit))


def _first_jump(way: Endpoint) -> str:
    """The first jump host, which sees the logins to all behind it; of a ProxyCommand all of it."""
    if "-J" in way.proxy:
        hops = way.proxy[way.proxy.index("-J") + 1]
    elif way.jump and "-W" in way.proxy:
        hops = way.jump
    else:  # it may have the host's own address written out
        return way.jump.replace(way.address, "%h")
    return re.sub(r"^(ssh://)?([^@]*@)?|:22$", "", hops.split(",")[0])
