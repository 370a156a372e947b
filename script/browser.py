"""Headless Chromium over its DevTools pipe: opens a page, tells what went wrong there, takes its picture.

Two pipes and JSON, as `--remote-debugging-pipe` speaks it: no port, no driver program, no library.
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import signal
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

PROGRAM = "chromium"
ARGUMENTS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)
TO_BROWSER, FROM_BROWSER = 3, 4  # the descriptors that Chromium expects
TIMEOUT_S = 120.0


class BrowserError(Exception):
    """The browser ended, did not answer in time, or refused what it was asked."""


def is_installed() -> bool:
    """Whether there is a Chromium here."""
    return shutil.which(PROGRAM) is not None


class Browser:
    """One Chromium with one tab; a context manager, so that it never outlives its use."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self._profile = tempfile.TemporaryDirectory(prefix="chromium-", ignore_cleanup_errors=True)
        self._asked = 0
        self._unread = b""
        self._session = ""

    def __enter__(self) -> Self:
        self._start()
        try:
            target = self.ask("Target.createTarget", url="about:blank")["targetId"]
            self._session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
            for domain in ("Page", "Network", "Log", "Runtime"):
                self.ask(f"{domain}.enable")
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def _start(self) -> None:
        their_input, self._write = os.pipe()
        self._read, their_output = os.pipe()
        # By way of two more descriptors, since either of ours may be 3 or 4 already.
        highest = max(their_input, self._write, self._read, their_output)
        steps: list[Any] = [
            (os.POSIX_SPAWN_DUP2, their_input, highest + 1),
            (os.POSIX_SPAWN_DUP2, their_output, highest + 2),
            (os.POSIX_SPAWN_DUP2, highest + 1, TO_BROWSER),
            (os.POSIX_SPAWN_DUP2, highest + 2, FROM_BROWSER),
            (os.POSIX_SPAWN_CLOSE, highest + 1),
            (os.POSIX_SPAWN_CLOSE, highest + 2),
            (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
            (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
        ]
        command = [PROGRAM, *ARGUMENTS, f"--user-data-dir={self._profile.name}", "about:blank"]
        # Its own group, so that its helpers end with it.
        self._process = os.posix_spawnp(PROGRAM, command, os.environ, file_actions=steps, setpgroup=0)
        os.close(their_input)
        os.close(their_output)

    def _stop(self) -> None:
        os.killpg(self._process, signal.SIGKILL)
        os.waitpid(self._process, 0)
        os.close(self._write)
        os.close(self._read)
        self._profile.cleanup()

    def open(
        self, page: Path, width: int, *, height: int = 900, dark: bool = False, phone: bool = False
    ) -> None:
        """Open a file in a window of this size in CSS pixels; waits until it is there."""
        self.events.clear()
        self.ask(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=2 if phone else 1,
            mobile=phone,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.ask("Emulation.setEmulatedMedia", features=[scheme])
        self.ask("Page.navigate", url=page.resolve().as_uri())
        self._wait_for("Page.loadEventFired")

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression in the page."""
        answer = self.ask("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in answer:
            raise BrowserError(f"{expression}: {answer['exceptionDetails']['text']}")
        return answer["result"].get("value")

    def picture(self, clip: Mapping[str, float] | None = None) -> bytes:
        """A PNG of what the window shows, or of a rectangle (x, y, width, height) of the whole page."""
        options: dict[str, Any] = (
            {"captureBeyondViewport": True, "clip": {**clip, "scale": 1}} if clip else {}
        )
        return base64.b64decode(self.ask("Page.captureScreenshot", **options)["data"])

    def printed(self) -> bytes:
        """The page on paper, as PDF."""
        return base64.b64decode(self.ask("Page.printToPDF", printBackground=False)["data"])

    def requests(self) -> list[str]:
        """Every address that the page asked for, itself among them."""
        asked = [event for event in self.events if event["method"] == "Network.requestWillBeSent"]
        return [event["params"]["request"]["url"] for event in asked]

    def complaints(self) -> list[str]:
        """What a person would find in the console: messages, errors, warnings."""
        heard = ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded")
        return [json.dumps(event["params"]) for event in self.events if event["method"] in heard]

    def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        """One command and its answer. Raises BrowserError."""
        self._asked += 1
        message: dict[str, Any] = {"id": self._asked, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        until = time.monotonic() + TIMEOUT_S
        while True:
            answer = self._next(until)
            if answer.get("id") == self._asked:
                break
        if "error" in answer:
            raise BrowserError(f"{method}: {answer['error']['message']}")
        result: dict[str, Any] = answer["result"]
        return result

    def _wait_for(self, event: str) -> None:
        until = time.monotonic() + TIMEOUT_S
        while not any(seen["method"] == event for seen in self.events):
            self._next(until)

    def _next(self, until: float) -> dict[str, Any]:
        while b"\0" not in self._unread:
            ready, _, _ = select.select([self._read], [], [], max(0.0, until - time.monotonic()))
            if not ready:
                raise BrowserError(f"{PROGRAM} did not answer in {TIMEOUT_S:.0f} s")
            some = os.read(self._read, 1 << 20)
            if not some:
                raise BrowserError(f"{PROGRAM} ended")
            self._unread += some
        raw, _, self._unread = self._unread.partition(b"\0")
        message: dict[str, Any] = json.loads(raw)
        if "method" in message:
            self.events.append(message)
        return message
