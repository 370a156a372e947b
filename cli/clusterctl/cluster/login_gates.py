"""How many logins may run at a time: few through one jump host, whose sshd sees all of ours."""

from __future__ import annotations

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
        # A ProxyCommand may have the host's own address written out.
        jump = way.jump.replace(way.address, "%h") if way else "not known"
        limit = PARALLEL_LOGINS_PER_JUMP if jump else PARALLEL_DIRECT_LOGINS
        return self._gates.setdefault(jump, threading.BoundedSemaphore(limit))
