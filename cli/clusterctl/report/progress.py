"""What a person sees while a validation runs: plain lines, a spinner on a terminal, or JSON lines."""

from __future__ import annotations

import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from rich.status import Status

from clusterctl import console
from clusterctl.report.view import WORDS

JOBS = {
    "all-reduce": "all-reduce across the nodes",
    "pairs": "all-reduce, pair by pair",
    "data-parallel": "data-parallel training",
}


class ValidationProgress:
    """Shows events as they come; a context manager."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._begun = time.monotonic()
        live = console.is_live() and not as_json
        self._status = Status("collecting evidence", console=console.MESSAGES) if live else None

    def __enter__(self) -> Self:
        if self._status is not None:
            self._status.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._status is not None:
            self._status.stop()

    def show(self, event: Mapping[str, Any]) -> None:
        """One event: a JSON line for machines, a sentence for people where it is worth one."""
        if self._as_json:
            console.emit(event)
            return
        sentence = sentence_of(event)
        if sentence:
            seconds = time.monotonic() - self._begun
            console.say(f"[{seconds:5.0f}s] {sentence}")
            if self._status is not None:
                self._status.update(sentence)


def sentence_of(event: Mapping[str, Any]) -> str:
    """An event in one sentence; empty where a person need not hear of it."""
    kind = str(event.get("type"))
    if kind == "probe":
        return _probed(event)
    if kind == "result":
        return _judged(event)
    if not kind.startswith("job_"):
        return ""
    said = _of_job(kind, event)
    name = str(event.get("job"))
    return f"{JOBS.get(name, name)}: {said}" if said else ""


def _probed(event: Mapping[str, Any]) -> str:
    if event.get("unreachable"):
        return f"{event['node']}: could not be looked at: {event['unreachable']}"
    return f"{event['node']}: looked at" + (f"; busy: {event['busy']}" if event.get("busy") else "")


def _judged(event: Mapping[str, Any]) -> str:
    """Only what is no pass is worth a line while it runs; the table has it all."""
    bad = {word: n for word, n in (event.get("verdicts") or {}).items() if word in ("fail", "not_run")}
    return f"{event.get('check')}: " + ", ".join(f"{n} {WORDS[w]}" for w, n in bad.items()) if bad else ""


def _of_job(kind: str, event: Mapping[str, Any]) -> str:
    node, container = event.get("node"), str(event.get("container"))[:12]
    nodes = ", ".join(event.get("nodes") or ())
    sentences = {
        "job_preparing": f"preparing {nodes}",
        "job_leftover_removed": f"{node}: removed what an earlier run had left: {event.get('what')}",
        "job_placed": str(event.get("method")),
        "job_started": f"{node} started, container {container}",
        "job_removed": f"{node}: the container was ended and removed",
        "job_not_removed": f"{node}: does not answer; the container ends by its own time limit",
        "job_stopping": f"{event.get('because_of')} ended badly; stopping {nodes}",
    }
    return _ending(event) if kind == "job_finished" else sentences.get(kind, "")


def _ending(event: Mapping[str, Any]) -> str:
    if event.get("good"):
        return "done"
    first = event.get("first_failure")
    if not first:
        return "did not end well; which rank failed first cannot be told"
    return f"rank {first['rank']} on {first['node']} {first['state']}: {first['because']}"
