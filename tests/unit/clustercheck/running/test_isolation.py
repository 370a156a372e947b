"""The search as launches of a job, against a launcher that answers from a simulated fabric."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from tests.support.simulated_fabric import PAIR_GBPS, QUIET, Fabric, Fault

from clustercheck.checks.all_reduce import JOB as GROUP_JOB
from clustercheck.checks.base import evaluate
from clustercheck.checks.pairs import CHECK
from clustercheck.evidence.cluster import Evidence
from clustercheck.evidence.rails import adapters_of
from clustercheck.launch.model import JobOutcome, RankOutcome, RankState
from clustercheck.locate.culprits import NOT_MEASURED_REMEDY
from clustercheck.locate.faults import IsolationResult
from clustercheck.locate.launches import IB_HCA, RankLayout, plan_launches
from clustercheck.locate.trials import GroupLayout, Trial, make_pair_trial
from clustercheck.model import Subject, Verdict
from clustercheck.running import isolation
from clustercheck.running.isolation import RankEnvironment, Rounds
from clustercheck.samples import sample, smi

GPUS = 8
Change = Callable[[Trial, dict[str, Any]], None]


def nodes_of(count: int) -> tuple[str, ...]:
    return tuple(f"gpu{n:02d}" for n in range(1, count + 1))


def outcome_of(seats: Sequence[tuple[str, int | None]], verdicts: Sequence[Mapping[str, Any]]) -> JobOutcome:
    ranks = tuple(
        RankOutcome(number, node, RankState.OK, gpu=gpu, verdict=verdict)
        for number, ((node, gpu), verdict) in enumerate(zip(seats, verdicts, strict=True))
    )
    return JobOutcome("pairs", ranks, 3.0)


def cluster(count: int, gpus: int, rails: int) -> Evidence:
    """A group that has run; with GPUs over InfiniBand, a port for each rail (NIC0 with the first GPUs)."""
    evidence = sample.healthy(count)
    if not gpus:
        return replace(evidence, jobs={GROUP_JOB: evidence.jobs[GROUP_JOB]})
    nodes = {}
    for name, node in evidence.nodes.items():
        ports = [
            {"device": f"mlx5_{n}", "port": "1", "state": "4: ACTIVE", "rate": "200 Gb/sec (4X HDR)"}
            for n in range(rails)
        ]
        topology = sample.program(topology_text(gpus, rails))
        nodes[name] = replace(node, raw={**node.raw, "rdma": ports, "topology": topology})
    seats = [(node, gpu) for node in nodes for gpu in range(gpus)]
    said = [{"backend": "nccl", "interface": "eth0"}] * len(seats)
    return replace(evidence, nodes=nodes, jobs={GROUP_JOB: outcome_of(seats, said)})


def topology_text(gpus: int, rails: int) -> str:
    """`nvidia-smi topo -m` with an adapter next to each run of GPUs."""
    names = [*(f"GPU{n}" for n in range(gpus)), *(f"NIC{n}" for n in range(rails))]

    def cell(a: str, b: str) -> str:
        if a == b:
            return " X "
        if a[:3] == b[:3]:
            return "NV12" if a.startswith("GPU") else "SYS"
        gpu, nic = (int(name[3:]) for name in sorted((a, b)))
        return "PXB" if gpu * rails // gpus == nic else "SYS"

    rows = ["\t".join([a, *(cell(a, b) for b in names)]) for a in names]
    legend = [f"  NIC{n}: mlx5_{n}" for n in range(rails)]
    return "\n".join(["\t".join(["", *names]), *rows, "", "NIC Legend:", "", *legend, ""])


class Cluster:
    """Launches trials on a fabric with faults. ``change`` spoils what a trial's ranks say."""

    def __init__(
        self,
        count: int,
        *faults: Fault,
        gpus: int = 0,
        rails: int = 1,
        change: Change = lambda trial, point: None,
        fail: Callable[[int, Sequence[str]], str] = lambda launch, nodes: "",
    ) -> None:
        self.evidence = cluster(count, gpus, rails)
        self.layout = GroupLayout(nodes_of(count), gpus or 1, rails)
        self.gpus, self.change, self.fail = gpus, change, fail
        self.fabric = Fabric(self.layout, faults, QUIET, random.Random(1))  # noqa: S311
        self.launched: list[tuple[tuple[str, ...], Rounds, RankEnvironment]] = []
        self.events: list[Mapping[str, Any]] = []

    def __call__(
        self, nodes: Sequence[str], rounds: Rounds, environment: RankEnvironment
    ) -> JobOutcome | str:
        self.launched.append((tuple(nodes), rounds, environment))
        seats = [(node, gpu) for node in nodes for gpu in (range(self.gpus) if self.gpus else [None])]
        said: list[list[dict[str, Any]]] = [[] for _ in seats]
        for number, asked in enumerate(rounds):
            for ranks in asked:
                trial = self.trial([seats[rank] for rank in ranks], environment)
                point = {"ranks": ranks, "round": number, "correct": True}
                point["busbw_gbps"] = self.fabric.measure(trial) * (2.0 / PAIR_GBPS if not self.gpus else 1)
                self.change(trial, point)
                for rank in ranks:
                    said[rank].append(point)
        outcome = outcome_of(seats, [{"trials": mine} for mine in said])
        node = self.fail(len(self.launched), nodes)
        if not node:
            return outcome
        ranks = tuple(
            replace(r, state=RankState.CRASHED if r.node == node else RankState.KILLED, verdict=None,
                    because="killed by SIGBUS")
            for r in outcome.ranks
        )  # fmt: skip
        return replace(outcome, ranks=ranks, first_failure=next(r for r in ranks if r.node == node))

    def trial(self, seats: Sequence[tuple[str, int | None]], environment: RankEnvironment) -> Trial:
        """What these ranks measure together."""
        nodes = tuple(dict.fromkeys(node for node, _ in seats))
        if len(seats) == len(nodes) * (self.gpus or 1):
            return make_pair_trial(*nodes) if len(nodes) == 2 else Trial(nodes)
        gpu = seats[0][1]
        assert gpu is not None and {each for _, each in seats} == {gpu}
        held = {environment.get(seat, {}).get(IB_HCA, "") for seat in seats}
        assert len(held) == 1
        (adapter,) = held
        rail = int(adapter.removeprefix("=mlx5_").removesuffix(":1")) if adapter else self.layout.rail_of(gpu)
        return make_pair_trial(*nodes, gpu, rail)

    def search(self, **more: Any) -> tuple[Evidence, IsolationResult]:
        evidence, isolated = isolation.isolate_fault(
            self.evidence, self, self.events.append, launch_s=150.0, **more
        )
        assert isolated is not None
        return evidence, isolated


