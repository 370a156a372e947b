"""Who is to blame: rounds, pairs, and the table of culprits."""

from __future__ import annotations

import random
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clustercheck.locate.culprits import culprits, two_nodes
from clustercheck.locate.pairs import Blame, Pair, blame, in_order, threshold_gbps
from clustercheck.locate.rounds import affordable_rounds, as_ranks, round_robin
from clustercheck.model import Result, Scope, Subject, Verdict


@given(st.integers(2, 60))
@settings(deadline=None, max_examples=30)
def test_in_a_round_robin_everyone_meets_everyone_once_and_nobody_twice_a_round(count: int) -> None:
    rounds = round_robin(count)
    assert len(rounds) == count - 1 + count % 2
    for pairs in rounds:
        members = [member for pair in pairs for member in pair]
        assert len(members) == len(set(members)) and len(pairs) == count // 2
    assert sorted(pair for pairs in rounds for pair in pairs) == list(combinations(range(count), 2))


def test_rounds_are_bounded_for_many_nodes() -> None:
    assert [affordable_rounds(n) for n in (0, 1, 2, 3, 4, 16, 64, 1000)] == [0, 0, 1, 3, 3, 15, 20, 28]
    assert round_robin(1) == []
    assert as_ranks([[(0, 1)], [(0, 2)]], [0, 8, 16]) == [[[0, 8]], [[0, 16]]]
    assert len(round_robin(64, affordable_rounds(64))) == 20


def measured(
    nodes: list[str], slow_nodes: set[str], slow_links: set[Pair], limit: int | None = None
) -> dict[Pair, float]:
    noise = random.Random(7)  # noqa: S311
    found = {}
    for pairs in round_robin(len(nodes), limit):
        for a, b in pairs:
            pair = in_order(nodes[a], nodes[b])
            slow = bool(set(pair) & slow_nodes) or pair in slow_links
            found[pair] = (0.1 if slow else 1.0) * noise.uniform(0.85, 1.15)
    return found


def names(count: int) -> list[str]:
    return [f"gpu{n:02d}" for n in range(1, count + 1)]


@given(st.integers(4, 24), st.data())
@settings(deadline=None, max_examples=80)
def test_slow_nodes_are_found_and_nobody_else_is_blamed(count: int, data: st.DataObject) -> None:
    nodes = names(count)
    slow = set(
        data.draw(st.lists(st.sampled_from(nodes), min_size=1, max_size=min(3, count - 3), unique=True))
    )
    told = blame(nodes, measured(nodes, slow, set(), affordable_rounds(count)), 0.0)
    assert set(told.nodes) == slow and told.links == () and told.unsure == ()


@given(st.integers(4, 16), st.data())
@settings(deadline=None, max_examples=80)
def test_a_slow_link_beside_a_slow_node(count: int, data: st.DataObject) -> None:
    nodes = names(count)
    node, a, b = data.draw(st.permutations(nodes))[:3]
    link = in_order(a, b)
    told = blame(nodes, measured(nodes, {node}, {link}), 0.0)
    if count > 4:  # with four, a and b are left with two partners each, which may be too few to tell
        assert (told.nodes, told.links) == ((node,), (link,))
    else:
        assert node in told.nodes


def test_three_nodes_tell_a_node_from_a_link() -> None:
    nodes = names(3)
    assert blame(nodes, measured(nodes, {"gpu02"}, set()), 0.0).nodes == ("gpu02",)
    link = ("gpu01", "gpu03")
    told = blame(nodes, measured(nodes, set(), {link}), 0.0)
    assert (told.nodes, told.links) == ((), (link,))


def test_where_it_cannot_be_told_it_is_said() -> None:
    assert blame(names(2), {("gpu01", "gpu02"): 0.1}, 0.5).unsure == ("gpu01", "gpu02")
    all_slow = blame(names(3), dict.fromkeys(combinations(names(3), 2), 0.1), 0.5)
    assert all_slow.unsure == tuple(names(3)) and "every pair is slow" in all_slow.because
    fine = blame(names(3), dict.fromkeys(combinations(names(3), 2), 1.0), 0.5)
    assert (fine.nodes, fine.links, fine.unsure) == ((), (), ()) and "only the whole group" in fine.because


def test_the_threshold_is_the_floor_or_half_of_the_better_pairs() -> None:
    assert threshold_gbps({}, 0.3) == 0.3
    assert threshold_gbps({("a", "b"): 2.0, ("a", "c"): 0.1, ("b", "c"): 0.1}, 0.3) == 1.0
    assert threshold_gbps({("a", "b"): 0.4}, 0.3) == 0.3


