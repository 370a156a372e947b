"""What hardware_mig may say, and where instances go: data in, layouts out."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from ansible_collections.clusterctl.cluster.plugins.module_utils import mig_layout
from ansible_collections.clusterctl.cluster.plugins.module_utils.mig_layout import (
    Instance,
    LayoutError,
    Profile,
)
from hypothesis import given
from hypothesis import strategies as st

# As `nvidia-smi mig -lgip` and `-lgipp` list them on an A100 with 80 GB [MIG User Guide].
A100 = {
    one.name: one
    for one in (
        Profile("1g.10gb", 1, (0, 1, 2, 3, 4, 5, 6), 7),
        Profile("1g.10gb+me", 1, (0, 1, 2, 3, 4, 5, 6), 1),
        Profile("1g.20gb", 2, (0, 2, 4, 6), 4),
        Profile("2g.20gb", 2, (0, 2, 4), 3),
        Profile("3g.40gb", 4, (0, 4), 2),
        Profile("4g.40gb", 4, (0,), 1),
        Profile("7g.80gb", 8, (0,), 1),
    )
}


def layouts(value: Any, gpus: int = 4) -> list[str]:
    rules = mig_layout.parse(value)
    return [mig_layout.layout_of(rules, gpu) for gpu in range(gpus)]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, ["", "", "", ""]),
        ("", ["", "", "", ""]),
        ("disabled", ["disabled"] * 4),
        ("all-disabled", ["disabled"] * 4),
        ("enabled", ["enabled"] * 4),
        ("all-1g.10gb", ["all-1g.10gb"] * 4),
        ("7x1g.10gb", ["7x1g.10gb"] * 4),
        ("7 x 1g.10gb", ["7x1g.10gb"] * 4),
        ("3g.40gb, 2g.20gb,3g.40gb", ["2g.20gb, 2x3g.40gb"] * 4),
        (["3g.40gb", "3g.40gb"], ["2x3g.40gb"] * 4),
        (["2x1g.10gb+me.all"], ["2x1g.10gb+me.all"] * 4),
        ({0: "disabled", "2-3": "all-1g.10gb"}, ["disabled", "", "all-1g.10gb", "all-1g.10gb"]),
        ({"1,3": ["3g.40gb"], "all": "disabled"}, ["disabled", "3g.40gb", "disabled", "3g.40gb"]),
        ({"all": {"3g.40gb": 2}, 1: {}}, ["2x3g.40gb", "enabled", "2x3g.40gb", "2x3g.40gb"]),
        (
            [
                {"devices": "all", "mig-enabled": False},
                {"devices": [1, 2], "mig-enabled": True, "mig-devices": {"1g.10gb": 4}},
            ],
            ["disabled", "4x1g.10gb", "4x1g.10gb", "disabled"],
        ),
        (
            {"version": "v1", "mig-configs": {"all-3g": [
                {"devices": "all", "mig-enabled": True, "mig-devices": {"3g.40gb": 2}}]}},
            ["2x3g.40gb"] * 4,
        ),
    ],
)  # fmt: skip
def test_a_declaration_gives_each_gpu_a_layout(value: Any, expected: list[str]) -> None:
    assert layouts(value) == expected


@pytest.mark.parametrize(
    ("value", "word"),
    [
        (False, "YAML reads that as false"),
        ({0: True}, "YAML reads that as true"),
        ("off", "'off' is not a MIG instance"),
        ("7x", "is not a MIG instance"),
        ("0x1g.10gb", "is not a MIG instance"),
        ("all-", "is not a MIG instance"),
        ("17x1g.10gb", "17 instances"),
        ([], "an empty list"),
        ([3], "'3' is not a MIG instance"),
        (3, "'3' is not a layout"),
        ({"gpu0": "disabled"}, "'gpu0' is not an index of a GPU"),
        ({"3-1": "disabled"}, "'3-1' is not an index of a GPU"),
        ({64: "disabled"}, "'64' is not an index of a GPU"),
        ({0: {"1g.10gb": 0}}, "'0' instances of 1g.10gb"),
        ([{"devices": "all"}], "an entry of mig-parted has"),
        ([{"devices": "all", "mig-enabled": "yes"}], "`mig-enabled` is true or false"),
        (
            [{"devices": "all", "mig-enabled": False, "mig-devices": {"1g.10gb": 1}}],
            "`mig-devices` is a mapping",
        ),
        (
            [{"devices": "all", "device-filter": "0x20B010DE", "mig-enabled": False}],
            "`device-filter` is not read",
        ),
        ({"mig-configs": {"a": [], "b": []}}, "must have one configuration"),
    ],
)
def test_what_is_no_declaration_is_refused_with_its_part(value: Any, word: str) -> None:
    with pytest.raises(LayoutError) as caught:
        mig_layout.parse(value)
    assert word in str(caught.value)


VALUES = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.text(max_size=12), st.sampled_from([*A100, "all", "0-3"])
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=11), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(VALUES)
def test_no_value_is_a_traceback(value: Any) -> None:
    try:
        rules = mig_layout.parse(value)
    except LayoutError:
        return
    assert all(mig_layout.parse(rule.layout) == (rule._replace(gpus=None),) for rule in rules)


@pytest.mark.parametrize(
    ("layout", "count"), [("all-1g.10gb", 7), ("all-1g.20gb", 4), ("all-3g.40gb", 2), ("enabled", 0)]
)
def test_a_gpu_is_filled_with_as_many_as_it_has_room_for(layout: str, count: int) -> None:
    found = mig_layout.instances(layout, A100)
    assert found is not None
    assert len(found) == count
    assert mig_layout.instances("disabled", A100) is None


@pytest.mark.parametrize(
    ("layout", "word"),
    [
        ("8x1g.10gb", "room for 7"),
        ("2x1g.10gb+me", "room for 1"),
        ("all-1g.5gb", "no profile 1g.5gb: it has 1g.10gb, "),
        ("4g.40gb, 2x3g.40gb", "do not fit"),
        ("7g.80gb, 1g.10gb", "do not fit"),
        ("3x2g.20gb, 2x1g.10gb", "do not fit"),
        ("1c.3g.40gb", "no profile 1c.3g.40gb"),
    ],
)
def test_what_does_not_fit_is_refused(layout: str, word: str) -> None:
    with pytest.raises(LayoutError) as caught:
        mig_layout.instances(layout, A100)
    assert word in str(caught.value)


# Of the examples of the MIG User Guide: the geometry 3-2-1-1 needs the larger instance first.
def test_the_guides_geometry_is_placed_whatever_the_order() -> None:
    found = mig_layout.place(["1g.10gb", "1g.10gb", "2g.20gb", "3g.40gb"], A100)
    assert Counter(one.profile for one in found) == {"1g.10gb": 2, "2g.20gb": 1, "3g.40gb": 1}
    assert fits(list(found))


def fits(placed: list[Instance]) -> bool:
    taken = [part for one in placed for part in range(one.start, one.start + A100[one.profile].size)]
    return len(taken) == len(set(taken)) and all(one.start in A100[one.profile].starts for one in placed)


NAMES = st.lists(st.sampled_from(sorted(A100)), max_size=7)


@given(NAMES, NAMES)
def test_a_change_keeps_what_it_can_and_ends_in_what_was_wanted(before: list[str], after: list[str]) -> None:
    try:
        there = mig_layout.place(before, A100)
        mig_layout.place(after, A100)
    except LayoutError:
        return
    kept, made = mig_layout.change(there, after, A100)
    assert set(kept) <= set(there)
    assert fits([*kept, *made])
    assert Counter(one.profile for one in [*kept, *made]) == Counter(after)
    if Counter(before) == Counter(after):
        assert (kept, made) == (there, ())


def test_only_what_is_in_the_way_is_destroyed() -> None:
    there = (Instance("3g.40gb", 0), Instance("1g.10gb", 4), Instance("1g.10gb", 5))
    kept, made = mig_layout.change(there, ["3g.40gb", "3g.40gb"], A100)
    assert (kept, made) == ((Instance("3g.40gb", 0),), (Instance("3g.40gb", 4),))
