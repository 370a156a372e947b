"""Which node samples that several say they trained on are held against."""

from __future__ import annotations

from clustercheck.checks.support.samples_shared import find_shared


def test_of_two_only_the_pair_is_known() -> None:
    found = find_shared([{"a": range(10), "b": range(5, 15), "c": range(20, 30)}], 2)
    assert {node: one.between for node, one in found.items()} == {"a": "b", "b": "a"}
    assert found["a"].because == "b trained on 5 of its samples in epoch 1, too"


def test_who_shares_with_several_that_share_none_is_the_cause_alone() -> None:
    found = find_shared([{"a": range(10), "b": range(5), "c": range(5, 10), "d": range(20, 30)}], 2)
    assert set(found) == {"a"}
    assert (found["a"].because, found["a"].between) == (
        "b and c trained on 10 of its samples in epoch 1, too", "",
    )  # fmt: skip


def test_two_that_each_share_with_others_are_held_against_each_other_too() -> None:
    samples = {
        "a": [*range(5), *range(10, 15)], "b": [*range(5), *range(20, 25)],
        "c": range(10, 15), "d": range(20, 25),
    }  # fmt: skip
    found = find_shared([samples], 2)
    assert set(found) == {"a", "b"}
    assert found["a"].because.startswith("b and c trained on 10 of its samples")
    assert found["b"].because.startswith("a and d trained on 10 of its samples")