def result(
    check: str, scope: Scope, node: str | None, gpu: int | None = None, verdict: Verdict = Verdict.FAIL
) -> Result:
    return Result(
        check, scope, Subject(node, gpu), verdict, because=f"{check} is bad", remedy=f"mend {check}"
    )


def test_each_culprit_is_named_once_with_every_reason() -> None:
    found = culprits(
        [
            result("xid", Scope.GPU, "gpu02", 3),
            result("nvlink", Scope.LINK, "gpu02", 3),
            result("nvlink", Scope.LINK, "gpu01", 0),
            result("nvlink", Scope.LINK, "gpu01", 1, Verdict.PASS),
            result("nvlink", Scope.LINK, "gpu02", 1, Verdict.PASS),
            result("xid", Scope.GPU, "gpu02", 1, Verdict.PASS),
            result("node-reachable", Scope.HOST, "gpu03"),
            result("all-reduce", Scope.GROUP, "gpu03"),
        ],
        None,
        False,
    )
    assert [(c.scope, c.node, c.gpu) for c in found] == [
        ("node", "gpu03", None), ("gpu", "gpu02", 3), ("link", "gpu01", 0),
    ]  # fmt: skip
    assert found[0].because == "node-reachable: node-reachable is bad; all-reduce: all-reduce is bad"
    assert found[1].remedy == "mend xid"


def test_what_fails_on_every_gpu_of_a_node_is_the_nodes() -> None:
    (found,) = culprits([result("nvlink", Scope.LINK, "gpu01", gpu) for gpu in range(8)], None, False)
    assert (found.scope, found.node, found.gpu) == ("node", "gpu01", None)
    assert "on every GPU" in found.because


def test_pairs_speak_only_of_a_group_that_is_slow() -> None:
    nobody = Blame(because="every pair alone is fast: only the whole group is slow")
    assert culprits([], nobody, group_is_slow=False) == []
    (switch,) = culprits([], nobody, group_is_slow=True)
    assert (switch.scope, switch.node) == ("switch", "")
    both = culprits([], two_nodes(("gpu01", "gpu02")), group_is_slow=True)
    assert [c.node for c in both] == ["gpu01", "gpu02"]
    assert all("cannot be told" in c.because and "third node" in c.remedy for c in both)


@pytest.mark.parametrize("verdict", [Verdict.PASS, Verdict.NOT_RUN, Verdict.EXCLUDED])
def test_only_failures_have_culprits(verdict: Verdict) -> None:
    assert culprits([result("xid", Scope.GPU, "gpu01", 0, verdict)], None, False) == []


def registry_results(**because: str) -> list[Result]:
    """Results of the registry's check by node; an empty reason is a pass, ? marks the node's own."""
    return [
        Result(
            "registry-reachable",
            Scope.HOST,
            Subject(node),
            Verdict.FAIL if why else Verdict.PASS,
            because=why,
            remedy="look at it",
            evidence={"server": "registry01"} if why and not why.startswith("?") else {},
        )
        for node, why in because.items()
    ]


@pytest.mark.parametrize(
    ("said", "blamed"),
    [
        ({"gpu01": "refused", "gpu02": "refused"}, ["registry01"]),
        ({"gpu01": "refused", "gpu02": ""}, ["gpu01"]),
        ({"gpu01": "refused", "gpu02": "refused", "gpu03": "?no name"}, ["gpu03", "registry01"]),
        ({"gpu01": "?no name", "gpu02": "?no name"}, ["gpu01", "gpu02"]),
        ({"gpu01": "refused"}, ["gpu01", "registry01"]),
    ],
)
def test_a_server_that_answers_nobody_is_blamed_and_not_those_who_ask(
    said: dict[str, str], blamed: list[str]
) -> None:
    found = culprits(registry_results(**said), None, group_is_slow=False)
    assert sorted(culprit.node for culprit in found) == blamed
    assert all(culprit.remedy and culprit.because for culprit in found)


def test_two_faults_of_one_node_have_both_remedies_and_their_effects_none_of_their_own() -> None:
    failed = [
        Result(check, scope, Subject("gpu01"), Verdict.FAIL, because="bad", remedy=remedy)
        for check, scope, remedy in (
            ("name-service", Scope.HOST, "Name a server."),
            ("disk-space", Scope.HOST, "Free space"),
            ("all-reduce", Scope.GROUP, "Look at the log."),
        )
    ]
    (culprit,) = culprits(failed, None, group_is_slow=False)
    assert culprit.remedy == "Name a server. Free space."
    assert culprit.because == "name-service: bad; disk-space: bad; all-reduce: bad"
    (alone,) = culprits(failed[2:], None, group_is_slow=False)
    assert alone.remedy == "Look at the log."
