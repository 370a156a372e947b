"""Shared by the tests with real frameworks: the ranks of a job."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.support.rank_processes import run_job


@pytest.fixture
def ranks_of_a_job() -> Callable[..., list[dict[str, Any]]]:
    """Runs a job's ranks on this machine, over gloo; returns their verdicts."""
    return run_job
