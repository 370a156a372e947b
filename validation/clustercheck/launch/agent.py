"""Runs `on_node.py` on the nodes: one request, one answer, over any Transport."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from clustercheck.launch.answers import MAX_MESSAGE, Answer, EmptyAnswer, describe_error
from clustercheck.launch.transport import NodeUnreachableError, Transport
from clustercheck.parse.bounded import clean
from clustercheck.parse.document import read_answer
from clustercheck.parse.plain_text import one_line
from clustercheck.parse.reading import CannotReadError

SOURCE = Path(__file__).with_name("on_node.py")
STOP_S, REMOVE_S = 45.0, 90.0

A = TypeVar("A", bound=Answer)


@dataclass(frozen=True)
class StartedContainer:
    """One node's container, as in the event ``job_started``: enough to find its outcome later."""

    node: str
    container: str
    directory: str
    ranks: tuple[int, ...]


class NodeActionError(Exception):
    """The node was reached but could not do what was requested; the message gives the reason."""


class NodeBusyError(NodeActionError):
    """Another run holds the node; the message names it."""


class Agent:
    """Performs the actions of `on_node.py` on the nodes."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._source = SOURCE.read_text(encoding="utf-8")

    def ask(
        self,
        node: str,
        request: Mapping[str, Any],
        kind: type[A],
        timeout_s: float,
        *,
        on_text: Callable[[str], None] = lambda _: None,
    ) -> A:
        """The node's answer to one request, of this kind; ``on_text`` may refuse it by CannotReadError.

        Raises NodeActionError if the action failed or its answer is of another kind, NodeUnreachableError if
        the node does not answer.
        """
        source = f"{self._source}\nsys.exit(main({json.dumps(request)!r}))\n"
        done = self._transport.run(node, ["python3", "-I", "-"], stdin=source, timeout_s=timeout_s)
        what = "its answer"
        try:
            raw = read_answer(done.stdout, what, characters=kind.characters, values=kind.values)
        except CannotReadError as error:
            lines = done.stderr.strip().splitlines()
            raise NodeActionError(one_line(lines[-1] if lines else str(error), MAX_MESSAGE)) from None
        try:
            on_text(done.stdout)
            answer = clean(raw, kind.bounds, what)
        except CannotReadError as error:
            raise NodeActionError(f"unreadable answer: {one_line(str(error), MAX_MESSAGE)}") from None
        if answer.get("ok") is not True:
            because = answer.get("because")
            message = one_line(because, MAX_MESSAGE) if isinstance(because, str) else ""
            raise (NodeBusyError if answer.get("busy") is True else NodeActionError)(
                message or "no reason given"
            )
        try:
            return kind.model_validate(answer)
        except ValidationError as error:
            raise NodeActionError(f"unreadable answer: {describe_error(error)}") from None

    def stop(self, started: StartedContainer) -> bool:
        """Stop a container. False if its node does not answer: then its own time limit ends it."""
        return self._succeeds(started, {"action": "stop", "container": started.container}, STOP_S)

    def remove(self, started: StartedContainer) -> bool:
        """Remove container and directory. False if that failed: the next job's prepare does it."""
        request = {"action": "remove", "container": started.container, "directory": started.directory}
        return self._succeeds(started, request, REMOVE_S)

    def _succeeds(self, started: StartedContainer, request: Mapping[str, Any], timeout_s: float) -> bool:
        try:
            self.ask(started.node, request, EmptyAnswer, timeout_s)
        except (NodeUnreachableError, NodeActionError):
            return False
        return True
