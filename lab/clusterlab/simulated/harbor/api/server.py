"""Serves the API on one port: who asks, whether they may, and what the transaction comes to."""

from __future__ import annotations

import base64
import contextlib
import hmac
import json
import re
import threading
import uuid
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from . import preheat, projects, registries, replications, robots, schedules, system, tags
from .asked import BASE, Answer, Asked, handler_of
from .errors import ApiError
from .faults import Faults
from .store import Store

SAFE = ("GET", "HEAD", "OPTIONS")
ADMIN = "admin"
# Served to anybody, and in read-only mode.
OPEN = (f"{BASE}/health", f"{BASE}/systeminfo", f"{BASE}/projects")
ALWAYS_WRITABLE = f"{BASE}/configurations"
SESSION = "sid"
LOGIN, TOKEN = "/c/login", "X-Harbor-CSRF-Token"
# Each registers what it serves.
SERVED = (preheat, projects, registries, replications, robots, schedules, system, tags)


class StandIn(ThreadingHTTPServer):
    """A Harbor whose state is one file. ``calls`` counts what was asked of it, by method.

    Who waits for a call to come in waits for ``asked``. ``password_checks`` counts passwords that came along.
    """

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], state: Path | str, *, latency_s: float = 0.0) -> None:
        super().__init__(address, _Handler)
        self.store = Store(state)
        self.faults = Faults()
        self.latency_s = latency_s
        self.calls: Counter[str] = Counter()
        self.sessions: set[str] = set()
        self.password_checks = 0
        self.asked = threading.Condition()
        self._ending = threading.Event()
        with self.store.transaction():
            projects.begin(self.store)

    @property
    def url(self) -> str:
        """Where it is."""
        host, port = self.server_address[:2]
        return f"http://{host!s}:{port}"

    def count(self, method: str) -> None:
        """One more call has come in."""
        with self.asked:
            self.calls[method] += 1
            self.asked.notify_all()

    def think(self) -> None:
        """Take as long as this Harbor takes for an answer; no longer than it serves."""
        self._ending.wait(self.latency_s)

    def shutdown(self) -> None:
        """Nobody is kept waiting for it."""
        self._ending.set()
        super().shutdown()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is none."""

    def server_close(self) -> None:
        """The file, too."""
        super().server_close()
        self.store.close()


@contextlib.contextmanager
def serving(state: Path | str, *, port: int = 0) -> Iterator[StandIn]:
    """A stand-in on loopback, for as long as the block lasts."""
    server = StandIn(("127.0.0.1", port), state)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    server: StandIn
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def _serve(self) -> None:
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        asked = Asked(
            self.server.store,
            self.command,
            self.path,
            {name.lower(): value for name, value in self.headers.items()},
            raw,
        )
        if asked.path == LOGIN and self.command == "POST":
            self._send(self._logged_in(raw))
            return
        self.server.count(self.command)
        if self.server.latency_s:
            self.server.think()
        fault = self.server.faults.next(self.command, asked.path)
        if fault is not None and fault.mute:
            self.rfile.read(1)
            self.close_connection = True
            return
        answer = Answer() if fault is not None and not fault.after else self._answer(asked)
        if fault is not None and fault.hangs_up:
            self.close_connection = True
            return
        self._send(answer if fault is None else fault.answer)

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = _serve

    def _answer(self, asked: Asked) -> Answer:
        try:
            handler = handler_of(asked)
            self._admit(asked)
            with self.server.store.transaction():
                return handler(asked)
        except ApiError as error:
            return Answer(error.status, error.body)
        except (KeyError, ValueError, TypeError, AttributeError) as error:
            # As go-swagger answers what does not fit its types.
            return Answer(422, ApiError(422, f"body in body is invalid: {error!r}").body)

    def _admit(self, asked: Asked) -> None:
        """Who asks, and whether they may. Raises ApiError."""
        asked.user = self._user(asked)
        is_open = asked.path.rstrip("/") in OPEN and asked.method in SAFE
        if not asked.user and not is_open:
            raise ApiError(401, "unauthorized")
        # Whoever is known may make projects, a robot that may only pull too.
        makes_project = (asked.method, asked.path.rstrip("/")) == ("POST", f"{BASE}/projects")
        if asked.user not in ("", ADMIN) and asked.method not in SAFE and not makes_project:
            raise ApiError(403, "forbidden")
        if asked.method in SAFE:
            return
        if self._session() and TOKEN not in self.headers:
            raise ApiError(403, "CSRF token not found in request")
        if system.configuration(asked.store)["read_only"] and asked.path != ALWAYS_WRITABLE:
            words = "The system is in read only mode. Any modification is prohibited."
            raise ApiError(403, words, "DENIED")

    def _session(self) -> str:
        """The session that is brought back: of several the last."""
        found = re.findall(rf"(?:^|; ){SESSION}=(\w+)", self.headers.get("Cookie", ""))
        return found[-1] if found else ""

    def _logged_in(self, raw: bytes) -> Answer:
        """Refused without a token, which the refusal names; then a session under two names, the last open."""
        token = {TOKEN: "token"}
        if TOKEN not in self.headers:
            cookie = {"Set-Cookie": "_gorilla_csrf=csrf; Path=/; HttpOnly"}
            return Answer(403, ApiError(403, "CSRF token not found in request").body, {**token, **cookie})
        self.server.password_checks += 1
        form = dict(parse_qsl(raw.decode()))
        known = system.configuration(self.server.store)["admin_password"]
        if form.get("principal") != ADMIN or not hmac.compare_digest(known, form.get("password", "")):
            return Answer(401, "Invalid user name or password\n", token)
        number = uuid.uuid4().hex
        self.server.sessions.add(number)
        return Answer(200, None, {**token, "Set-Cookie": f"{SESSION}={number}; Path=/; HttpOnly"})

    def _user(self, asked: Asked) -> str:
        """Nobody, where a password is wrong: Harbor logs that, and continues as if none were given."""
        if self._session() in self.server.sessions:
            return ADMIN
        kind, _, encoded = self.headers.get("Authorization", "").partition(" ")
        if kind.lower() != "basic":
            return ""
        try:
            name, _, password = base64.b64decode(encoded).decode().partition(":")
        except ValueError:
            return ""
        self.server.password_checks += 1
        if name == ADMIN:
            known = system.configuration(asked.store)["admin_password"]
            if hmac.compare_digest(known.encode(), password.encode()):
                return name
        elif robots.who(asked.store, name, password):
            return name
        return ""

    def _send(self, answer: Answer) -> None:
        is_text = isinstance(answer.body, str)
        body = answer.body.encode() if is_text else json.dumps(answer.body).encode() + b"\n"
        body = b"" if answer.body is None else body
        self.send_response(answer.status)
        self.send_header("X-Simulated", "clusterlab")
        self.send_header("X-Request-Id", str(uuid.uuid4()))
        self.send_header("Set-Cookie", f"{SESSION}={uuid.uuid4().hex}; Path=/; HttpOnly")
        for name, value in answer.headers.items():
            self.send_header(name, value)
        if body:
            kind = "text/plain" if is_text else "application/json"
            self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        if self.close_connection:  # as who asked wants it: a proxy before us would use it again
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Silence: what was asked is nobody's but the test's."""
