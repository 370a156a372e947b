"""Culprits of groups and links, of servers and of whole nodes: who is named where several results say it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from clustercheck.locate.culprits import (
    NOT_MEASURED_REMEDY,
    UNSURE_REMEDY,
    find_culprits,
    make_two_node_result,
    make_unmeasured_result,
)
from clustercheck.locate.faults import CANNOT_TELL, IsolationResult, LocatedFault
from clustercheck.model import Culprit, Result, Scope, Subject, Verdict


def result(check: str, scope: Scope, node: str, gpu: int | None = None, **more: Any) -> Result:
    words = {"because": f"{check} is bad", "remedy": f"fix {check}", "verdict": Verdict.FAIL, **more}
    return Result(check, scope, Subject(node, gpu), **words)


def places(found: list[Culprit]) -> list[tuple[str, str, int | None, str | None]]:
    return [(one.scope, one.node, one.gpu, one.peer) for one in found]


WRONG_SUMS = [result("all-reduce", Scope.GROUP, f"gpu0{number}", joint=True) for number in range(1, 4)]
SURE_NODE = LocatedFault("node", ("gpu03",), "slow with every partner")
SURE_LINK = LocatedFault("link", ("gpu01", "gpu02"), "only this pair is slow")
UNSURE = LocatedFault("node", ("gpu01",), "too close to the limit", sure=False)


def test_a_sum_that_is_wrong_on_every_rank_is_the_nodes_that_isolation_names() -> None:
    found = find_culprits(WRONG_SUMS, IsolationResult((SURE_NODE,)), group_is_slow=False)
    assert places(found) == [("node", "gpu03", None, None)]
    assert found[0].reasons == (
        "all-reduce: all-reduce is bad", "pair-bandwidth: slow with every partner",
    )  # fmt: skip
    one = find_culprits(WRONG_SUMS[:1], IsolationResult((SURE_NODE,)), group_is_slow=False)
    assert [culprit.node for culprit in one] == ["gpu01", "gpu03"]


def test_what_several_nodes_fail_by_themselves_is_theirs_beside_a_slow_one() -> None:
    own = [replace(one, check="training-tf32", joint=False) for one in WRONG_SUMS[:2]]
    found = find_culprits([*own, *WRONG_SUMS], IsolationResult((SURE_NODE,)), group_is_slow=True)
    assert [culprit.node for culprit in found] == ["gpu01", "gpu02", "gpu03"]
    assert [culprit.because for culprit in found[:2]] == ["training-tf32: all-reduce is bad"] * 2


@pytest.mark.parametrize(
    "isolated", [None, IsolationResult((UNSURE,)), IsolationResult((SURE_LINK,))], ids=str
)
def test_a_sum_that_is_wrong_on_every_rank_is_every_nodes_where_no_node_is_known(
    isolated: IsolationResult | None,
) -> None:
    found = find_culprits(WRONG_SUMS, isolated, group_is_slow=False)
    assert [one.node for one in found if one.scope == "node"] == ["gpu01", "gpu02", "gpu03"]
    linked = isolated is not None and bool(isolated.sure)
    assert [one.peer for one in found if one.scope == "link"] == ["gpu02"] * linked


@pytest.mark.parametrize("scope", [Scope.GROUP, Scope.HOST])
def test_what_is_between_two_nodes_is_their_link_and_told_once(scope: Scope) -> None:
    both = [
        result("same", scope, "gpu02", between="gpu01"), result("same", scope, "gpu01", between="gpu02"),
        result("other", scope, "gpu02", between="gpu01", remedy="fix same"),
    ]  # fmt: skip
    (found,) = find_culprits(both, None, group_is_slow=False)
    assert places([found]) == [("link", "gpu01", None, "gpu02")]
    assert found.reasons == ("same: same is bad", "other: other is bad") and found.remedy == "fix same"
    assert found.because == "same: same is bad; also: other"
    (alone,) = find_culprits(both[:2], None, group_is_slow=False)
    assert (alone.because, alone.reasons) == ("same: same is bad", ())


def test_a_reason_that_is_uncertain_is_named_by_what_suspects_it() -> None:
    fails = result("xid", Scope.HOST, "gpu01")
    (found,) = find_culprits([fails], IsolationResult((UNSURE,)), group_is_slow=True)
    assert found.because == "xid: xid is bad; also: suspected by fault isolation"
    assert found.remedy == "fix xid"
    assert find_culprits([], IsolationResult((UNSURE,)), group_is_slow=False) == []
    (alone,) = find_culprits([], IsolationResult((UNSURE,)), group_is_slow=True)
    assert alone.because == f"{CANNOT_TELL}: too close to the limit" and alone.remedy == UNSURE_REMEDY


def test_isolation_has_the_remedy_of_pairs_that_failed_or_its_own() -> None:
    passes = Result(
        "pair-bandwidth", Scope.PAIR, Subject("gpu01", None, "gpu02"), Verdict.PASS, remedy="none"
    )
    fails = replace(passes, verdict=Verdict.FAIL, remedy="check the cable", because="slow")
    other = replace(fails, check="pair-latency", remedy="something else")
    named = IsolationResult((SURE_NODE, SURE_LINK, UNSURE), remedy="its own")
    found = find_culprits([passes, other, fails], named, group_is_slow=True)
    assert {(one.scope, one.node): one.remedy for one in found} == {
        ("node", "gpu03"): "check the cable",
        ("link", "gpu01"): "check the cable",
        ("node", "gpu01"): "its own",
    }
    assert {one.remedy for one in find_culprits([passes, other], named, True)} == {"", "its own"}
    (first, second) = find_culprits([], make_unmeasured_result(("a", "b"), "no time"), group_is_slow=True)
    assert first.because == second.because == f"{CANNOT_TELL}: the pairs could not be measured: no time"
    assert first.remedy == NOT_MEASURED_REMEDY
    assert len(find_culprits([], make_two_node_result(("a", "b")), group_is_slow=True)) == 2


def test_what_fails_differently_on_every_gpu_is_told_once_and_of_one_gpu_it_is_that_gpus() -> None:
    every = [result("ecc", Scope.GPU, "gpu01", gpu, because=f"{gpu} errors") for gpu in range(3)]
    (whole,) = find_culprits(every, None, group_is_slow=False)
    assert places([whole]) == [("node", "gpu01", None, None)]
    assert (whole.because, whole.reasons) == ("ecc: on every GPU: 0 errors", ())
    assert places(find_culprits(every[:1], None, group_is_slow=False)) == [("gpu", "gpu01", 0, None)]
    passes = replace(every[2], verdict=Verdict.PASS)
    some = find_culprits([*every[:2], passes], None, group_is_slow=False)
    assert places(some) == [("gpu", "gpu01", 0, None), ("gpu", "gpu01", 1, None)]
    both = find_culprits([*every, result("xid", Scope.GPU, "gpu01", 2)], None, group_is_slow=False)
    assert places(both) == [("node", "gpu01", None, None), ("gpu", "gpu01", 2, None)]
    hosts = [result("disk", Scope.HOST, "gpu01"), result("disk", Scope.HOST, "gpu02")]
    assert [one.because for one in find_culprits(hosts, None, False)] == ["disk: disk is bad"] * 2


def test_a_gpu_whose_place_is_unknown_is_its_nodes() -> None:
    lost = result("gpu-present", Scope.GPU, "gpu01", 3, place_unknown=True)
    passes = result("gpu-present", Scope.GPU, "gpu01", 2, verdict=Verdict.PASS)
    assert places(find_culprits([lost, passes], None, False)) == [("node", "gpu01", None, None)]
    known = replace(lost, place_unknown=False)
    assert places(find_culprits([known, passes], None, False)) == [("gpu", "gpu01", 3, None)]


def test_a_link_that_fails_is_its_gpus_where_the_gpu_failed_too() -> None:
    links = [result("nvlink", Scope.LINK, "gpu01", gpu) for gpu in (2, 3)]
    passes = result("nvlink", Scope.LINK, "gpu01", 1, verdict=Verdict.PASS)
    gpu = result("xid", Scope.GPU, "gpu01", 3)
    rest = result("xid", Scope.GPU, "gpu01", 1, verdict=Verdict.PASS)
    found = find_culprits([*links, passes, gpu, rest], None, group_is_slow=False)
    assert places(found) == [("gpu", "gpu01", 3, None), ("link", "gpu01", 2, None)]
    assert found[0].reasons == ("nvlink: nvlink is bad", "xid: xid is bad")


def test_culprits_stand_by_kind_node_and_number() -> None:
    some = [
        result("a", Scope.LINK, "gpu01", 5), result("a", Scope.LINK, "gpu01", 0),
        result("a", Scope.LINK, "gpu01", 1, verdict=Verdict.PASS),
        result("b", Scope.HOST, "gpu01", between="gpu03"), result("b", Scope.HOST, "gpu01", between="gpu02"),
        result("c", Scope.HOST, "gpu02"),
    ]  # fmt: skip
    assert places(find_culprits(some, None, group_is_slow=False)) == [
        ("node", "gpu02", None, None), ("link", "gpu01", None, "gpu02"), ("link", "gpu01", None, "gpu03"),
        ("link", "gpu01", 0, None), ("link", "gpu01", 5, None),
    ]  # fmt: skip


def asks(node: str, verdict: Verdict, server: str = "registry01", check: str = "registry") -> Result:
    return result(check, Scope.HOST, node, verdict=verdict, server=server)


FAILS = [asks("gpu01", Verdict.FAIL), asks("gpu02", Verdict.FAIL)]
ALL = "registry: no node got an answer (gpu01, gpu02): registry is bad"
ONE = f"{CANNOT_TELL}: only one node got an answer, not gpu01, gpu02: registry is bad"


@pytest.mark.parametrize(
    ("more", "because"),
    [
        ([], ALL),
        ([asks("gpu03", Verdict.NOT_RUN)], ALL),
        ([asks("gpu03", Verdict.PASS, check="name-service")], ALL),
        ([asks("gpu03", Verdict.PASS)], ONE),
    ],
    ids=["no node", "not run", "another check", "one node"],
)
def test_a_server_is_named_for_what_its_own_check_found(more: list[Result], because: str) -> None:
    (found,) = find_culprits([*FAILS, *more], None, group_is_slow=False)
    assert (found.node, found.because) == ("registry01", because)


def test_a_server_that_answers_two_nodes_works_and_one_that_failed_one_node_is_suspected_with_it() -> None:
    works = [asks("gpu03", Verdict.PASS), asks("gpu04", Verdict.PASS)]
    assert [one.node for one in find_culprits([*FAILS, *works], None, False)] == ["gpu01", "gpu02"]
    found = find_culprits(FAILS[:1], None, group_is_slow=False)
    assert {one.node: one.because for one in found} == {
        "gpu01": "registry: registry is bad",
        "registry01": f"{CANNOT_TELL}: only gpu01 queried it: registry is bad",
    }
    assert [one.node for one in find_culprits([FAILS[0], works[0]], None, False)] == ["gpu01"]
    nameless = [replace(one, server="") for one in FAILS]
    assert [one.node for one in find_culprits(nameless, None, False)] == ["gpu01", "gpu02"]
