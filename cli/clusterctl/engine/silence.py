"""Hosts that have said nothing for long: a wedged node must not hold up the others of its wave for hours."""

from __future__ import annotations

import time
from collections.abc import Callable

from clusterctl.engine.events import Event
from clusterctl.engine.ledger import HostRecord, Ledger

# Long work is asynchronous, and each look at it is a sign of life; any other task is over sooner.
SILENCE_LIMIT_S = 20 * 60.0
# It says nothing until the host is back; the task has a limit of its own (tests/unit/roles).
BOUNDS_ITSELF = "reboot"
# A task fails on the host where it hangs after this part of the limit, before the limit ends all hosts' work.
TASK_PART = 0.9


def limit_of_tasks(limit_s: float) -> int:
    """The whole seconds of a task under this limit of silence: one at least, as 0 is none."""
    return max(1, int(TASK_PART * limit_s))


class Watch:
    """When each host was last heard of; ``clock`` is in seconds and never goes back."""

    def __init__(self, limit_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.limit_s = limit_s
        self._clock = clock
        self._heard: dict[str, float] = {}
        self.silent: dict[str, str] = {}

    def heard(self, event: Event) -> None:
        """Any event of a host is a sign of life: a task's start, a result, an item, a new try, a job."""
        host = getattr(event, "host", None)
        if host is not None:
            self._heard[host] = self._clock()

    def hopeless(self, ledger: Ledger) -> bool:
        """Whether a host's task has said nothing past the limit; from then on ``silent`` says which."""
        if not self.silent:
            self.silent = {one.name: one.doing for one in ledger.running() if self._is_silent(one)}
        return bool(self.silent)

    def _is_silent(self, one: HostRecord) -> bool:
        if one.task is not None and one.task.action.rpartition(".")[2] == BOUNDS_ITSELF:
            return False
        return self._clock() - self._heard.get(one.name, self._clock()) > self.limit_s
