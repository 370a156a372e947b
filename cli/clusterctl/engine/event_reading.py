"""One line of the callback plugin or of a journal as an event; what breaks its bounds fails a host's step."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from typing import Any

from pydantic import TypeAdapter, ValidationError

from clustercheck.parse.document import read_answer
from clustercheck.parse.plain_text import one_line
from clustercheck.parse.reading import CannotReadError
from clusterctl.cluster.untrusted import first_problem
from clusterctl.engine.events import (
    NAMES,
    Event,
    ItemResult,
    JobFinished,
    Status,
    TaskResult,
)
from clusterctl.engine.failure_kinds import UNREADABLE, known_code
from clusterctl.runs.events import MAX_EVENT_BYTES

# A line of a diff of many files has some hundred KiB; the callback bounds what hosts answered.
MAX_LINE = MAX_EVENT_BYTES
# Events of the callback that say nothing of any host.
SAY_NOTHING = frozenset({"play_empty"})


def parse(line: str | bytes) -> Event | None:
    """The event of a line; None for a torn line, for a kind that this version does not know, and for a job
    whose id is none."""
    try:
        return read_event(line)
    except CannotReadError:
        return None


def read_event(line: str | bytes) -> Event | None:
    """The event of a line; None for one that says nothing.

    A result that breaks its bounds is one more failed result of its host (``task.unreadable``). Raises
    CannotReadError for any other line that is no event.
    """
    if len(line) > MAX_LINE:
        raise CannotReadError(f"it is longer than {MAX_LINE >> 20} MiB")
    text = line.decode(errors="replace") if isinstance(line, bytes) else line
    try:
        record = read_answer(text, "it")
    except CannotReadError as error:
        return _failed_outline(text, error)
    name = record.get("event")
    if isinstance(name, str) and name in SAY_NOTHING:
        return None
    if not isinstance(name, str) or name not in NAMES:
        raise CannotReadError("it is of a kind that this version does not know")
    if "code" in record and NAMES[name] in (TaskResult, JobFinished):
        record["code"] = known_code(record["code"])
    try:
        event: Event = _adapter(name).validate_python(record)
    except ValidationError as error:
        return _failed_step(name, record, first_problem(error))
    reason = record.get("unreadable")
    if not isinstance(reason, str):
        return event
    # What the step itself says stays: it is the cause where the step failed.
    own: dict[str, Any] = {key: record[key] for key in ("msg", "stderr", "rc") if key in record}
    return _failed_step(name, record, one_line(reason), own)


def _failed_outline(text: str, error: CannotReadError) -> TaskResult:
    """The failed result of a line of which a number or the size is out of bounds. Raises CannotReadError."""
    try:
        record = json.loads(text)
    except (ValueError, RecursionError):
        raise error from None
    name = record.get("event") if isinstance(record, dict) else None
    if not isinstance(name, str) or name not in NAMES:
        raise error
    return _failed_step(name, record, str(error))


def _failed_step(
    name: str, record: Mapping[str, Any], because: str, own: Mapping[str, Any] | None = None
) -> TaskResult:
    """The result of a host whose answer cannot be read. Raises CannotReadError where it is nobody's."""
    if NAMES[name] not in (TaskResult, ItemResult):
        raise CannotReadError(because)
    message = f"its answer cannot be read: {because}"
    fields_of_result = {
        **(own or {}),
        "at": record.get("at"),
        "host": record.get("host"),
        "task_id": record.get("task_id"),
        "status": Status.FAILED.value,
        "msg": f"{own['msg']} ({message})" if own and own.get("msg") else message,
        "code": UNREADABLE.code,
    }
    try:
        result: TaskResult = _adapter("result").validate_python(fields_of_result)
    except ValidationError as error:
        raise CannotReadError(first_problem(error)) from None
    return result


@cache
def _adapter(name: str) -> TypeAdapter[Any]:
    return TypeAdapter(NAMES[name])