def named(isolated: IsolationResult) -> set[tuple[str, tuple[str, ...], int | None, int | None]]:
    assert all(one.sure for one in isolated.faults), isolated
    return {one.place[:4] for one in isolated.faults}


NODE = Fault("node", ("gpu02",), 0.3)
LINK = Fault("link", ("gpu01", "gpu03"), 0.3)


@pytest.mark.parametrize("count", range(3, 9))
@pytest.mark.parametrize("gpus", [0, GPUS])
def test_a_slow_node_is_named_in_few_launches(count: int, gpus: int) -> None:
    played = Cluster(count, NODE, gpus=gpus)
    evidence, isolated = played.search()
    assert named(isolated) == {("node", ("gpu02",), None, None)}
    assert len(played.launched) <= (3 if gpus else 2)
    failed = [r.subject for r in evaluate(CHECK, evidence) if r.verdict is Verdict.FAIL]
    assert len(failed) == count - 1 and all("gpu02" in (s.node, s.peer) for s in failed)


@pytest.mark.parametrize("count", range(3, 9))
def test_a_slow_link_is_named_wherever_it_is(count: int) -> None:
    played = Cluster(count, LINK)
    assert named(played.search()[1]) == {("link", ("gpu01", "gpu03"), None, None)}
    assert len(played.launched) <= 3


def test_two_faults_are_both_named() -> None:
    link = Fault("link", ("gpu03", "gpu04"), 0.3)
    found = named(Cluster(8, Fault("node", ("gpu07",), 0.2), link).search()[1])
    assert found == {("node", ("gpu07",), None, None), ("link", ("gpu03", "gpu04"), None, None)}
    many = Cluster(40, Fault("node", ("gpu07",), 0.2), Fault("gpu", ("gpu33",), 0.2, gpu=5), gpus=GPUS)
    found = named(many.search()[1])
    assert found == {("node", ("gpu07",), None, None), ("gpu", ("gpu33",), 5, None)}
    assert len(many.launched) <= 6


@pytest.mark.parametrize("count", [3, 8, 20])
def test_a_slow_gpu_of_eight_is_named_by_its_number(count: int) -> None:
    played = Cluster(count, Fault("gpu", ("gpu02",), 0.3, gpu=3), gpus=GPUS)
    evidence, isolated = played.search()
    assert named(isolated) == {("gpu", ("gpu02",), 3, None)}
    assert "adapter" not in isolated.faults[0].because
    pairs = {(r.subject.node, r.subject.peer) for r in evaluate(CHECK, evidence)}
    assert all("gpu02" in pair for pair in evidence.pairs.bandwidths if evidence.pairs.bandwidths[pair] < 100)
    assert set(evidence.pairs.bandwidths) == pairs  # those of one GPU each are not pairs of nodes


