"""Suites: which checks a validation runs, with which jobs. The data is in suites.yml."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from clustercheck.checks import bandwidth, dcgm_diag, node_reachable, pairs
from clustercheck.checks.all import BY_ID, CHECKS
from clustercheck.checks.base import Check
from clustercheck.errors import ExplainedError
from clustercheck.evidence.cluster import TOLERANCE
from clustercheck.tables import read_table

START_S = 10.0  # a container on each node, its framework, CUDA and NCCL: assumed, not timed on a rack
BARE_START_S = 3.0  # a container on each node, and Python: assumed


class SuiteJob(BaseModel):
    """One job of a suite. ``nccl_arguments`` are for GPUs; collectives use them in a second run.

    ``alone``: on each GPU by itself, by ``program`` if that differs from the job's name. ``bare``: it needs
    neither framework nor GPU.
    ``planned_s`` is the duration of all its launches on a healthy cluster; 0 if only a fault starts it.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    timeout_s: float = Field(gt=0)
    planned_s: float = Field(default=0, ge=0)
    arguments: dict[str, Any]
    nccl_arguments: dict[str, Any] = Field(default_factory=dict)
    alone: bool = False
    bare: bool = False
    program: str = ""

    @property
    def start_s(self) -> float:
        """The duration of one start of it."""
        return BARE_START_S if self.bare else START_S


class Diagnostic(BaseModel):
    """DCGM's diagnostic: its level, its duration on a healthy node, and its time limit."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    level: int = Field(ge=1, le=4)
    planned_s: float = Field(gt=0)
    limit_s: float = Field(gt=0)


PROBE_S = 20.0  # nvidia-smi on eight GPUs, a few containers, and the counters a second time: assumed
# Judged from what is collected of each node in any case: they take no time of their own.
PROBE_CHECKS = tuple(check.id for check in CHECKS if not check.job and check is not dcgm_diag.CHECK)


class Suite(BaseModel):
    """A suite by name. ``probe_limit_s`` is the limit of each command of the probe.

    ``limit_min``: a healthy cluster needs fewer minutes. Its jobs are repeated for ``repeat_min`` minutes;
    then the nodes are probed again.
    ``checks`` names those with jobs; what every node's probe collects anyway is judged in each suite.
    ``without`` names checks of larger suites; ``only`` the requested checks, if not all were requested.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    summary: str
    limit_min: float = Field(gt=0)
    repeat_min: float = Field(default=0, ge=0)
    probe_limit_s: float = Field(gt=0)
    checks: Literal["all"] | list[str]
    dcgm: Diagnostic | None = None
    without: list[str] = Field(default_factory=list)
    only: list[str] = Field(default_factory=list)
    jobs: dict[str, SuiteJob]

    @property
    def tolerance(self) -> float:
        """The allowed difference of a loss from the reference, for the training job and its check."""
        training = self.jobs.get("data_parallel")
        return float(training.arguments.get("tolerance", TOLERANCE)) if training else TOLERANCE

    @property
    def planned_s(self) -> float:
        """The duration of one pass over everything on a healthy cluster, in seconds."""
        checks = self.selected()
        jobs = [self.jobs[name] for name in {check.job for check in checks if check.job}]
        start = START_S if any(job.alone for job in jobs) else 0.0  # one launch for all single-GPU jobs
        diagnostic = self.dcgm.planned_s if self.dcgm and dcgm_diag.CHECK in checks else 0.0
        probes = 2 if self.repeat_min else 1
        return probes * PROBE_S + diagnostic + start + sum(job.planned_s for job in jobs)

    def selected(self) -> tuple[Check, ...]:
        """The suite's checks, in the order of the report."""
        chosen = BY_ID if self.checks == "all" else {*self.checks, *(() if self.only else PROBE_CHECKS)}
        return tuple(check for check in CHECKS if check.id in chosen and check.id not in self.without)

    def of_checks(self, patterns: Sequence[str]) -> Suite:
        """The suite with only these checks: ids or globs; all checks if there are none.

        Whether a node answers is always judged, and the pairs bring the check that starts fault isolation.
        Raises ExplainedError (``validate.unknown-check``) for one that matches no check of the suite.
        """
        if not patterns:
            return self
        known = [check.id for check in self.selected()]
        for pattern in patterns:
            if not any(fnmatchcase(check, pattern) for check in known):
                raise _unknown_check(self, pattern)
        only = [check for check in known if any(fnmatchcase(check, pattern) for pattern in patterns)]
        with_these = {*only, node_reachable.CHECK.id}
        if pairs.CHECK.id in only:
            with_these.add(bandwidth.CHECK.id)
        return self.model_copy(update={"checks": [c for c in known if c in with_these], "only": only})


def _unknown_check(suite: Suite, pattern: str) -> ExplainedError:
    others = [
        other.name
        for other in suites().values()
        if any(fnmatchcase(check.id, pattern) for check in other.selected())
    ]
    where = f"It is in: {', '.join(others)} (--suite). " if others else ""
    return ExplainedError(
        f"the suite {suite.name} has no check {pattern!r}",
        code="validate.unknown-check",
        hint=f"{where}`clusterctl validate --list --suite {suite.name}` lists them.",
    )


@cache
def suites() -> dict[str, Suite]:
    """Every suite."""
    data = read_table(Path(__file__).with_name("suites"))
    found = {name: Suite(name=name, **entry) for name, entry in data.items()}
    for suite in found.values():
        named = [*([] if suite.checks == "all" else suite.checks), *suite.without]
        unknown = [check for check in named if check not in BY_ID]
        if unknown:
            raise ValueError(f"suite {suite.name} names checks that do not exist: {', '.join(unknown)}")
    return found


def load(name: str) -> Suite:
    """The suite of that name. Raises ExplainedError (``validate.unknown-suite``)."""
    if name not in suites():
        raise ExplainedError(
            f"unknown suite {name!r}",
            code="validate.unknown-suite",
            hint=f"Suites: {', '.join(suites())}",
        )
    return suites()[name]
