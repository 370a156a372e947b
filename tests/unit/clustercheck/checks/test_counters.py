"""Counters that must not rise over the jobs: what rose, what nobody can tell, and links that went."""

from __future__ import annotations

from dataclasses import replace

import pytest

from clustercheck.checks.support.counters import Counters, Growth, Key, growth_over_jobs
from clustercheck.evidence.cluster import Evidence
from clustercheck.evidence.node import NodeEvidence
from clustercheck.parse.reading import CannotReadError, NotDoneError
from clustercheck.samples import sample

ERRORS: Key = ("mlx5_0", "errors")
UP = frozenset({"mlx5_0", "mlx5_1"})
NODE = "gpu01"


def growth(
    before: int | None,
    after: int | Exception | None,
    *,
    loaded: bool = True,
    up: frozenset[str] = UP,
    widest: int | None = None,
) -> Growth:
    """What one counter did; nothing was read after the jobs where ``after`` is an error."""
    evidence = sample.healthy(1)
    later = NodeEvidence(NODE, {"later": True})
    evidence = replace(evidence, later={NODE: later})

    def read(node: NodeEvidence) -> Counters:
        if "later" not in node.raw:
            return Counters(UP, {} if before is None else {ERRORS: before})
        if isinstance(after, Exception):
            raise after
        return Counters(up, {ERRORS: after})

    loaded_by = ["all_reduce"] if loaded else []
    known = {} if widest is None else {ERRORS[1]: widest}
    return growth_over_jobs(evidence, NODE, read, loaded_by=loaded_by, widest=known)


@pytest.mark.parametrize(
    ("before", "after", "grew"),
    [(0, 0, {}), (7, 7, {}), (7, 9, {ERRORS: 2}), (None, 3, {ERRORS: 3}), (9, 2, {ERRORS: 2})],
)
def test_what_was_counted_over_the_jobs_is_what_grew(
    before: int | None, after: int, grew: dict[Key, int]
) -> None:
    """Also of a counter that came later, or that was cleared in between: since then at least."""
    assert growth(before, after).grew == grew


def test_a_counter_whose_growth_nobody_can_tell_is_no_pass_where_it_is_needed() -> None:
    for found, why in (
        (growth(9, 2), "it was cleared between the readings"),
        (growth(255, 255, widest=255), "it had been saturated before"),
        (growth(254, 255, widest=255), "it was saturated during the jobs"),
        (growth(3, None), "the counter is not reported"),
    ):
        with pytest.raises(CannotReadError, match=why):
            found.require_told([ERRORS])
        found.require_told([("mlx5_1", "errors")])
    assert growth(254, 255, widest=255).grew == {ERRORS: 1}, "at least"


def test_a_link_that_went_over_the_jobs_is_named() -> None:
    assert growth(0, 0, up=frozenset({"mlx5_0"})).gone == ("mlx5_1",)
    assert growth(0, 0, up=UP | {"mlx5_2"}).gone == ()


def test_without_a_job_that_loaded_it_zero_is_as_good_as_before_and_more_is_in_doubt() -> None:
    growth(0, 0, loaded=False).require_told([ERRORS])
    with pytest.raises(NotDoneError, match="mlx5_0: 7 errors"):
        growth(7, 7, loaded=False).require_told([ERRORS])
    growth(7, 7).require_told([ERRORS])


def without_later(evidence: Evidence, **later: NodeEvidence) -> Growth:
    def read(node: NodeEvidence) -> Counters:
        return Counters(UP, {ERRORS: 7})

    return growth_over_jobs(replace(evidence, later=later), NODE, read, loaded_by=["all_reduce"])


def test_what_was_not_read_again_is_in_doubt_and_says_why() -> None:
    with pytest.raises(CannotReadError, match="bad answer"):
        growth(0, CannotReadError("bad answer")).require_told([])
    with pytest.raises(NotDoneError, match="counted before: mlx5_0: 7 errors"):
        without_later(sample.healthy(1)).require_told([])
    gone = NodeEvidence(NODE, {}, unreachable="no route to host")
    with pytest.raises(CannotReadError, match="read again after the jobs: no route to host"):
        without_later(sample.healthy(1), gpu01=gone).require_told([])


def test_only_what_counted_is_above_zero() -> None:
    assert Counters(UP, {ERRORS: 0, ("a", "b"): None, ("c", "d"): 1}).above_zero == {("c", "d"): 1}
