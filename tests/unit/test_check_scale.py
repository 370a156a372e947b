"""Judging a large cluster: each node is asked as often among many as among few."""

from __future__ import annotations

import pytest

from clustercheck import sample
from clustercheck.checks.all import CHECKS
from clustercheck.checks.base import evaluate
from clustercheck.launch.model import RankOutcome
from clustercheck.model import Scope
from clustercheck.node_evidence import NodeEvidence


def asked(nodes: int) -> int:
    """How often all checks look at a part of a node's record, or at what a rank said."""
    looks = 0
    evidence = sample.healthy(nodes)
    with pytest.MonkeyPatch.context() as patch:

        def counted(known: object, name: str) -> object:
            nonlocal looks
            looks += name in ("raw", "verdict")
            return object.__getattribute__(known, name)

        for kind in (NodeEvidence, RankOutcome):
            patch.setattr(kind, "__getattribute__", counted)
        for check in CHECKS:
            if check.scope is not Scope.PAIR:
                evaluate(check, evidence)
    return looks


def test_twice_as_many_nodes_are_twice_the_work() -> None:
    assert asked(48) <= 2 * asked(24)
