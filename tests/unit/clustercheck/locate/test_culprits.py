"""Who is to blame: rounds, pairs, and the table of culprits."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.examples import examples

from clustercheck.checks import registry_reachable
from clustercheck.checks.all import BY_ID
from clustercheck.checks.base import evaluate
from clustercheck.checks.support import seeding
from clustercheck.checks.support.seeding_gpus import Seeds
from clustercheck.expect.judge import judge
from clustercheck.launch.model import RankOutcome
from clustercheck.locate.conclusion import ALL_FAST
from clustercheck.locate.culprits import find_culprits, make_two_node_result
from clustercheck.locate.faults import CANNOT_TELL, IsolationResult, LocatedFault
from clustercheck.locate.pairs import Pair, find_better_gbps, sort_pair
from clustercheck.locate.rounds import round_robin
from clustercheck.locate.search import Search
from clustercheck.locate.trials import MAX_ALL_PAIRS_NODES, GroupLayout, TrialLimits
from clustercheck.model import Figure, Limit, Result, Scope, Subject, Verdict
from clustercheck.samples import sample


@given(st.integers(2, 60))
@examples(30)
def test_a_round_robin_has_every_pair_once_and_no_member_twice_per_round(count: int) -> None:
    rounds = round_robin(count)
    assert len(rounds) == count - 1 + count % 2
    for pairs in rounds:
        members = [member for pair in pairs for member in pair]
        assert len(members) == len(set(members)) and len(pairs) == count // 2
    assert sorted(pair for pairs in rounds for pair in pairs) == list(combinations(range(count), 2))


def test_of_one_there_is_no_round_and_of_many_the_first_ones() -> None:
    assert round_robin(1) == []
    assert len(round_robin(64, 20)) == 20


def told(nodes: list[str], slow_nodes: set[str], slow_links: set[Pair]) -> IsolationResult:
    """What a search of these nodes ends with; every measure is up to 15 % from the middle."""
    noise = random.Random(7)  # noqa: S311
    search = Search(GroupLayout(tuple(nodes)))
    while search.result is None:
        found = {}
        for trial in search.next_round():
            pairs = {sort_pair(a, b) for a, b in combinations(trial.nodes, 2)}
            slow = bool(set(trial.nodes) & slow_nodes or pairs & slow_links)
            found[trial] = (0.1 if slow else 1.0) * noise.uniform(0.85, 1.15)
        search.add_results(found)
    return search.result


def named(isolated: IsolationResult) -> set[tuple[str, tuple[str, ...]]]:
    """Who is named certainly."""
    return {(one.scope, one.nodes) for one in isolated.sure}


def names(count: int) -> list[str]:
    return [f"gpu{n:02d}" for n in range(1, count + 1)]


@given(st.integers(4, 24), st.data())
@examples(80)
def test_only_the_slow_nodes_are_found(count: int, data: st.DataObject) -> None:
    nodes = names(count)
    slow = set(
        data.draw(st.lists(st.sampled_from(nodes), min_size=1, max_size=min(3, count - 3), unique=True))
    )
    isolated = told(nodes, slow, set())
    assert named(isolated) == {("node", (node,)) for node in slow}
    assert len(isolated.faults) == len(slow)


@given(st.integers(4, MAX_ALL_PAIRS_NODES), st.data())
@examples(80)
def test_a_slow_link_and_a_slow_node_among_few_are_both_found(count: int, data: st.DataObject) -> None:
    node, a, b = data.draw(st.permutations(names(count)))[:3]
    link = sort_pair(a, b)
    assert named(told(names(count), {node}, {link})) == {("node", (node,)), ("link", link)}


def test_three_nodes_tell_a_node_from_a_link() -> None:
    assert named(told(names(3), {"gpu02"}, set())) == {("node", ("gpu02",))}
    link = ("gpu01", "gpu03")
    assert named(told(names(3), set(), {link})) == {("link", link)}


def test_an_undecided_fault_is_reported_as_such() -> None:
    search = Search(GroupLayout(tuple(names(3))), TrialLimits(0.5))
    while search.result is None:
        search.add_results(dict.fromkeys(search.next_round(), 0.1))
    (everyone,) = search.result.faults
    assert everyone.nodes == tuple(names(3)) and not everyone.sure
    assert "every pair is slow" in everyone.because
    fine = told(names(3), set(), set())
    assert fine.faults == () and fine.because == ALL_FAST


def test_what_the_better_pairs_reach_is_not_what_most_do() -> None:
    assert find_better_gbps([]) == 0.0
    assert find_better_gbps([2.0, 0.1, 0.1]) == 2.0


def result(
    check: str, scope: Scope, node: str | None, gpu: int | None = None, verdict: Verdict = Verdict.FAIL
) -> Result:
    return Result(check, scope, Subject(node, gpu), verdict, because=f"{check} is bad", remedy=f"fix {check}")


def test_each_culprit_is_named_once_with_every_reason() -> None:
    found = find_culprits(
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
    assert found[0].because == "node-reachable: node-reachable is bad; also: all-reduce"
    assert found[0].reasons == ("node-reachable: node-reachable is bad", "all-reduce: all-reduce is bad")
    assert found[2].because == "nvlink: nvlink is bad" and found[2].reasons == ()
    assert found[1].remedy == "fix xid"


def test_a_culprits_line_is_one_line_however_long_its_reasons_are() -> None:
    long = replace(result("xid", Scope.GPU, "gpu02", 3), because="bad " * 200 + "\nand so on")
    others = [result(f"check-{number}", Scope.GPU, "gpu02", 3) for number in range(7)]
    passes = result("xid", Scope.GPU, "gpu02", 1, Verdict.PASS)
    (found,) = find_culprits([long, passes, *others], None, False)
    assert "\n" not in found.because and len(found.because) < 300
    assert found.because.endswith("; also: check-0, check-1, check-2, check-3, 3 more")
    assert len(found.reasons) == 8 and found.reasons[0].endswith("and so on")
    (alone,) = find_culprits([long, passes], None, False)
    assert "characters omitted" in alone.because and alone.reasons[0].endswith("and so on")


def test_what_fails_on_every_gpu_of_a_node_is_the_nodes() -> None:
    (found,) = find_culprits([result("nvlink", Scope.LINK, "gpu01", gpu) for gpu in range(8)], None, False)
    assert (found.scope, found.node, found.gpu) == ("node", "gpu01", None)
    assert "on every GPU" in found.because


def test_pairs_speak_only_of_a_group_that_is_slow() -> None:
    nobody = IsolationResult(because=ALL_FAST)
    assert find_culprits([], nobody, group_is_slow=False) == []
    (switch,) = find_culprits([], nobody, group_is_slow=True)
    assert (switch.scope, switch.node) == ("switch", "")
    assert switch.because.startswith(CANNOT_TELL)
    both = find_culprits([], make_two_node_result(("gpu01", "gpu02")), group_is_slow=True)
    assert [c.node for c in both] == ["gpu01", "gpu02"]
    assert all("either may be slow" in c.because and "third, known-good node" in c.remedy for c in both)


def test_a_part_that_a_search_names_has_its_own_remedy_and_a_node_that_of_the_pairs() -> None:
    isolated = IsolationResult((
        LocatedFault("node", ("gpu01",), "slow with every partner (gpu02, gpu03)"),
        LocatedFault("gpu", ("gpu02",), "GPU 3 is slow, the others are not", gpu=3),
        LocatedFault("rail", ("gpu03",), "rail 5 is slow", rail=5),
    ))  # fmt: skip
    pair = Result("pair-bandwidth", Scope.PAIR, Subject("gpu01", None, "gpu02"), Verdict.FAIL, because="slow")
    found = find_culprits([replace(pair, remedy="Check the cable.")], isolated, group_is_slow=True)
    assert [(c.scope, c.node, c.gpu, c.peer) for c in found] == [
        ("node", "gpu01", None, None), ("gpu", "gpu02", 3, None), ("rail", "gpu03", None, "rail 5"),
    ]  # fmt: skip
    assert found[0].because == "pair-bandwidth: slow with every partner (gpu02, gpu03)"
    assert found[0].remedy == "Check the cable."
    assert "PCIe" in found[1].remedy and "adapter" in found[2].remedy


@pytest.mark.parametrize("verdict", [Verdict.PASS, Verdict.NOT_RUN, Verdict.EXCLUDED])
def test_only_failures_have_culprits(verdict: Verdict) -> None:
    assert find_culprits([result("xid", Scope.GPU, "gpu01", 0, verdict)], None, False) == []


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
            server="registry01" if why and not why.startswith("?") else "",
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
def test_a_server_that_answers_no_node_is_the_culprit(said: dict[str, str], blamed: list[str]) -> None:
    found = find_culprits(registry_results(**said), None, group_is_slow=False)
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
    (culprit,) = find_culprits(failed, None, group_is_slow=False)
    assert culprit.remedy == "Name a server. Free space."
    assert culprit.because == "name-service: bad; also: disk-space, all-reduce"
    assert culprit.reasons == ("name-service: bad", "disk-space: bad", "all-reduce: bad")
    (alone,) = find_culprits(failed[2:], None, group_is_slow=False)
    assert alone.remedy == "Look at the log."


def test_a_slow_gpus_line_is_the_check_that_is_slow_in_the_most_quantities() -> None:
    """Its burn-in stands first in the report and has one precision; matrix products have five."""
    slow = seeding.chain(Seeds("gpu_burn").scaled("gpu02", 5, 0.6), Seeds("gpu_gemm").scaled("gpu02", 5, 0.6))
    evidence = slow(sample.healthy())
    results = [result for check in ("gpu-burn", "gpu-gemm") for result in evaluate(BY_ID[check], evidence)]
    (culprit,) = find_culprits(results, None, group_is_slow=False)
    assert culprit.because.startswith("gpu-gemm: 38 to 40 % slower in all five precisions than "), culprit
    assert culprit.because.endswith("; also: gpu-burn")
    assert [reason.partition(":")[0] for reason in culprit.reasons] == ["gpu-gemm", "gpu-burn"]
    assert culprit.remedy == BY_ID["gpu-gemm"].remedy


def slow_in(check: str, metrics: list[str], unit: str = "GB/s") -> Result:
    figures = tuple(judge(Figure(name, 60.0, unit, floor=Limit(100.0, "the profile"))) for name in metrics)
    return replace(result(check, Scope.GPU, "gpu02", 3), figures=figures)


@pytest.mark.parametrize(
    ("failed", "order"),
    [
        ([slow_in("a", ["one"]), slow_in("b", ["one", "two"])], ["b", "a"]),
        ([slow_in("a", ["one", "one"]), slow_in("b", ["one", "two"])], ["b", "a"]),
        ([slow_in("a", ["one"]), slow_in("b", ["two"])], ["a", "b"]),
        ([slow_in("a", ["one", "two"]), result("b", Scope.GPU, "gpu02", 3)], ["b", "a"]),
        ([slow_in("a", ["one", "two"]), slow_in("b", ["one"], unit="links")], ["b", "a"]),
    ],
    ids=["more quantities", "one quantity twice", "equals", "another failure", "no speed"],
)
def test_reasons_begin_with_what_may_be_the_cause_then_with_what_says_most(
    failed: list[Result], order: list[str]
) -> None:
    (culprit,) = find_culprits(failed, None, group_is_slow=False)
    assert [reason.partition(":")[0] for reason in culprit.reasons] == order
    assert culprit.remedy == f"fix {order[0]}"


def registry_culprits(*fail: str, nodes: int = 3) -> list[tuple[str, bool]]:
    """Who is named, and whether surely, where the registry answers all nodes but these."""
    evidence = registry_reachable.refused(*fail)(sample.healthy(nodes))
    found = find_culprits(evaluate(BY_ID["registry-reachable"], evidence), None, group_is_slow=False)
    return [(culprit.node, CANNOT_TELL not in culprit.because) for culprit in found]


def test_one_node_that_says_the_registry_answers_does_not_turn_its_failure_on_the_others() -> None:
    assert registry_culprits("gpu01", "gpu02", "gpu03") == [("registry01", True)]
    assert registry_culprits("gpu01", "gpu02") == [("registry01", False)]
    assert registry_culprits("gpu01") == [("gpu01", True)]
    assert registry_culprits("gpu01", "gpu02", nodes=4) == [("gpu01", True), ("gpu02", True)]


def test_no_node_names_the_registry_that_failed() -> None:
    named = seeding.edit("gpu02", lambda raw: raw["registry"].update(host="gpu01"))
    evidence = seeding.chain(registry_reachable.refused("gpu02"), named)(sample.healthy())
    results = evaluate(BY_ID["registry-reachable"], evidence)
    assert [result.verdict for result in results] == [Verdict.PASS, Verdict.NOT_RUN, Verdict.PASS]
    assert find_culprits(results, None, group_is_slow=False) == []


def test_no_name_that_a_node_chooses_for_a_part_of_its_evidence_names_another_node() -> None:
    """InfoROM versions and what a rank says of its patterns have the node's own names."""
    chosen = ("between", "server", "place_unknown", "joint")

    def inforom(raw: seeding.Raw) -> None:
        names = "".join(f"<{name}>gpu03</{name}>" for name in chosen)
        told = raw["nvidia_smi"]["stdout"]
        raw["nvidia_smi"]["stdout"] = told.replace(
            "<inforom_version>", f"<inforom_version>{names}<image>corrupt</image>", 1
        )

    def patterns(rank: RankOutcome, verdict: seeding.Raw) -> None:
        if (rank.node, rank.gpu) == ("gpu02", 0):
            verdict["pattern_test"].update({"errors": 1, **dict.fromkeys(chosen, "gpu03")})

    lying = seeding.chain(seeding.edit("gpu02", inforom), seeding.verdicts("gpu_pattern", patterns))(
        sample.healthy()
    )
    for check in ("gpu-inforom", "gpu-memory-pattern"):
        (culprit,) = find_culprits(evaluate(BY_ID[check], lying), None, group_is_slow=False)
        assert (culprit.scope, culprit.node, culprit.gpu, culprit.peer) == ("gpu", "gpu02", 0, None)