def test_with_rails_a_gpu_is_distinguished_from_its_adapter_by_crossing() -> None:
    for fault in (Fault("gpu", ("gpu02",), 0.3, gpu=3), Fault("rail", ("gpu02",), 0.3, rail=3)):
        played = Cluster(6, fault, gpus=GPUS, rails=GPUS)
        assert named(played.search()[1]) == {(fault.kind, ("gpu02",), fault.gpu, fault.rail)}
        held = [environment for *_, environment in played.launched if environment]
        assert held and held[0]["gpu02", 3] == {IB_HCA: "=mlx5_3:1"}
        assert not played.launched[0][2]


@pytest.mark.parametrize("topology", [smi.topology_text(ports=()), "fewer GPUs take part than there are"])
def test_where_the_rails_are_not_known_the_adapter_is_suspected_with_its_gpu(topology: str) -> None:
    played = Cluster(4, Fault("gpu", ("gpu02",), 0.3, gpu=3), gpus=GPUS, rails=4)
    for node in played.evidence.nodes.values():
        node.raw["topology"]["stdout"] = topology if "\t" in topology else topology_text(16, 4)
    played.layout = replace(played.layout, rails=1)
    _, isolated = played.search()
    assert isolated.faults[0].gpu == 3
    assert isolated.faults[0].because.endswith("or the adapter it uses")


def test_over_rdma_a_quarter_less_is_slow_and_over_sockets_it_is_how_they_vary() -> None:
    fault = Fault("node", ("gpu02",), 0.75)
    evidence, isolated = Cluster(6, fault, gpus=GPUS).search()
    assert named(isolated) == {("node", ("gpu02",), None, None)}
    assert {r.subject for r in evaluate(CHECK, evidence) if r.verdict is Verdict.FAIL} == {
        Subject(*pair)
        for pair in [("gpu01", None, "gpu02"), *(("gpu02", None, f"gpu0{n}") for n in range(3, 7))]
    }
    evidence, isolated = Cluster(6, fault).search()
    assert not isolated.faults
    assert {r.verdict for r in evaluate(CHECK, evidence)} == {Verdict.PASS}


def in_leaves(evidence: Evidence, size: int) -> Evidence:
    """With so many nodes on each leaf switch, as the site declares it."""
    nodes = tuple(
        replace(node, leaf_switch=f"leaf{n // size + 1:02d}") for n, node in enumerate(evidence.spec.nodes)
    )
    return replace(evidence, spec=replace(evidence.spec, nodes=nodes))


@pytest.mark.parametrize("kind", ["switch", "uplink"])
def test_a_bad_block_is_its_declared_leaf_switch(kind: str) -> None:
    nodes = nodes_of(16)[4:8]
    played = Cluster(16, Fault(kind, nodes, 0.3), gpus=GPUS)
    unknown = {(one.scope, one.sure, len(one.nodes)) for one in played.search()[1].faults}
    assert unknown == {("switch", False, 4) if kind == "uplink" else ("node", True, 1)}
    played.evidence = in_leaves(played.evidence, 4)
    (one,) = played.search()[1].faults
    assert (one.scope, one.nodes, one.block, one.sure) == ("switch", nodes, "leaf02", True)


def test_wrong_sums_are_a_nodes_with_which_they_are_wrong() -> None:
    def spoil(trial: Trial, point: dict[str, Any]) -> None:
        point["correct"] = "gpu03" not in trial.nodes

    evidence, isolated = Cluster(4, change=spoil).search()
    assert named(isolated) == {("node", ("gpu03",), None, None)}
    assert evidence.pairs.bandwidths["gpu01", "gpu03"] == 0.0


def test_a_node_that_crashes_in_the_first_launch_is_suspected_alone() -> None:
    played = Cluster(4, NODE, fail=lambda launch, nodes: "gpu03")
    evidence, isolated = played.search()
    (failed,) = isolated.faults
    assert failed.nodes == ("gpu03",) and not failed.sure
    assert failed.because == "the pairs could not be measured: killed by SIGBUS (on gpu03)"
    assert isolated.remedy == NOT_MEASURED_REMEDY
    results = evaluate(CHECK, evidence)
    assert len(results) == 6 and {r.verdict for r in results} == {Verdict.NOT_RUN}
    assert all("killed by SIGBUS" in r.because for r in results)


