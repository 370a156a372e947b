"""A request, its answer, and the list of what can be asked."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from .errors import ApiError, bad, missing
from .store import Object, Store

BASE = "/api/v2.0"
LARGEST_PAGE = 100
USUAL_PAGE = 10


@dataclass
class Answer:
    """What goes back. ``body`` None means no body, as with a schedule that there is not."""

    status: int = 200
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict)


@dataclass
class Asked:
    """One request, by an administrator (``user`` is admin), a robot (its full name) or nobody."""

    store: Store
    method: str
    target: str
    headers: Mapping[str, str]
    raw: bytes = b""
    user: str = ""
    names: dict[str, str] = field(default_factory=dict)

    @property
    def path(self) -> str:
        """Below the base, still percent-encoded."""
        return urlsplit(self.target).path

    @property
    def query(self) -> dict[str, str]:
        """The parameters."""
        return dict(parse_qsl(urlsplit(self.target).query, keep_blank_values=True))

    @property
    def body(self) -> Object:
        """The JSON object that came along."""
        try:
            parsed = json.loads(self.raw or b"null")
        except ValueError:
            raise bad("parsing body failed: it is not JSON") from None
        if not isinstance(parsed, dict):
            raise ApiError(422, "body in body is required")
        return parsed

    def text(self, name: str) -> str:
        """A text of the body; empty where it is not given."""
        value = self.body.get(name) or ""
        if not isinstance(value, str):
            raise bad(
                f'parsing body from "" failed, because json: cannot unmarshal into {name} of type string'
            )
        return value

    def texts(self, *names: str) -> Object:
        """Several texts of the body, by name."""
        return {name: self.text(name) for name in names}

    def flags(self, *names: str) -> Object:
        """Several switches of the body, by name; off where not given."""
        return {name: bool(self.body.get(name)) for name in names}

    def created(self, end: object, body: Any = None) -> Answer:
        """201, with where the new object is."""
        return Answer(201, body, {"Location": f"{self.path.rstrip('/')}/{quote(str(end))}"})

    def page(self, items: Sequence[Object]) -> Answer:
        """A page of a list, with the total."""
        size, page = self._number("page_size", USUAL_PAGE), self._number("page", 1)
        if size > LARGEST_PAGE:
            raise ApiError(422, f"page_size in query should be less than or equal to {LARGEST_PAGE}")
        return Answer(200, list(items[(page - 1) * size : page * size]), {"X-Total-Count": str(len(items))})

    def numbered(self, kind: str) -> Object:
        """The object of a kind whose number stands in the path. Raises ApiError."""
        return one_of(self.store, kind, int(self.names["id"]))

    def _number(self, name: str, usual: int) -> int:
        text = self.query.get(name, str(usual))
        if not re.fullmatch(r"-?[0-9]+", text):
            raise ApiError(422, f"{name} in query must be of type int64: {text!r}")
        return max(1, int(text))


Handler = Callable[[Asked], Answer]
ROUTES: list[tuple[str, re.Pattern[str], Handler]] = []


def route(method: str, path: str) -> Callable[[Handler], Handler]:
    """Serves ``path``, in which ``{name}`` is one segment."""
    pattern = re.compile(re.sub(r"\\{(\w+)\\}", r"(?P<\1>[^/]+)", re.escape(path)) + "/?")

    def keep(handler: Handler) -> Handler:
        ROUTES.append((method, pattern, handler))
        return handler

    return keep


def handler_of(asked: Asked) -> Handler:
    """Who serves it; ``asked.names`` has the segments, decoded once. Raises ApiError."""
    path = asked.path.removeprefix(BASE)
    for method, pattern, handler in ROUTES:
        found = pattern.fullmatch(path)
        if found and method == asked.method:
            asked.names = {name: unquote(value) for name, value in found.groupdict().items()}
            return handler
    if any(pattern.fullmatch(path) for _, pattern, _ in ROUTES):
        raise ApiError(405, f"method {asked.method} is not allowed")
    raise ApiError(404, f"path {asked.path} was not found")


def one_of(store: Store, kind: str, number: int) -> Object:
    """The object of a kind that has this number. Raises ApiError."""
    found = store.get(kind, number)
    if found is None:
        raise missing(f"{kind} {number} not found")
    return found


def require_new(store: Store, kind: str, name: str) -> None:
    """A name once. Raises ApiError."""
    if store.named(kind, name):
        raise ApiError(409, f"{kind} {name} already exists")


def check_cron(text: str, of: str) -> None:
    """Harbor's cron, whose seconds must be 0. Raises ApiError."""
    fields = text.split(" ")
    if len(fields) != 6:
        raise bad(f"invalid cron string for scheduled {of}: {text}, error: expected exactly 6 fields")
    if fields[0] != "0":
        words = "the 1st field (indicating Seconds of time) of the cron setting must be 0"
        raise bad(f"invalid cron string for scheduled {of}: {text}, error: {words}")
