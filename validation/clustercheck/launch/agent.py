"""Speaks with `on_node.py` on the nodes: one request, one answer, over any Transport."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from clustercheck.launch.answers import Answer, NoAnswer, reason
from clustercheck.launch.transport import NodeUnreachableError, Transport
from clustercheck.parse.document import read_answer
from clustercheck.parse.reading import CannotReadError

SOURCE = Path(__file__).with_name("on_node.py")
STOP_S, REMOVE_S = 45.0, 90.0
SAID_CHARS = 1000

A = TypeVar("A", bound=Answer)


@dataclass(frozen=True)
class Started:
    """One node's container, as told in the event ``job_started``: enough to find its outcome again."""

    node: str
    container: str
    directory: str
    ranks: tuple[int, ...]


class NodeActionError(Exception):
    """The node was reached and could not do what was asked; the message says why."""


class NodeBusyError(NodeActionError):
    """Another run is at work on the node; the message names it."""


class Agent:
    """Has the nodes do what `on_node.py` can do."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._source = SOURCE.read_text(encoding="utf-8")

    def ask(self, node: str, request: Mapping[str, Any], kind: type[A], timeout_s: float) -> A:
        """The node's answer to one request, of a kind.

        Raises NodeActionError where the node cannot or its answer is not of that kind, NodeUnreachableError
        where it does not answer.
        """
        source = f"{self._source}\nsys.exit(main({json.dumps(request)!r}))\n"
        done = self._transport.run(node, ["python3", "-I", "-"], stdin=source, timeout_s=timeout_s)
        try:
            answer = read_answer(done.stdout, "its answer")
        except CannotReadError as error:
            words = done.stderr.strip().splitlines()
            raise NodeActionError(words[-1][:SAID_CHARS] if words else str(error)) from None
        if answer.get("ok") is not True:
            because = str(answer.get("because") or "no reason given")[:SAID_CHARS]
            raise (NodeBusyError if answer.get("busy") is True else NodeActionError)(because)
        try:
            return kind.model_validate(answer)
        except ValidationError as error:
            raise NodeActionError(f"unreadable answer: {reason(error)}") from None

    def end(self, started: Started) -> bool:
        """Stop a container. False where its node does not answer: its own time limit ends it then."""
        return self._done(started, {"action": "stop", "container": started.container}, STOP_S)

    def remove(self, started: Started) -> bool:
        """Remove container and directory. False where it could not be: the next job's prepare does it."""
        request = {"action": "remove", "container": started.container, "directory": started.directory}
        return self._done(started, request, REMOVE_S)

    def _done(self, started: Started, request: Mapping[str, Any], timeout_s: float) -> bool:
        try:
            self.ask(started.node, request, NoAnswer, timeout_s)
        except (NodeUnreachableError, NodeActionError):
            return False
        return True
