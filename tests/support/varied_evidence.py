"""Evidence of other kinds for a check: all that one node or one rank may say instead."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import Any

from tests.support import varied

from clustercheck.checks.base import Check, evaluate
from clustercheck.evidence.cluster import Evidence
from clustercheck.evidence.node import NodeEvidence
from clustercheck.launch.model import JobOutcome
from clustercheck.model import Result
from clustercheck.samples import sample

HEALTHY = sample.healthy()
NODE = "gpu01"
RECENT = 10
DEPTH_BESIDE_A_JOB = 3


@dataclass(frozen=True)
class Case:
    """Evidence by name; ``compared``: what counts is how its results differ from the healthy cluster's.

    Of an ``unseen`` one the results count for the checksum alone.
    """

    name: str
    evidence: Evidence
    compared: bool = True
    unseen: bool = False


class Noting(dict[str, Any]):
    """A mapping that notes which of its keys are asked for."""

    def __init__(self, raw: Mapping[str, Any], read: set[str]) -> None:
        super().__init__(raw)
        self.read = read

    def __getitem__(self, key: str) -> Any:
        self.read.add(key)
        return super().__getitem__(key)

    def get(self, key: str, default: Any = None) -> Any:
        self.read.add(key)
        return super().get(key, default)


@cache
def read_by(check_id: str, check: Check) -> tuple[list[str], list[str]]:
    """The parts of a node's record, and the jobs, that the check asks for."""
    parts: set[str] = set()
    jobs: set[str] = set()
    node = HEALTHY.nodes[NODE]
    noted = NodeEvidence(NODE, Noting(node.raw, parts), asked=node.asked)
    evaluate(
        check,
        replace(
            HEALTHY,
            nodes={**HEALTHY.nodes, NODE: noted},
            later={**HEALTHY.later, NODE: noted},
            jobs=Noting(HEALTHY.jobs, jobs),
        ),
    )
    return sorted(parts & node.raw.keys()), sorted(jobs & HEALTHY.jobs.keys())


class Varying:
    """All that one node, or one rank, may say instead of what a check reads."""

    def __init__(self, check: Check) -> None:
        self.check = check
        self._recent: dict[int, tuple[Evidence, list[Result]]] = {}
        self.whole = self.judged(HEALTHY)

    def judged(self, evidence: Evidence) -> list[Result]:
        """The check's results, those of the last few kept: what may matter is asked before it is shown."""
        if id(evidence) not in self._recent:
            for old in list(self._recent)[: len(self._recent) - RECENT]:
                del self._recent[old]
            self._recent[id(evidence)] = (evidence, evaluate(self.check, evidence))
        return self._recent[id(evidence)][1]

    def matters(self, evidence: Evidence) -> bool:
        """Whether the check then says anything else."""
        return self.judged(evidence) != self.whole

    def cases(self) -> Iterator[Case]:
        """Those of nodes, then those of ranks."""
        parts, jobs = read_by(self.check.id, self.check)
        for part in parts:
            yield from self._of_part(part)
        for job in jobs:
            yield from self._of_job(job)

    def _of_part(self, part: str) -> Iterator[Case]:
        whole = HEALTHY.nodes[NODE].raw
        counts = part in self.check.counters

        def told(value: Any) -> Evidence:
            return _with_part(part, json.dumps(value), counts)

        yield Case(f"{part} = (gone)", _with_part(part, "", counts))
        depth = DEPTH_BESIDE_A_JOB if self.check.job else varied.DEEP
        for words, value in varied.variants(whole[part], lambda value: self.matters(told(value)), depth):
            yield Case(f"{part}.{words}".replace(". =", " ="), told(value))

    def _of_job(self, job: str) -> Iterator[Case]:
        def told(value: Any) -> Evidence:
            return _with_verdict(job, json.dumps(value))

        verdict = HEALTHY.jobs[job].ranks[0].verdict
        for words, value in varied.variants(verdict, lambda value: self.matters(told(value))):
            if value is None or isinstance(value, dict):
                yield Case(f"{job}: rank 0: {words}", told(value))


# What has been read of evidence stays with it, and many checks are asked of the same.
@lru_cache(maxsize=1500)
def _with_part(part: str, value: str, counts: bool) -> Evidence:
    """A node says this, as JSON, or nothing: where counters ``counts``, after the jobs alone."""
    raw = {key: one for key, one in HEALTHY.nodes[NODE].raw.items() if key != part}
    told = NodeEvidence(
        NODE, {**raw, part: json.loads(value)} if value else raw, asked=HEALTHY.nodes[NODE].asked
    )
    nodes = HEALTHY.nodes if counts else {**HEALTHY.nodes, NODE: told}
    return replace(HEALTHY, nodes=nodes, later={**HEALTHY.later, NODE: told})


@lru_cache(maxsize=1500)
def _with_verdict(job: str, value: str) -> Evidence:
    """The first rank of the job says this, as JSON."""
    outcome = HEALTHY.jobs[job]
    first = replace(outcome.ranks[0], verdict=json.loads(value))
    return with_job(HEALTHY, replace(outcome, ranks=(first, *outcome.ranks[1:])))


def with_job(evidence: Evidence, outcome: JobOutcome) -> Evidence:
    """The evidence with this outcome of a job."""
    return replace(evidence, jobs={**evidence.jobs, outcome.job: outcome})
