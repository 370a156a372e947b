"""What a whole validation could not judge is never green: busy, left out, unread, simulated, alone."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest
from tests.support.validation_in_memory import PER_GPU, PER_NODE, FakeLauncher, blamed, records, run, verdicts

from clustercheck.evidence.node import NodeEvidence
from clustercheck.launch.model import JobOutcome, JobSpec, RankOutcome, RankState
from clustercheck.launch.transport import NodeUnreachableError
from clustercheck.result import reading
from clustercheck.running.job_runner import merge_runs
from clustercheck.samples import sample
from clusterctl.report import view


def test_a_busy_node_is_skipped_with_the_reason() -> None:
    found = records()
    found["gpu01"]["busy"]["reasons"] = ["Slurm job(s): 4711"]
    launcher = FakeLauncher()
    document = run(found, launcher)
    assert document["verdict"] == "incomplete"
    assert all("gpu01" not in job.nodes for job in launcher.jobs)
    reasons = {r["because"] for r in document["results"] if r["verdict"] == "not_run"}
    assert reasons == {"the node is busy: Slurm job(s): 4711"}
    assert document["environment"]["notes"] == []
    forced = run(found, busy_policy="force")
    assert forced["verdict"] == "pass"
    assert forced["environment"]["notes"] == [
        "measured beside other jobs, which may have slowed it down: gpu01 (Slurm job(s): 4711)"
    ]


def test_a_quarantined_node_is_excluded_by_name() -> None:
    spec = sample.spec(3)
    out = replace(spec, nodes=(*spec.nodes[:2], replace(spec.nodes[2], excluded="quarantined by ann: fan")))
    document = run({**records(2), "gpu03": "never asked"}, spec=out)
    assert document["verdict"] == "pass"
    # The two others met over gloo, without NCCL.
    assert document["coverage"]["excluded"] == 8 * PER_GPU + PER_NODE + 2
    assert all(
        "fan" in r["because"]
        for r in document["results"]
        if r["verdict"] == "excluded" and r["subject"]["node"] == "gpu03"
    )


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


def test_a_node_that_prints_nonsense_is_not_run_and_no_traceback() -> None:
    found = records()
    for part in list(found["gpu01"]):
        if part != "probe":
            found["gpu01"][part] = ["?"]
    document = run(found)
    assert document["verdict"] in ("fail", "incomplete")
    assert "pass" not in {v for k, v in verdicts(document, "gpu-ecc").items() if k.startswith("gpu01")}
    assert all("the check itself failed" not in r["because"] for r in document["results"])


def test_simulated_devices_are_in_the_headline() -> None:
    found = records()
    said = found["gpu02"]["nvidia_smi"]["stdout"]
    found["gpu02"]["nvidia_smi"]["stdout"] = said.replace(
        "<attached_gpus>", "<simulated>yes</simulated><attached_gpus>"
    )
    document = run(found)
    assert document["simulated"] is True
    flags = {r["subject"]["node"]: r["simulated"] for r in document["results"] if r["check"] == "gpu-driver"}
    assert flags == {"gpu01": False, "gpu02": True, "gpu03": False}


def test_rank_outcomes_of_a_launcher_may_lack_everything() -> None:
    class Empty(FakeLauncher):
        def run(self, spec: JobSpec, *, on_event: Callable[[Mapping[str, Any]], None]) -> JobOutcome:
            ranks = tuple(RankOutcome(n, node, RankState.OK, verdict={}) for n, node in enumerate(spec.nodes))
            return JobOutcome(spec.name, ranks, 1.0)

    document = run(launcher=Empty())
    assert document["verdict"] == "incomplete"
    assert all("the check itself failed" not in r["because"] for r in document["results"])


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


@pytest.mark.parametrize(
    ("part", "because"),
    [
        ({"reasons": [], "unknown": ["squeue did not answer"]}, "squeue did not answer"),
        ({"reasons": "none", "unknown": []}, "has an unexpected form"),
        (None, "has an unexpected form"),
    ],
)
def test_a_node_of_unknown_load_is_skipped(part: Any, because: str) -> None:
    found = records()
    found["gpu02"]["busy"] = part
    document = run(found)
    left = document["environment"]["left_out"]["gpu02"]
    assert "cannot determine whether it is busy" in left and because in left
    assert verdicts(document, "all-reduce")["gpu02"] == "not_run"
    found["gpu02"].pop("busy")
    silent = run(found)["environment"]["left_out"]["gpu02"]
    assert silent.endswith("cannot determine whether it is busy")
    assert run({**records(), "gpu02": {**found["gpu02"], "errors": {"busy": "OSError: no"}}})["environment"][
        "left_out"
    ]["gpu02"].endswith("OSError: no")


def test_a_driver_that_does_not_answer_is_still_known_as_simulated() -> None:
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
    idle = "GPUs not used in distributed jobs: Paddle in the image is built without CUDA"
    document = run(launcher=OverGloo())
    assert document["verdict"] == "incomplete"
    of_jobs = [r for r in document["results"] if r["check"].startswith(("all-reduce", "data-parallel"))]
    assert {(r["verdict"], r["because"]) for r in of_jobs} == {("not_run", idle)}
    assert all(r["method"].endswith(idle) for r in of_jobs)
    headline = view.headline(reading.read(json.dumps(document)))
    assert headline == f"INCOMPLETE: cluster sample; {idle}"

    document = run(simulated(records()), OverGloo())
    assert document["verdict"] == "pass"
    assert all(r["method"].endswith(idle) for r in document["results"] if r["scope"] == "group")
    assert (
        view.headline(reading.read(json.dumps(document)))
        == f"PASS on SIMULATED HARDWARE: cluster sample; {idle}"
    )


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
    assert view.notes(reading.read(json.dumps(document))) == []


def test_with_pytorch_only_jobs_without_paddle_run() -> None:
    spec = sample.spec(3).with_framework("torch")
    launcher = FakeLauncher()
    document = run(launcher=launcher, spec=spec, suite="full")
    assert {job.framework for job in (*launcher.connections, *launcher.jobs, *launcher.alone)} == {"torch"}
    assert {job.program for job in launcher.jobs} == {
        "rdma_write.py",
        "gpudirect_write.py",
        "cpu_stream.py",
        "storage_io.py",
        "training_torch.py",
    }
    assert set(verdicts(document, "peer-ports").values()) == {"pass"}
    assert set(verdicts(document, "training-numerics-pytorch").values()) == {"pass"}
    assert set(verdicts(document, "data-parallel").values()) == {"not_run"}
    because = {r["because"] for r in document["results"] if r["check"] == "data-parallel"}
    assert because == {"the job is written for Paddle, and validation_framework is torch"}


def test_nodes_that_compute_with_different_frameworks_make_no_group() -> None:
    spec = sample.spec(2)
    settings = replace(spec.settings_of("gpu02"), framework="torch")
    mixed = replace(spec, nodes=(spec.nodes[0], replace(spec.nodes[1], settings=settings)))
    launcher = FakeLauncher()
    document = run(records(2), launcher, mixed)
    assert (launcher.connections, launcher.jobs) == ([], [])
    because = {r["because"] for r in document["results"] if r["check"] == "all-reduce"}
    assert because == {"the nodes are set to different frameworks: paddle, torch"}
    again = mixed.with_framework("paddle")
    assert {again.settings_of(node.name).framework for node in again.nodes} == {"paddle"}


@pytest.mark.parametrize(
    "points",
    [[{"bytes": [1]}], [{"bytes": 8, "busbw_gbps": "x"}] * 2, [{"bytes": 8, "collective": {}}], [7], [{}]],
)
def test_sizes_in_no_known_form_cost_their_rank_alone(points: Any) -> None:
    sizes = [{"bytes": 8, "busbw_gbps": 1.0, "correct": True}]
    ranks = [RankOutcome(n, "gpu01", RankState.OK, gpu=n, verdict={"points": sizes}) for n in (0, 1)]
    first = JobOutcome("all-reduce", tuple(ranks), 1.0)
    hostile = replace(ranks[1], verdict={"points": points})
    for one, other in (
        (first, replace(first, ranks=(ranks[0], hostile))),
        (replace(first, ranks=(ranks[0], hostile)), first),
    ):
        merged = merge_runs(one, other)
        assert [rank.verdict and rank.verdict["points"] for rank in merged.ranks] == [sizes, None]


def test_what_raises_between_launches_costs_one_job(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise TypeError("unhashable type: 'list'")

    monkeypatch.setattr("clustercheck.running.group_jobs.merge_runs", broken)
    launcher = FakeLauncher(change=lambda _spec, _node, verdict: verdict.update(backend="nccl"))
    document = run(launcher=launcher, suite="standard")
    why = {r["because"] for r in document["results"] if r["check"] in ("all-reduce", "all-gather")}
    assert why == {"the ranks' answers cannot be read: TypeError: unhashable type: 'list'"}
    others = [job.program for job in launcher.jobs if job.program not in ("all_reduce.py", "collectives.py")]
    assert "data_parallel.py" in others


def test_a_search_that_raises_suspects_all(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ValueError("no number")

    monkeypatch.setattr("clustercheck.running.group.isolate_group_fault", broken)
    document = run(launcher=FakeLauncher({frozenset({"gpu02"}): 0.1}))
    assert {one["node"] for one in document["culprits"]} == {"gpu01", "gpu02", "gpu03"}
    assert all(one["because"].startswith("suspected, cannot tell") for one in document["culprits"])
    assert document["verdict"] == "fail"


def test_a_size_that_one_node_invents_is_given_to_nobody() -> None:
    size = 900_000_000_000

    def invent(spec: JobSpec, node: str, verdict: dict[str, Any]) -> None:
        if node == "gpu02" and spec.program == "all_reduce.py":
            verdict["points"].append({**verdict["points"][-1], "bytes": size, "busbw_gbps": 0.001})

    launcher = FakeLauncher(change=invent)
    document = run(launcher=launcher)
    assert all(size not in job.arguments.get("sizes_bytes", ()) for job in launcher.jobs)
    assert verdicts(document, "all-reduce-bandwidth") == {"": "pass"}


def test_only_sizes_of_the_suite_are_measured_again() -> None:
    def slow(spec: JobSpec, node: str, verdict: dict[str, Any]) -> None:
        if spec.program == "all_reduce.py":
            verdict["points"].append({**verdict["points"][-1], "bytes": 1 << 40, "busbw_gbps": 0.001})

    launcher = FakeLauncher(change=slow)
    run(launcher=launcher)
    assert all(1 << 40 not in job.arguments.get("sizes_bytes", ()) for job in launcher.jobs)
