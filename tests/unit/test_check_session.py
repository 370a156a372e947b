"""A whole validation against nodes and a launcher that answer from memory."""

from __future__ import annotations

import copy
import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from clustercheck import sample, sample_gpus
from clustercheck.checks.base import every_node
from clustercheck.errors import ExplainedError
from clustercheck.evidence import Evidence, NodeEvidence
from clustercheck.launch.model import JobOutcome, JobSpec, RankOutcome, RankState
from clustercheck.model import ClusterSpec, NodeSettings, NodeSpec, Scope
from clustercheck.session import validate
from clustercheck.suites import load
from clustercheck.transport import Completed, NodeUnreachableError
from clusterctl.report import view
from clusterctl.report.sentences import of_event

SCHEMA = Draft202012Validator(
    json.loads((Path(__file__).parents[2] / "docs" / "result.schema.json").read_text(encoding="utf-8"))
)


# Cells of the coverage by what they are of; a node is a subject of some checks of the group, too.
SELECTED = load("quick").selected()
OF_EVERY_NODE = [check for check in SELECTED if check.scope is Scope.GROUP and check.subjects is every_node]
PER_NODE = sum(check.scope is Scope.HOST for check in SELECTED) + len(OF_EVERY_NODE)
PER_GPU = sum(check.scope in (Scope.GPU, Scope.LINK) for check in SELECTED)
CELLS = 3 * (8 * PER_GPU + PER_NODE) + 1


class FakeTransport:
    """Answers the probe from records; a callable record may raise or hang."""

    def __init__(self, records: Mapping[str, Any]) -> None:
        self.records = records

    def run(self, node: str, argv: Sequence[str], *, stdin: str = "", timeout_s: float) -> Completed:
        assert argv[:2] == ["python3", "-"]
        asked = json.loads(argv[2])
        assert asked.get("parts") == ["dcgm"] or asked["gpu_arguments"] == ["--gpus", "all"]
        assert "nvidia-smi" in stdin
        record = self.records[node]
        if callable(record):
            record = record()
        now = time.time()
        record = {**record, "clock_began": now, "clock_ended": now} if isinstance(record, dict) else record
        return Completed(0, f"Welcome to {node}\n{json.dumps(record)}\n", "")


