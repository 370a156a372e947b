"""Suites: which checks a validation runs, and with what jobs. The data is in suites.yml."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field

from clustercheck.checks.all import BY_ID, CHECKS
from clustercheck.checks.base import Check
from clustercheck.errors import ExplainedError
from clustercheck.evidence import TOLERANCE


class SuiteJob(BaseModel):
    """One distributed job of a suite. ``nccl_arguments`` are for GPUs: of the all-reduce for a second run."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    timeout_s: float = Field(gt=0)
    arguments: dict[str, Any]
    nccl_arguments: dict[str, Any] = Field(default_factory=dict)


class Suite(BaseModel):
    """A suite by name. ``probe_limit_s`` is the limit of each command of the probe."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    summary: str
    probe_limit_s: float = Field(gt=0)
    checks: Literal["all"] | list[str]
    jobs: dict[str, SuiteJob]

    @property
    def tolerance(self) -> float:
        """How far a loss may be from the reference: what the training job is told, and judged by."""
        training = self.jobs.get("data_parallel")
        return float(training.arguments.get("tolerance", TOLERANCE)) if training else TOLERANCE

    def selected(self) -> tuple[Check, ...]:
        """The suite's checks, in the order of the report."""
        return CHECKS if self.checks == "all" else tuple(check for check in CHECKS if check.id in self.checks)


@cache
def suites() -> dict[str, Suite]:
    """Every suite there is."""
    data = yaml.safe_load((Path(__file__).parent / "suites.yml").read_text(encoding="utf-8"))
    found = {name: Suite(name=name, **entry) for name, entry in data.items()}
    for suite in found.values():
        unknown = [] if suite.checks == "all" else [check for check in suite.checks if check not in BY_ID]
        if unknown:
            raise ValueError(f"suite {suite.name} names checks that do not exist: {', '.join(unknown)}")
    return found


def load(name: str) -> Suite:
    """The suite of that name. Raises ExplainedError (``validate.unknown-suite``)."""
    if name not in suites():
        raise ExplainedError(
            f"there is no suite {name!r}",
            code="validate.unknown-suite",
            hint=f"Suites: {', '.join(suites())}",
        )
    return suites()[name]
