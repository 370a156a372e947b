"""How often a registry is asked again, and how long we wait in between."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from threading import Event

import httpx

TRANSIENT = (408, 429, 500, 502, 503, 504)


@dataclass(frozen=True)
class Patience:
    """``attempts`` in all; the pause doubles from ``first_s`` up to ``most_s``. ``stop`` ends every pause."""

    attempts: int = 6
    first_s: float = 1.0
    most_s: float = 30.0
    stop: Event | None = None

    def pause(self, attempt: int, response: httpx.Response | None = None) -> None:
        """Wait after the attempt of that number (from 1), or as long as the registry asked, within reason."""
        usual = min(self.most_s, self.first_s * 2 ** (attempt - 1))
        # Some come a little later: workers that were refused together do not come back together.
        wanted = usual * (0.75 + random.random() / 2)  # noqa: S311 - no secret
        asked = None if response is None else retry_after(response.headers.get("retry-after", ""))
        seconds = wanted if asked is None else min(max(asked, wanted), self.most_s)
        (self.stop or Event()).wait(seconds)


def retry_after(header: str, now: Callable[[], float] = time.time) -> float | None:
    """Seconds to wait, from a number or a date; None where it says neither."""
    try:
        return max(0.0, float(header))
    except ValueError:
        pass
    try:
        return max(0.0, parsedate_to_datetime(header).timestamp() - now())
    except (ValueError, TypeError):
        return None