def test_a_node_that_crashes_later_leaves_what_was_measured() -> None:
    def fail(launch: int, nodes: Sequence[str]) -> str:
        return "gpu02" if launch == 2 else ""

    evidence, isolated = Cluster(4, NODE, fail=fail).search()
    assert named(isolated) == {("node", ("gpu02",), None, None)}
    assert isolated.because == "fault isolation stopped early: killed by SIGBUS (on gpu02)"
    assert {r.verdict for r in evaluate(CHECK, evidence)} == {Verdict.PASS, Verdict.FAIL}
    assert not evidence.jobs["pairs"].good
    _, many = Cluster(20, NODE, fail=fail).search()
    (one,) = many.faults
    assert one.nodes == ("gpu02",) and not one.sure and "stopped early: killed by SIGBUS" in one.because


def test_ranks_that_are_not_those_of_the_group_are_not_believed() -> None:
    class Fewer(Cluster):
        def __call__(self, *asked: Any) -> JobOutcome | str:
            outcome = super().__call__(*asked)
            assert isinstance(outcome, JobOutcome)
            moved = [replace(rank, gpu=(rank.gpu or 0) + (rank.node == "gpu02")) for rank in outcome.ranks]
            return replace(outcome, ranks=tuple(moved))

    _, isolated = Fewer(3, NODE, gpus=2).search()
    assert not isolated.sure and "are not those of the group" in isolated.faults[0].because


def test_the_cost_is_reported_beforehand_and_the_time_limit_holds() -> None:
    played = Cluster(8, NODE)
    played.search()
    first, last = played.events[0], played.events[-1]
    assert (first["type"], first["rounds"], first["launches"]) == ("search", 21, isolation.MAX_LAUNCHES)
    assert first["limit_s"] == 450.0 and first["nodes"] == list(nodes_of(8))
    assert last["type"] == "search_finished" and last["launches"] == len(played.launched) == 2
    assert last["rounds"] == sum(len(rounds) for _, rounds, _ in played.launched) <= first["rounds"]

    times = iter([0.0, 10.0, 301.0])
    late = Cluster(20, NODE)
    _, isolated = late.search(clock=lambda: next(times))
    assert len(late.launched) == 1 and isolated.because == "fault isolation stopped early: time limit reached"


def test_a_launch_has_the_nodes_that_it_needs_and_no_more() -> None:
    played = Cluster(40, NODE)
    played.search()
    assert len(played.launched[0][0]) == 40
    assert all("gpu02" in nodes and len(nodes) <= 5 for nodes, *_ in played.launched[1:])


def test_two_nodes_are_not_measured_and_both_suspected() -> None:
    played = Cluster(2, NODE)
    evidence, isolated = played.search()
    assert not played.launched and not played.events and "pairs" not in evidence.jobs
    assert [one.sure for one in isolated.faults] == [False]


def test_ranks_held_to_two_adapters_are_two_launches() -> None:
    seats = RankLayout(cluster(3, GPUS, GPUS).jobs[GROUP_JOB])
    adapters = {node: [f"mlx5_{n}:1" for n in range(GPUS)] for node in nodes_of(3)}
    whole = make_pair_trial("gpu01", "gpu02")
    over = [make_pair_trial("gpu01", other, 0, rail) for other, rail in (("gpu02", 1), ("gpu03", 2))]
    found = plan_launches([[whole], over], seats, adapters)
    assert [launch.rounds for launch in found] == [{0: (whole,)}, {1: (over[0],)}, {1: (over[1],)}]
    assert [len(launch.environment) for launch in found] == [0, 2, 2]
    assert len(plan_launches([[whole], over], seats, {})) == 1


@pytest.mark.parametrize(("gpus", "rails"), [(8, 8), (8, 4), (4, 1)])
def test_rails_are_the_adapters_next_to_gpus(gpus: int, rails: int) -> None:
    node = cluster(1, gpus, rails).nodes["gpu01"]
    assert adapters_of(node).of_gpus == tuple(f"mlx5_{n}:1" for n in range(rails))
    node.raw["rdma"].append({**node.raw["rdma"][0], "device": "mlx5_99"})  # storage: next to no GPU
    assert adapters_of(node).ports == rails + 1 and len(adapters_of(node).of_gpus) == rails


def test_rails_are_not_known_where_gpus_and_adapters_do_not_fit() -> None:
    node = cluster(1, 8, 8).nodes["gpu01"]
    node.raw["rdma"][2]["state"] = "1: DOWN"
    assert (adapters_of(node).ports, adapters_of(node).of_gpus) == (7, ())
    for part in ("rdma", "topology"):
        broken = replace(node, raw={**node.raw, part: "?"})
        assert adapters_of(broken).of_gpus == ()
