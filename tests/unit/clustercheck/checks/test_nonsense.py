"""Whatever a node or a rank says instead of what a check reads: no check fails itself over it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest

from clustercheck.checks.all import CHECKS
from clustercheck.checks.base import Check, evaluate
from clustercheck.evidence.cluster import Evidence
from clustercheck.evidence.node import NodeEvidence
from clustercheck.samples import sample

NONSENSE: tuple[Any, ...] = (None, "x", [], [7], {"x": 7})
DEPTH = 2
HEALTHY = sample.healthy()
FAILED_ITSELF = "the check itself failed"


class Noting(dict[str, Any]):
    """A record that notes which of its parts are read."""

    def __init__(self, raw: Mapping[str, Any], read: set[str]) -> None:
        super().__init__(raw)
        self.read = read

    def __getitem__(self, key: str) -> Any:
        self.read.add(key)
        return super().__getitem__(key)

    def get(self, key: str, default: Any = None) -> Any:
        self.read.add(key)
        return super().get(key, default)


def parts_read(check: Check) -> set[str]:
    read: set[str] = set()
    node = HEALTHY.nodes["gpu01"]
    noted = NodeEvidence("gpu01", Noting(node.raw, read), asked=node.asked)
    evaluate(check, replace(HEALTHY, nodes={**HEALTHY.nodes, "gpu01": noted}))
    return read & node.raw.keys()


def nonsense_for(value: Any, depth: int) -> Iterator[Any]:
    """What may stand there instead: nonsense, or the same with nonsense somewhere in it."""
    yield from NONSENSE
    if depth and isinstance(value, dict):
        for key in list(value)[:8]:
            yield {name: one for name, one in value.items() if name != key}
            for other in nonsense_for(value[key], depth - 1):
                yield {**value, key: other}
    if depth and isinstance(value, list) and value:
        for other in nonsense_for(value[0], depth - 1):
            yield [other, *value[1:]]


def with_part(part: str, value: Any) -> Evidence:
    node = HEALTHY.nodes["gpu01"]
    told = NodeEvidence("gpu01", {**node.raw, part: value}, asked=node.asked)
    return replace(HEALTHY, nodes={**HEALTHY.nodes, "gpu01": told}, later={**HEALTHY.later, "gpu01": told})


def with_verdict(job: str, value: Any) -> Evidence:
    outcome = HEALTHY.jobs[job]
    ranks = (replace(outcome.ranks[0], verdict=value), *outcome.ranks[1:])
    return replace(HEALTHY, jobs={**HEALTHY.jobs, job: replace(outcome, ranks=ranks)})


def spoiled(check: Check) -> Iterator[tuple[Any, Evidence]]:
    for part in sorted(parts_read(check)):
        for value in nonsense_for(HEALTHY.nodes["gpu01"].raw[part], DEPTH):
            yield (part, value), with_part(part, value)
    if check.job in HEALTHY.jobs:
        verdict = HEALTHY.jobs[check.job].ranks[0].verdict
        for value in nonsense_for(verdict, DEPTH):
            if value is None or isinstance(value, dict):
                yield (check.job, value), with_verdict(check.job, value)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.id)
def test_nonsense_is_cannot_read_and_no_check_fails_itself(check: Check) -> None:
    failed = {
        f"{one.subject}: {one.because}": what
        for what, evidence in spoiled(check)
        for one in evaluate(check, evidence)
        if FAILED_ITSELF in one.because
    }
    assert failed == {}
