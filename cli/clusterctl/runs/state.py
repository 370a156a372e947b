"""How a run stands: running, ended, or interrupted with its controller."""

from __future__ import annotations

import math
import os
from enum import StrEnum

from clusterctl.runs.store import Run, seconds_after


class RunState(StrEnum):
    """CUT_OFF where its process has gone without a word; UNKNOWN where it is another machine's."""

    RUNNING = "running"
    FINISHED = "finished"
    CUT_OFF = "cut off"
    UNKNOWN = "unknown"


def state_of(run: Run) -> RunState:
    """The run's state, as far as this machine can tell."""
    if run.finished is not None:
        return RunState.FINISHED
    if run.controller != os.uname().nodename:
        return RunState.UNKNOWN
    try:
        os.kill(run.pid, 0)
    except ProcessLookupError:
        return RunState.CUT_OFF
    except PermissionError:
        return RunState.RUNNING
    return RunState.RUNNING


def duration_s(run: Run) -> float | None:
    """Seconds from start to end; None where it has not ended, or its record is odd."""
    seconds = seconds_after(run, run.started)
    return seconds if seconds > -math.inf else None
