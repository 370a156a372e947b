"""The clock's verdict by what the times prove, however long the log-ins took."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clustercheck.checks import clock
from clustercheck.evidence.cluster import Evidence
from clustercheck.evidence.node import NodeEvidence
from clustercheck.model import Subject, Verdict
from clustercheck.samples import sample

# Seconds before and after the probe that a log-in took, and how far the clock is ahead.
delays = st.floats(0, 12)


def seen(*nodes: tuple[float, float, float]) -> Evidence:
    """Evidence of nodes (seconds until the probe started, seconds until it was back, clock ahead by)."""
    evidence = sample.healthy(len(nodes))
    found = {}
    for (name, node), (before, after, ahead) in zip(evidence.nodes.items(), nodes, strict=True):
        began = 1000.0 + before
        times = {"clock_began": began + ahead, "clock_ended": began + 1.0 + ahead}
        asked = (1000.0, began + 1.0 + after)
        found[name] = NodeEvidence(name, {**node.raw, **times}, asked=asked)
    return replace(evidence, nodes=found)


def verdict(evidence: Evidence, node: str) -> Verdict:
    return clock.judge(evidence, Subject(node)).verdict


def test_two_slow_log_ins_do_not_make_the_third_clock_wrong():
    evidence = seen((0.1, 0.1, 0), (9, 0, 0), (9, 0, 0))
    assert {verdict(evidence, f"gpu0{n}") for n in (1, 2, 3)} == {Verdict.PASS}


@given(st.lists(st.tuples(delays, delays), min_size=3, max_size=9))
def test_clocks_that_are_right_are_called_right(log_ins):
    evidence = seen(*((before, after, 0.0) for before, after in log_ins))
    assert all(verdict(evidence, name) is Verdict.PASS for name in evidence.nodes)


@pytest.mark.parametrize("ahead", [-30.0, 30.0])
def test_a_clock_that_is_far_off_is_found_behind_slow_log_ins(ahead):
    evidence = seen((3, 3, 0), (3, 3, ahead), (3, 3, 0))
    assert [verdict(evidence, f"gpu0{n}") for n in (1, 2, 3)] == [Verdict.PASS, Verdict.FAIL, Verdict.PASS]
