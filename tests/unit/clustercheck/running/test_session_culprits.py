"""Who is blamed in a whole validation: nodes, GPUs and links, and what they share."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest
from tests.support.validation_in_memory import CELLS, FakeLauncher, blamed, lost_gpu, records, run, verdicts

from clustercheck.errors import ExplainedError
from clustercheck.launch.model import JobOutcome, JobSpec, RankOutcome, RankState
from clustercheck.launch.transport import NodeUnreachableError
from clustercheck.samples import sample, smi
from clusterctl.report.sentences import event_message


def test_a_node_that_is_down_is_named_and_the_rest_is_judged() -> None:
    found = records()

    def down() -> Any:
        raise NodeUnreachableError("gpu02", "connect: no route to host")

    found["gpu02"] = down
    document = run(found)
    assert document["verdict"] == "fail"
    assert blamed(document) == [("node", "gpu02", None, None)]
    assert "no route" in document["culprits"][0]["because"]
    assert verdicts(document, "gpu-ecc")["gpu02/3"] == "not_run"
    assert verdicts(document, "all-reduce") == {"gpu01": "pass", "gpu02": "not_run", "gpu03": "pass"}
    assert document["coverage"]["expected"] == CELLS


def test_a_node_that_hangs_costs_no_more_than_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clustercheck.evidence.collect.GRACE_S", -149.5)  # 150 s of limit leave half a second
    found, release = records(), threading.Event()
    found["gpu03"] = lambda: release.wait(30)
    begun = time.monotonic()
    document = run(found)
    release.set()
    assert time.monotonic() - begun < 25
    assert blamed(document) == [("node", "gpu03", None, None)]
    assert "did not finish within" in document["culprits"][0]["because"]


def test_a_missing_gpu_is_the_culprit_by_its_number() -> None:
    document = run({**records(), "gpu02": lost_gpu(3)})
    assert document["verdict"] == "fail"
    assert blamed(document) == [("gpu", "gpu02", 3, None)]
    assert verdicts(document, "gpu-model")["gpu02/3"] == "not_run"
    assert verdicts(document, "gpu-model")["gpu02/7"] == "pass"


def test_several_faults_at_once_are_all_named() -> None:
    found = {**records(), "gpu02": lost_gpu(0)}
    found["gpu03"]["module"]["version"] = "570.148.08"
    found["gpu03"]["nvidia_smi"]["stdout"] = smi.smi_xml(3, driver="570.148.08")
    launcher = FakeLauncher(slow={frozenset({"gpu01"}): 0.02})
    document = run(found, launcher)
    assert {entry[:3] for entry in blamed(document)} == {
        ("node", "gpu01", None),
        ("node", "gpu03", None),
        ("gpu", "gpu02", 0),
    }


@pytest.mark.parametrize("node", ["gpu01", "gpu02", "gpu03"])
def test_a_slow_node_is_found_by_pairs(node: str) -> None:
    document = run(launcher=FakeLauncher(slow={frozenset({node}): 0.02}))
    assert blamed(document) == [("node", node, None, None)]
    assert "slow with every partner" in document["culprits"][0]["because"]
    bad = {pair for pair, verdict in verdicts(document, "pair-bandwidth").items() if verdict == "fail"}
    assert len(bad) == 2 and all(node in pair for pair in bad)
    assert document["coverage"]["expected"] == CELLS + 3


def test_a_switch_with_a_slow_uplink_is_named_as_the_site_calls_it() -> None:
    found, spec = records(12), sample.spec(12)
    leaves = {node.name: f"leaf{n // 4 + 1:02d}" for n, node in enumerate(spec.nodes)}
    between = {frozenset({a, b}): 0.02 for a in leaves for b in leaves if leaves[a] != "leaf02" == leaves[b]}
    document = run(found, FakeLauncher(slow=between), spec)
    (suspected,) = document["culprits"]
    assert (suspected["scope"], suspected["node"]) == ("switch", None)
    assert "suspected, cannot tell: gpu05, gpu06, gpu07, gpu08: fast with each other" in suspected["because"]
    declared = replace(spec, nodes=tuple(replace(n, leaf_switch=leaves[n.name]) for n in spec.nodes))
    document = run(found, FakeLauncher(slow=between), declared)
    assert blamed(document) == [("switch", "leaf02", None, None)]
    assert (
        "all 4 nodes of the block are slow with nodes of other blocks" in document["culprits"][0]["because"]
    )
    assert "uplinks" in document["culprits"][0]["remedy"]


def test_a_slow_link_is_distinguished_from_a_slow_node() -> None:
    events: list[Mapping[str, Any]] = []
    slow = FakeLauncher(slow={frozenset({"gpu01", "gpu03"}): 0.02})
    document = run(launcher=slow, on_event=events.append)
    assert blamed(document) == [("link", "gpu01", None, "gpu03")]
    kinds = [event["job"] if event["type"] == "job" else event["type"] for event in events]
    assert kinds.index("search") < kinds.index("pairs") < kinds.index("search_finished")
    assert kinds.count("pairs") == events[kinds.index("search_finished")]["launches"] == 3
    said = [told.text for event in events if (told := event_message(event)) and event["type"] == "search"]
    assert said == ["fault isolation: up to 15 rounds, 15 trials, 24 launches, 7m30s"]


def test_of_two_nodes_both_are_suspected() -> None:
    launcher = FakeLauncher(slow={frozenset({"gpu01"}): 0.02})
    document = run(records(2), launcher)
    assert blamed(document) == [("node", "gpu01", None, None), ("node", "gpu02", None, None)]
    assert all("either may be slow" in culprit["because"] for culprit in document["culprits"])
    assert "pairs.py" not in [job.program for job in launcher.jobs]


@pytest.mark.parametrize("state", [RankState.CRASHED, RankState.HUNG, RankState.UNREACHABLE])
def test_a_node_whose_rank_fails_is_dropped_from_later_jobs(state: RankState) -> None:
    launcher = FakeLauncher(fail=lambda spec: ("gpu02", state) if "gpu02" in spec.nodes else None)
    document = run(launcher=launcher)
    assert document["verdict"] == "fail"
    assert blamed(document) == [("node", "gpu02", None, None)]
    assert verdicts(document, "all-reduce") == {"gpu01": "pass", "gpu02": "fail", "gpu03": "pass"}
    assert verdicts(document, "data-parallel") == {"gpu01": "pass", "gpu02": "not_run", "gpu03": "pass"}
    assert [len(job.nodes) for job in launcher.jobs] == [3, 2, 2, 2]


def test_wrong_sums_everywhere_are_traced_to_the_node_that_spoils_them() -> None:
    def spoil(spec: JobSpec, node: str, verdict: dict[str, Any]) -> None:
        for point in verdict.get("points", []):
            point["correct"] = False
        for point in verdict.get("trials", []):
            point["correct"] = "gpu03" not in [spec.nodes[rank] for rank in point["ranks"]]

    document = run(launcher=FakeLauncher(change=spoil))
    assert blamed(document) == [("node", "gpu03", None, None)]


def test_what_fails_alike_on_every_node_points_to_what_they_share() -> None:
    class NoPaddle(FakeLauncher):
        def run(self, spec: JobSpec, *, on_event: Callable[[Mapping[str, Any]], None]) -> JobOutcome:
            ranks = tuple(
                RankOutcome(n, node, RankState.FAILED, because="the image has no Paddle")
                for n, node in enumerate(spec.nodes)
            )
            return JobOutcome(spec.name, ranks, 1.0, first_failure=ranks[0])

    document = run(launcher=NoPaddle())
    assert document["verdict"] == "fail"
    assert all("training image" in culprit["remedy"] for culprit in document["culprits"])
    reasons = {r["because"] for r in document["results"] if r["check"] == "data-parallel"}
    assert reasons == {"dropped after it failed in all-reduce: the image has no Paddle"}


def test_a_job_that_hangs_everywhere_fails_with_every_node_suspected() -> None:
    class AllHang(FakeLauncher):
        def run(self, spec: JobSpec, *, on_event: Callable[[Mapping[str, Any]], None]) -> JobOutcome:
            ranks = tuple(
                RankOutcome(n, node, RankState.HUNG, because="hung while joining")
                for n, node in enumerate(spec.nodes)
            )
            return JobOutcome(spec.name, ranks, 150.0)

    document = run(records(2), AllHang())
    assert document["verdict"] == "fail"
    assert blamed(document) == [("node", "gpu01", None, None), ("node", "gpu02", None, None)]
    assert all("cannot determine" in culprit["because"] for culprit in document["culprits"])


def test_a_group_is_called_slow_only_where_two_runs_say_so() -> None:
    class SlowOnce(FakeLauncher):
        def run(self, spec: JobSpec, *, on_event: Callable[[Mapping[str, Any]], None]) -> JobOutcome:
            self.slow = {} if self.jobs else {frozenset({"gpu02"}): 0.02}
            return super().run(spec, on_event=on_event)

    launcher = SlowOnce()
    document = run(launcher=launcher)
    assert document["verdict"] == "pass"
    assert [job.program for job in launcher.jobs] == [
        "all_reduce.py",
        "all_reduce.py",
        "collectives.py",
        "data_parallel.py",
    ]
    assert launcher.jobs[1].arguments["sizes_bytes"] == [16777216]


def test_a_sum_that_was_wrong_in_one_of_two_runs_stays_wrong() -> None:
    def spoil(spec: JobSpec, node: str, verdict: dict[str, Any]) -> None:
        for point in verdict.get("points", []):
            point["correct"] = len(launcher.jobs) > 1 or node != "gpu02"

    launcher = FakeLauncher(slow={frozenset({"gpu02"}): 0.02}, change=spoil)
    assert verdicts(run(launcher=launcher), "all-reduce")["gpu02"] == "fail"


def test_a_slow_group_whose_pairs_cannot_be_measured_has_suspects() -> None:
    class NoPairs(FakeLauncher):
        def run(self, spec: JobSpec, *, on_event: Callable[[Mapping[str, Any]], None]) -> JobOutcome:
            if spec.program == "pairs.py":
                raise ExplainedError("gpu03: the node is busy", code="launch.busy")
            return super().run(spec, on_event=on_event)

    slow = {frozenset({"gpu02"}): 0.05}
    document = run(launcher=NoPairs(slow))
    assert document["verdict"] == "fail"
    assert blamed(document) == [("node", node, None, None) for node in records()]
    because = document["culprits"][0]["because"]
    assert "the pairs could not be measured: the job could not be started: gpu03: the node is busy" in because
    crash = FakeLauncher(slow, fail=lambda s: ("gpu01", RankState.CRASHED) if s.name == "pairs" else None)
    document = run(launcher=crash)
    assert "the pairs could not be measured: test" in document["culprits"][0]["because"]
    assert blamed(document) == [("node", "gpu01", None, None)], "no node is named for what another one did"
