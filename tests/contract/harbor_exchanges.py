"""What was asked of the stand-in in all these tests, and answered, to be held against the description.

Of exchanges of one shape (method, path, status, and the fields of what was sent and answered) one is kept.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import httpx
from tests.support.harbor_play import PASSWORD

from clusterlab.simulated.harbor.api import asked as api
from clusterlab.simulated.harbor.api.asked import Answer, Asked

from .prism_proxy import violations

NUMBER = "x-exchange"
# The client sends it with everything; what tests ask by themselves may well be wrong.
OURS = "x-is-resource-name"


@dataclass
class Exchange:
    """One request below the API's base, and its answer."""

    method: str
    target: str
    raw: bytes
    is_ours: bool
    answer: Answer


@dataclass
class Recorder:
    """The exchanges of all shapes that were seen."""

    seen: dict[Any, Exchange] = field(default_factory=dict)

    def recording(self, usual: Callable[..., Answer]) -> Callable[..., Answer]:
        """The stand-in's own way to an answer, listened to."""

        def answer(handler: Any, asked: Asked) -> Answer:
            given = usual(handler, asked)
            path = asked.path.removeprefix(api.BASE)
            route = next(
                (p.pattern for m, p, _ in api.ROUTES if m == asked.method and p.fullmatch(path)), None
            )
            # One that was killed while it asked has asked nothing.
            is_whole = len(asked.raw) == int(asked.headers.get("content-length") or 0)
            if route is not None and is_whole:
                one = Exchange(
                    asked.method,
                    asked.target.removeprefix(api.BASE),
                    asked.raw,
                    OURS in asked.headers,
                    given,
                )
                said = (asked.method, route, frozenset(asked.query), given.status)
                self.seen.setdefault(
                    (one.is_ours, *said, _shape(_parsed(asked.raw)), _shape(given.body)), one
                )
            return given

        return answer

    def judged(self, prism: str) -> Iterator[tuple[str, str, str, str]]:
        """What Prism at this address finds: method, path, place, message. Others' requests are not judged."""
        with httpx.Client(auth=("admin", PASSWORD), trust_env=False, timeout=60) as http:
            for number, one in enumerate(list(self.seen.values())):
                headers = {NUMBER: str(number), "Content-Type": "application/json"}
                if one.is_ours:
                    headers[OURS] = "true"
                content = one.raw or None
                if content is None:
                    headers.pop("Content-Type")
                answer = http.request(one.method, f"{prism}{one.target}", content=content, headers=headers)
                assert answer.status_code == one.answer.status, (one, answer.text)
                path = httpx.URL(one.target).path
                for place, message in violations(answer):
                    if one.is_ours or place.startswith("response"):
                        yield (one.method, path, place, message)


@contextlib.contextmanager
def replaying(recorder: Recorder) -> Iterator[str]:
    """A server that answers each exchange, told by its number, as the stand-in did."""
    exchanges = list(recorder.seen.values())

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _serve(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            answer = exchanges[int(self.headers[NUMBER])].answer
            is_text = isinstance(answer.body, str)
            body = answer.body.encode() if is_text else json.dumps(answer.body).encode()
            body = b"" if answer.body is None else body
            self.send_response(answer.status)
            for name, value in answer.headers.items():
                self.send_header(name, value)
            if body:
                self.send_header("Content-Type", "text/plain" if is_text else "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = _serve

        def log_message(self, *_: Any) -> None:
            """Silence."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _parsed(raw: bytes) -> Any:
    try:
        return json.loads(raw or b"null")
    except ValueError:
        return "no JSON"


def _shape(value: Any) -> Any:
    if isinstance(value, dict):
        return frozenset((name, _shape(inner)) for name, inner in value.items())
    if isinstance(value, list):
        return frozenset(map(_shape, value))
    return type(value).__name__
