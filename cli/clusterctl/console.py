"""Where words go: results to standard output, messages to standard error."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from typing import IO, Any

from rich.console import Console

from clustercheck.errors import ExplainedError


class Lasting(Console):
    """A console whose reader may go away (| head): what is said then goes nowhere, and work goes on."""

    def on_broken_pipe(self) -> None:
        """Not rich's own answer, which ends the program in the middle of its work."""
        speak_to_nobody(self.file)


RESULTS = Lasting(soft_wrap=True, highlight=False)
MESSAGES = Lasting(stderr=True, soft_wrap=True, highlight=False)


def is_live() -> bool:
    """True where a person watches a terminal: progress may redraw; else it is plain lines."""
    return MESSAGES.is_terminal and not os.environ.get("CI")


def say(message: str) -> None:
    """One message for the person, on standard error."""
    MESSAGES.print(message, markup=False)


def emit(record: Mapping[str, Any]) -> None:
    """One JSON object on one line of standard output, for --json."""
    write(json.dumps(record, sort_keys=False, default=str) + "\n")


def write(text: str) -> None:
    """Text as it is, on standard output; a reader that has gone is no reason to stop, nor to fail."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        speak_to_nobody(sys.stdout)


def speak_to_nobody(stream: IO[str]) -> None:
    """From now on what is written to ``stream``, and what it still holds, is dropped."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def explain(error: ExplainedError) -> None:
    """Print an error as what / where / hint, with its stable code."""
    MESSAGES.print(f"error: {error.what}", style="bold red", markup=False)
    if error.where:
        MESSAGES.print(f"  where: {error.where}", markup=False)
    if error.hint:
        MESSAGES.print(f"  hint:  {error.hint}", markup=False)
    MESSAGES.print(f"  code:  {error.code}", style="dim", markup=False)
