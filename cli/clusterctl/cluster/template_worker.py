"""Evaluates templates in a process of its own, whose CPU time and memory have a limit.

Run by its path, it imports nothing of ours. Frames come on standard input and go to standard output: four
bytes of length, then JSON. It is given ``{"evaluate": TEXT}`` and says ``{"look_up": NAME}`` for each name
that it needs; the answer may be one more text to evaluate first, since a variable may be a template too.
"""

from __future__ import annotations

import json
import resource
import struct
import sys
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

from jinja2 import StrictUndefined, TemplateError, Undefined, nodes
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import missing

MEMORY_LIMIT_BYTES = 1 << 30
LOOK_UP = "look_up_of_clusterctl"
LENGTH = struct.Struct("!I")


class AbortedError(Exception):
    """A name that a template needs cannot be given."""


class LazyContext(Context):
    """Names are looked up when a template uses them, so that one bad variable harms no other."""

    def resolve_or_missing(self, key: str) -> Any:
        known = super().resolve_or_missing(key)
        if known is not missing or LOOK_UP not in self.parent:
            return known
        return self.parent[LOOK_UP](key)


class Environment(ImmutableSandboxedEnvironment):
    """A template reaches values, and nothing else."""

    context_class = LazyContext


ENVIRONMENT = Environment(undefined=StrictUndefined, keep_trailing_newline=True)


class Worker:
    """Answers one evaluation after the other. ``shared`` are large values that are sent once."""

    def __init__(self, cpu_limit_s: int) -> None:
        self._cpu_limit_s = cpu_limit_s
        self._shared: dict[int, Any] = {}

    def serve(self) -> None:
        """Evaluate until standard input ends."""
        while (frame := _receive()) is not None:
            used = resource.getrusage(resource.RUSAGE_SELF)
            limit = int(used.ru_utime + used.ru_stime) + 1 + self._cpu_limit_s
            resource.setrlimit(resource.RLIMIT_CPU, (limit, resource.RLIM_INFINITY))
            _send(self._evaluate(frame["evaluate"]))

    def _evaluate(self, text: str) -> bytes:
        try:
            return _frame({"value": _compiled(text)({LOOK_UP: self._look_up})})
        except AbortedError:
            return _frame({"aborted": True})
        except MemoryError:
            because = "it needs too much memory"
        except TemplateError as error:
            because = error.message or type(error).__name__
        except Exception as error:  # noqa: BLE001 - whatever it is, this template cannot be evaluated
            because = str(error) or type(error).__name__
        return _frame({"error": because[:1000]})

    def _look_up(self, name: str) -> Any:
        _send(_frame({"look_up": name}))
        while (frame := _receive()) is not None:
            if "evaluate" in frame:
                _send(self._evaluate(frame["evaluate"]))
            elif "value" in frame:
                if frame.get("forget"):
                    self._shared.clear()
                if "share" in frame:
                    self._shared[frame["share"]] = frame["value"]
                return frame["value"]
            elif "shared" in frame:
                return self._shared[frame["shared"]]
            elif "missing" in frame:
                return missing
            else:
                raise AbortedError
        raise SystemExit


@lru_cache(maxsize=256)
def _compiled(text: str) -> Callable[[dict[str, Any]], Any]:
    """A lone ``{{ expression }}`` keeps its type; anything longer, also by a comment, is text."""
    body = ENVIRONMENT.parse(text).body
    if "{#" not in text and len(body) == 1 and isinstance(body[0], nodes.Output) and len(body[0].nodes) == 1:
        inner = text.strip().removeprefix("{{").removesuffix("}}").strip("-+")
        expression = ENVIRONMENT.compile_expression(inner, undefined_to_none=False)

        def value(names: dict[str, Any]) -> Any:
            found = expression(names)
            return str(found) if isinstance(found, Undefined) else found  # a strict undefined raises here

        return value
    return ENVIRONMENT.from_string(text).render


def _plain(value: Any) -> Any:
    """What JSON has no word for."""
    return list(value) if isinstance(value, (set, frozenset, range, Iterator)) else str(value)


def _frame(record: dict[str, Any]) -> bytes:
    return json.dumps(record, default=_plain).encode()


def _send(content: bytes) -> None:
    sys.stdout.buffer.write(LENGTH.pack(len(content)) + content)
    sys.stdout.buffer.flush()


def _receive() -> dict[str, Any] | None:
    head = sys.stdin.buffer.read(LENGTH.size)
    if len(head) < LENGTH.size:
        return None
    frame: dict[str, Any] = json.loads(sys.stdin.buffer.read(*LENGTH.unpack(head)))
    return frame


if __name__ == "__main__":
    for kind, limit in ((resource.RLIMIT_AS, MEMORY_LIMIT_BYTES), (resource.RLIMIT_CORE, 0)):
        hard = resource.getrlimit(kind)[1]
        least = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
        resource.setrlimit(kind, (least, least))
    Worker(int(sys.argv[1])).serve()
