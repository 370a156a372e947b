"""What a test makes the stand-in do wrong, a number of times."""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass, field

from .asked import Answer
from .errors import CODES


@dataclass
class Fault:
    """``after``: the request is served first, and then answered so, as by a proxy that lost patience."""

    status: int = 503
    times: int = 1
    method: str = "[A-Z]+"
    path: str = ".*"
    retry_after: str = ""
    after: bool = False
    hangs_up: bool = False
    # Nothing is answered until who asked has gone.
    mute: bool = False
    message: str = "too many requests"
    skip: int = 0

    @property
    def answer(self) -> Answer:
        """The wrong answer: from 502 on it is the proxy's page, and no JSON."""
        headers = {"Retry-After": self.retry_after} if self.retry_after else {}
        if self.status < 500:
            word = {"code": CODES.get(self.status, "UNKNOWN"), "message": self.message}
            return Answer(self.status, {"errors": [word]}, headers)
        return Answer(self.status, f"<html><title>{self.status} from nginx</title></html>", headers)


@dataclass
class Faults:
    """Those that wait to happen, in order."""

    waiting: list[Fault] = field(default_factory=list)
    happened: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def add(self, fault: Fault) -> None:
        """One more."""
        with self._lock:
            self.waiting.append(fault)

    def next(self, method: str, path: str) -> Fault | None:
        """The fault that this request meets."""
        with self._lock:
            for fault in self.waiting:
                if not (re.fullmatch(fault.method, method) and re.search(fault.path, path)):
                    continue
                if fault.skip:
                    fault.skip -= 1
                    continue
                fault.times -= 1
                if not fault.times:
                    self.waiting.remove(fault)
                self.happened += 1
                return fault
        return None