class FakeLauncher:
    """Runs no job: makes the outcome that a cluster with these bandwidths (GB/s) between nodes would give."""

    def __init__(
        self,
        slow: Mapping[frozenset[str], float] | None = None,
        fail: Callable[[JobSpec], tuple[str, RankState] | None] = lambda spec: None,
        change: Callable[[JobSpec, str, dict[str, Any]], None] = lambda spec, node, verdict: None,
    ) -> None:
        self.slow, self.fail, self.change, self.jobs = slow or {}, fail, change, list[JobSpec]()
        self.alone: list[JobSpec] = []

    def _gbps(self, *nodes: str) -> float:
        mine = [gbps for who, gbps in self.slow.items() if who <= set(nodes)]
        return min(mine, default=2.0)

    def run(self, spec: JobSpec, *, on_event: Callable[[Mapping[str, Any]], None]) -> JobOutcome:
        (self.alone if spec.alone else self.jobs).append(spec)
        on_event({"type": "job_placed"})
        if spec.alone:
            return self._of_gpus(spec)
        count = len(spec.nodes)
        verdicts = []
        for rank, node in enumerate(spec.nodes):
            if spec.program == "all_reduce.py":
                pairs = [(a, b) for a in spec.nodes for b in spec.nodes if a < b]
                gbps = min((self._gbps(a, b) for a, b in pairs), default=2.0)
                verdict = sample.all_reduce_verdict(rank, count, spec.arguments["sizes_bytes"], gbps)
            elif spec.program == "collectives.py":
                verdict = sample.collectives_verdict(rank, count, spec.arguments["sizes_bytes"])
            elif spec.program == "pairs.py":
                verdict = sample.pairs_verdict(rank, count, spec.arguments["rounds"])
                for point in verdict["trials"]:
                    point["busbw_gbps"] = self._gbps(*(spec.nodes[rank] for rank in point["ranks"]))
            elif spec.program.startswith("training"):
                verdict = sample.training_verdict(rank, count)
            elif spec.program == "inference.py":
                verdict = sample.inference_verdict(rank, count)
            else:
                verdict = sample.data_parallel_verdict(rank, count)
            self.change(spec, node, verdict)
            verdicts.append(verdict)
        outcome = sample.job(spec.name, spec.nodes, verdicts)
        if (broken := self.fail(spec)) is not None:
            node, state = broken
            ranks = tuple(
                replace(r, state=state if r.node == node else RankState.KILLED, verdict=None, because="test")
                for r in outcome.ranks
            )
            return replace(outcome, ranks=ranks, first_failure=next(r for r in ranks if r.node == node))
        return outcome

    def _of_gpus(self, spec: JobSpec) -> JobOutcome:
        jobs = [each["job"] for each in spec.arguments["programs"]]
        ranks = []
        for seat in range(sample_gpus.GPUS * len(spec.nodes)):
            node, gpu = spec.nodes[seat // sample_gpus.GPUS], seat % sample_gpus.GPUS
            verdict = {
                **sample_gpus.described(seat, gpu, f"0000:{sample.BUSES[gpu]}:00.0"),
                **sample_gpus.programs(jobs, seat),
            }
            self.change(spec, node, verdict)
            state = RankState.OK
            if (broken := self.fail(spec)) is not None and broken[0] == node:
                state = broken[1]
            ranks.append(RankOutcome(seat, node, state, gpu=gpu, verdict=verdict))
        return JobOutcome(spec.name, tuple(ranks), 20.0, facts={"backend": "gpu"})


def records(count: int = 3) -> dict[str, Any]:
    return {f"gpu{n:02d}": sample.probe_record(n) for n in range(1, count + 1)}


def run(
    found: Mapping[str, Any] | None = None,
    launcher: FakeLauncher | None = None,
    spec: ClusterSpec | None = None,
    **more: Any,
) -> dict[str, Any]:
    found = found or records()
    document = validate(
        spec or sample.spec(len(found)),
        transport=FakeTransport(found),
        launcher=launcher or FakeLauncher(),
        run_id="test",
        **more,
    )
    assert document.exit_code == {"pass": 0, "fail": 1, "incomplete": 3}[document.verdict]
    made = json.loads(json.dumps(document.as_json(), allow_nan=False))
    different = {(r["check"], r["verdict"]): r for r in made["results"]}
    SCHEMA.validate({**made, "results": list(different.values())})
    coverage = made["coverage"]
    assert coverage["expected"] == sum(coverage[word] for word in ("pass", "fail", "not_run", "excluded"))
    assert sorted(document.raw) == sorted(node.name for node in document_nodes(spec, found))
    return dict(made)


def document_nodes(spec: ClusterSpec | None, found: Mapping[str, Any]) -> list[NodeSpec]:
    return [node for node in (spec or sample.spec(len(found))).nodes if not node.excluded]


def verdicts(document: Mapping[str, Any], check: str) -> dict[str, str]:
    named = {}
    for result in document["results"]:
        if result["check"] == check:
            subject = result["subject"]
            named["/".join(str(v) for v in subject.values() if v is not None)] = result["verdict"]
    return named


def blamed(document: Mapping[str, Any]) -> list[tuple[str, str | None, int | None, str | None]]:
    return [(c["scope"], c["node"], c["gpu"], c["peer"]) for c in document["culprits"]]


def test_a_healthy_cluster_passes_and_nothing_is_blamed() -> None:
    events: list[Mapping[str, Any]] = []
    document = run(on_event=events.append)
    assert document["verdict"] == "pass", [r for r in document["results"] if r["verdict"] != "pass"]
    assert document["culprits"] == []
    assert document["simulated"] is False
    coverage = document["coverage"]
    # 3 nodes x (8 GPUs x 9 checks + 6 of the host + 2 of its ranks), and the group's bandwidth; no pairs.
    assert coverage == {"expected": CELLS, "pass": CELLS, "fail": 0, "not_run": 0, "excluded": 0}
    kinds = [event["type"] for event in events]
    assert kinds[0] == "suite" and kinds[-1] == "verdict" and kinds.count("probe") == 3 and "job" in kinds
    assert document["environment"]["nodes"]["gpu01"]["driver"] == sample.DRIVER
    assert document["environment"]["backend"] == "gloo"


def test_the_curve_is_in_the_evidence_with_its_floor() -> None:
    document = run()
    result = next(r for r in document["results"] if r["check"] == "all-reduce-bandwidth")
    assert result["measured"] == 2.0
    assert result["expected"] == pytest.approx(0.3125)  # 10 % of 25 Gb/s
    assert result["efficiency"] == pytest.approx(2.0 / 3.125)
    points = {point["bytes"]: point for point in result["evidence"]["points"]}
    assert "floor_gbps" not in points[8]
    assert points[16777216]["floor_gbps"] == pytest.approx(0.3125)


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
    monkeypatch.setattr("clustercheck.collect.GRACE_S", -149.5)  # 150 s of limit leave half a second
    found, release = records(), threading.Event()
    found["gpu03"] = lambda: release.wait(30)
    begun = time.monotonic()
    document = run(found)
    release.set()
    assert time.monotonic() - begun < 25
    assert blamed(document) == [("node", "gpu03", None, None)]
    assert "did not end within" in document["culprits"][0]["because"]


def test_a_missing_gpu_is_blamed_by_its_number() -> None:
    document = run({**records(), "gpu02": lost_gpu(3)})
    assert document["verdict"] == "fail"
    assert blamed(document) == [("gpu", "gpu02", 3, None)]
    assert verdicts(document, "gpu-model")["gpu02/3"] == "not_run"
    assert verdicts(document, "gpu-model")["gpu02/7"] == "pass"


def lost_gpu(gpu: int) -> dict[str, Any]:
    from clustercheck.checks import seeding

    evidence = seeding.lose_gpu("gpu02", gpu, from_bus=True)(sample.healthy())
    record = copy.deepcopy(dict(evidence.nodes["gpu02"].raw))
    for part in ("nvlink", "container_gpus", "container_gpus_as_user"):
        lines = record[part]["stdout"].split("GPU ")
        record[part]["stdout"] = "GPU ".join(line for n, line in enumerate(lines) if n != gpu + 1)
    return record


def test_several_faults_at_once_are_all_named() -> None:
    found = {**records(), "gpu02": lost_gpu(0)}
    found["gpu03"]["module"]["version"] = "570.148.08"
    found["gpu03"]["nvidia_smi"]["stdout"] = sample.smi_xml(3, driver="570.148.08")
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


def test_a_slow_link_is_told_from_a_slow_node() -> None:
    events: list[Mapping[str, Any]] = []
    slow = FakeLauncher(slow={frozenset({"gpu01", "gpu03"}): 0.02})
    document = run(launcher=slow, on_event=events.append)
    assert blamed(document) == [("link", "gpu01", None, "gpu03")]
    kinds = [event["job"] if event["type"] == "job" else event["type"] for event in events]
    assert kinds.index("search") < kinds.index("pairs") < kinds.index("search_finished")
    assert kinds.count("pairs") == events[kinds.index("search_finished")]["launches"] == 3
    said = [told.text for event in events if (told := of_event(event)) and event["type"] == "search"]
    assert said == ["search for whom to blame: at most 15 rounds, 15 trials, 24 launches, 7m30s"]


def test_with_two_nodes_both_are_suspected_and_it_is_said() -> None:
    launcher = FakeLauncher(slow={frozenset({"gpu01"}): 0.02})
    document = run(records(2), launcher)
    assert blamed(document) == [("node", "gpu01", None, None), ("node", "gpu02", None, None)]
    assert all("cannot be told" in culprit["because"] for culprit in document["culprits"])
    assert "pairs.py" not in [job.program for job in launcher.jobs]


@pytest.mark.parametrize("state", [RankState.CRASHED, RankState.HUNG, RankState.UNREACHABLE])
def test_a_rank_that_fails_is_blamed_and_the_rest_goes_on_without_it(state: RankState) -> None:
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


def test_a_busy_node_is_left_alone_and_said_so() -> None:
    found = records()
    found["gpu01"]["busy"]["reasons"] = ["Slurm job(s): 4711"]
    launcher = FakeLauncher()
    document = run(found, launcher)
    assert document["verdict"] == "incomplete"
    assert all("gpu01" not in job.nodes for job in launcher.jobs)
    reasons = {r["because"] for r in document["results"] if r["verdict"] == "not_run"}
    assert reasons == {"the node is busy: Slurm job(s): 4711"}
    assert run(found, busy_policy="force")["verdict"] == "pass"


def test_a_quarantined_node_is_excluded_by_name() -> None:
    spec = sample.spec(3)
    out = replace(spec, nodes=(*spec.nodes[:2], replace(spec.nodes[2], excluded="quarantined by ann: fan")))
    document = run({**records(2), "gpu03": "never asked"}, spec=out)
    assert document["verdict"] == "pass"
    assert document["coverage"]["excluded"] == 8 * PER_GPU + PER_NODE
    assert all("fan" in r["because"] for r in document["results"] if r["verdict"] == "excluded")


def test_no_image_or_no_launcher_is_incomplete_never_green() -> None:
    document = run(spec=replace(sample.spec(), image=""))
    assert document["verdict"] == "incomplete"
    assert "no training image" in " ".join(r["because"] for r in document["results"])

    class Broken(FakeLauncher):
        def run(self, spec: JobSpec, *, on_event: Callable[[Mapping[str, Any]], None]) -> JobOutcome:
            raise OSError("no docker")

    document = run(launcher=Broken())
    assert document["verdict"] == "incomplete"
    assert verdicts(document, "all-reduce-bandwidth") == {"": "not_run"}


def test_an_unknown_suite_or_profile_is_refused_before_any_node_is_touched() -> None:
    with pytest.raises(ExplainedError) as error:
        run(suite="qick")
    assert error.value.code == "validate.unknown-suite" and "quick" in error.value.hint
    spec = sample.spec()
    wrong = replace(spec, nodes=(NodeSpec("gpu01", "192.0.2.1", profile="a100"),))
    with pytest.raises(ExplainedError) as error:
        run({"gpu01": "never asked"}, spec=wrong)
    assert error.value.code == "profile.unknown" and "hgx-a100-80gb" in error.value.hint


def test_on_gpus_the_large_sizes_are_run_and_judged_by_the_profile() -> None:
    def on_gpu(spec: JobSpec, node: str, verdict: dict[str, Any]) -> None:
        verdict["backend"] = "nccl"
        for point in verdict.get("points", []):
            point["busbw_gbps"] = 231.0

    class EightRanks(FakeLauncher):
        def run(self, spec: JobSpec, *, on_event: Callable[[Mapping[str, Any]], None]) -> JobOutcome:
            outcome = super().run(spec, on_event=on_event)
            ranks = tuple(replace(outcome.ranks[0], rank=rank, gpu=rank) for rank in range(8))
            return replace(outcome, ranks=ranks)

    launcher = EightRanks(change=on_gpu)
    document = run(records(1), launcher, suite="standard")
    result = next(r for r in document["results"] if r["check"] == "all-reduce-bandwidth")
    assert result["verdict"] == "pass", result
    assert (result["expected"], result["efficiency"]) == (228.0, pytest.approx(231 / 300, abs=1e-4))
    assert [job.program for job in launcher.jobs] == [
        "all_reduce.py",
        "all_reduce.py",
        "collectives.py",
        "collectives.py",
        "data_parallel.py",
        "training_paddle.py",
        "training_paddle.py",
        "training_torch.py",
        "training_torch.py",
        "inference.py",
    ]
    assert [job.ranks_per_node for job in launcher.jobs[5:]] == [None, 1, None, 1, None]


def test_a_node_that_prints_nonsense_is_not_run_and_no_traceback() -> None:
    found = records()
    for part in list(found["gpu01"]):
        if part != "probe":
            found["gpu01"][part] = ["?"]
    document = run(found)
    assert document["verdict"] in ("fail", "incomplete")
    assert "pass" not in {v for k, v in verdicts(document, "gpu-ecc").items() if k.startswith("gpu01")}
    assert all("the check itself failed" not in r["because"] for r in document["results"])


def test_simulated_devices_are_said_in_the_headline() -> None:
    found = records()
    said = found["gpu02"]["nvidia_smi"]["stdout"]
    found["gpu02"]["nvidia_smi"]["stdout"] = said.replace(
        "<attached_gpus>", "<simulated>yes</simulated><attached_gpus>"
    )
    document = run(found)
    assert document["simulated"] is True
    flags = {r["subject"]["node"]: r["simulated"] for r in document["results"] if r["check"] == "gpu-driver"}
    assert flags == {"gpu01": False, "gpu02": True, "gpu03": False}


def test_evidence_reads_each_node_once() -> None:
    node = NodeEvidence("gpu01", sample.probe_record(1))
    assert node.smi() is node.smi()
    evidence = Evidence(sample.spec(1), {"gpu01": node})
    assert evidence.slots("gpu01")[0] == "0000:07:00.0"


def test_hundreds_of_nodes_are_judged_one_by_one() -> None:
    names = [f"gpu{n:04d}" for n in range(300)]
    spec = replace(
        sample.spec(),
        image="",
        nodes=tuple(NodeSpec(name, "192.0.2.1", 1, sample.MODEL, sample.PROFILE) for name in names),
    )
    record = sample.probe_record(1)
    record["nvidia_smi"]["stdout"] = sample.smi_xml(1, gpus=1)
    record["nvlink"]["stdout"] = sample.nvlink_text(1, gpus=1)
    record["topology"]["stdout"] = sample.topology_text(gpus=1)
    for part in ("container_gpus", "container_gpus_as_user"):
        record[part]["stdout"] = record[part]["stdout"].splitlines()[0]
    record["pci"] = [d for d in record["pci"] if d["class"] != "0x030200" or "07:00" in d["address"]]
    document = run(dict.fromkeys(names, record), spec=spec)
    assert document["coverage"]["expected"] == 300 * (PER_GPU + PER_NODE) + 1
    assert document["verdict"] == "incomplete" and document["coverage"]["fail"] == 0


def test_rank_outcomes_of_a_launcher_may_lack_everything() -> None:
    class Empty(FakeLauncher):
        def run(self, spec: JobSpec, *, on_event: Callable[[Mapping[str, Any]], None]) -> JobOutcome:
            ranks = tuple(RankOutcome(n, node, RankState.OK, verdict={}) for n, node in enumerate(spec.nodes))
            return JobOutcome(spec.name, ranks, 1.0)

    document = run(launcher=Empty())
    assert document["verdict"] == "incomplete"
    assert all("the check itself failed" not in r["because"] for r in document["results"])


def test_the_schema_is_a_schema_and_refuses_what_is_not_a_document() -> None:
    Draft202012Validator.check_schema(SCHEMA.schema)
    document = run()
    SCHEMA.validate(document)
    for spoil in (
        {"verdict": "green"},
        {"coverage": {}},
        {"results": [{**document["results"][0], "verdict": "fail"}]},  # a failure that does not say why
        {"surprise": 1},
    ):
        assert list(SCHEMA.iter_errors({**document, **spoil})), spoil


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
    assert reasons == {"left out after it failed in all-reduce: the image has no Paddle"}


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
    assert all("cannot be told" in culprit["because"] for culprit in document["culprits"])


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


def test_one_node_proves_nothing_across_nodes() -> None:
    document = run(records(1))
    assert document["verdict"] == "pass"  # as far as one node goes: what is across nodes is excluded by name
    for check in ("all-reduce", "data-parallel", "all-reduce-bandwidth"):
        (result,) = [r for r in document["results"] if r["check"] == check]
        assert (result["verdict"], result["because"]) == (
            "excluded",
            "one node: there is nothing to reduce across",
        )


def test_the_last_node_that_is_left_is_not_green() -> None:
    found = records(2)

    def down() -> Any:
        raise NodeUnreachableError("gpu02", "connect: no route to host")

    document = run({**found, "gpu02": down})
    assert verdicts(document, "all-reduce") == {"gpu01": "not_run", "gpu02": "not_run"}
    assert verdicts(document, "data-parallel") == {"gpu01": "not_run", "gpu02": "not_run"}


def test_the_profile_says_how_many_gpus_there_should_be_and_else_nobody_knows() -> None:
    def down() -> Any:
        raise NodeUnreachableError("gpu01", "connect: no route to host")

    spec = sample.spec()
    by_profile = replace(spec, nodes=tuple(replace(node, gpu_count=None) for node in spec.nodes))
    document = run({**records(), "gpu01": down, "gpu02": lost_gpu(3)}, spec=by_profile)
    assert document["coverage"]["expected"] == CELLS
    assert verdicts(document, "gpu-present")["gpu02/3"] == "fail"
    assert verdicts(document, "gpu-ecc")["gpu01/7"] == "not_run"
    bare = replace(spec, nodes=tuple(replace(node, gpu_count=None, profile="") for node in spec.nodes))
    document = run({**records(), "gpu01": down}, spec=bare)
    present = verdicts(document, "gpu-present")
    assert {key: present[key] for key in ("gpu01", "gpu02", "gpu02/7")} == {
        "gpu01": "not_run",
        "gpu02": "not_run",
        "gpu02/7": "pass",
    }
    assert verdicts(document, "driver-version")["gpu01"] == "not_run"
    unknown = next(
        r for r in document["results"] if r["check"] == "gpu-present" and r["verdict"] == "not_run"
    )
    assert "how many GPUs it should have is not declared" in {
        r["because"] for r in document["results"] if r["verdict"] == "not_run"
    }
    assert unknown["subject"]["gpu"] is None


@pytest.mark.parametrize(
    ("part", "because"),
    [
        ({"reasons": [], "unknown": ["squeue did not answer"]}, "squeue did not answer"),
        ({"reasons": "none", "unknown": []}, "not what it should be"),
        (None, "not what it should be"),
    ],
)
def test_a_node_of_which_it_cannot_be_told_is_left_alone(part: Any, because: str) -> None:
    found = records()
    found["gpu02"]["busy"] = part
    document = run(found)
    left = document["environment"]["left_out"]["gpu02"]
    assert "it cannot be told whether it is busy" in left and because in left
    assert verdicts(document, "all-reduce")["gpu02"] == "not_run"
    found["gpu02"].pop("busy")
    silent = run(found)["environment"]["left_out"]["gpu02"]
    assert silent.endswith("it cannot be told whether it is busy")
    assert run({**records(), "gpu02": {**found["gpu02"], "errors": {"busy": "OSError: no"}}})["environment"][
        "left_out"
    ]["gpu02"].endswith("OSError: no")


def test_a_driver_that_does_not_answer_still_says_that_it_is_simulated() -> None:
    record = sample.probe_record(1)
    banner = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  (simulated@clusterlab)"
    record["module"]["proc"] = banner
    record["nvidia_smi"] = {**sample.program(""), "rc": None, "timed_out": True}
    assert NodeEvidence("gpu01", record).simulated
    record["module"]["proc"] = None
    assert not NodeEvidence("gpu01", record).simulated


class OverGloo(FakeLauncher):
    """Says of its jobs what the real launcher says of an image without CUDA."""

    def run(self, spec: JobSpec, *, on_event: Callable[[Mapping[str, Any]], None]) -> JobOutcome:
        return replace(super().run(spec, on_event=on_event), facts={"backend": "gloo"})


def simulated(found: dict[str, Any]) -> dict[str, Any]:
    for record in found.values():
        text = record["nvidia_smi"]["stdout"]
        record["nvidia_smi"]["stdout"] = text.replace(
            "</timestamp>", "</timestamp><simulated>yes</simulated>"
        )
    return found


def test_a_cluster_whose_gpus_took_no_part_is_not_green_unless_they_are_simulated() -> None:
    idle = "GPUs took no part: the image's Paddle has no CUDA"
    document = run(launcher=OverGloo())
    assert document["verdict"] == "incomplete"
    of_jobs = [r for r in document["results"] if r["check"].startswith(("all-reduce", "data-parallel"))]
    assert {(r["verdict"], r["because"]) for r in of_jobs} == {("not_run", idle)}
    assert all(r["method"].endswith(idle) for r in of_jobs)
    assert view.headline(document) == f"INCOMPLETE: cluster sample; {idle}"

    document = run(simulated(records()), OverGloo())
    assert document["verdict"] == "pass"
    assert all(r["method"].endswith(idle) for r in document["results"] if r["scope"] == "group")
    assert view.headline(document) == f"PASS on SIMULATED HARDWARE: cluster sample; {idle}"


def test_a_fault_stays_a_fault_where_the_gpus_took_no_part() -> None:
    slow = OverGloo({frozenset({"gpu02"}): 0.05})
    document = run(launcher=slow)
    assert document["verdict"] == "fail"
    assert ("node", "gpu02", None, None) in blamed(document)


def test_a_cpu_cluster_has_no_gpus_to_take_part() -> None:
    spec = sample.spec()
    bare = replace(spec, nodes=tuple(replace(node, gpu_count=0, profile="") for node in spec.nodes))
    document = run(launcher=OverGloo(), spec=bare)
    assert verdicts(document, "all-reduce") == dict.fromkeys(records(), "pass")
    assert view.notes(document) == []


def test_nodes_may_be_asked_for_different_drivers_and_images() -> None:
    spec = sample.spec()
    hub = sample.IMAGE.replace("registry01", "hub")
    own = NodeSettings("580.105.08", "580", hub, ("--gpus", "all"))
    canary = replace(spec, nodes=(*spec.nodes[:2], replace(spec.nodes[2], settings=own)))
    newer = json.loads(json.dumps(sample.probe_record(3)).replace(sample.DRIVER, "580.105.08"))
    launcher = FakeLauncher()
    document = run({**records(), "gpu03": newer}, launcher, spec=canary)
    assert verdicts(document, "driver-version") == dict.fromkeys(records(), "pass")
    assert document["verdict"] == "pass"
    assert launcher.jobs[0].on("gpu01") == (sample.IMAGE, ("--gpus", "all"))
    assert launcher.jobs[0].on("gpu03") == (hub, ("--gpus", "all"))

    other = replace(own, image=sample.IMAGE.replace("0" * 64, "1" * 64))
    mixed = replace(spec, nodes=(*spec.nodes[:2], replace(spec.nodes[2], settings=other)))
    document = run({**records(), "gpu03": newer}, spec=mixed)
    assert verdicts(document, "all-reduce") == dict.fromkeys(records(), "not_run")
    assert any("different training images" in r["because"] for r in document["results"])


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
    assert len(document["culprits"]) == 3


def test_the_documented_example_is_what_comes_out() -> None:
    text = (Path(__file__).parents[2] / "docs" / "result.md").read_text(encoding="utf-8")
    example = json.loads(text.partition("```json\n")[2].partition("```")[0])
    document = run({**records(), "gpu02": lost_gpu(3)})
    document["results"] = [r for r in document["results"] if r["verdict"] == "fail"]
    assert example == {key: document[key] for key in example}
    assert all(f"`{name}`" in text for name in SCHEMA.schema["properties"])
