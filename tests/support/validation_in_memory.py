"""What the tests of a whole validation share: nodes and a launcher that answer from memory, and their run."""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from jsonschema import Draft202012Validator
from tests.support.tree import ROOT

from clustercheck.checks.base import every_node
from clustercheck.launch.model import JobOutcome, JobSpec, RankOutcome, RankState
from clustercheck.launch.transport import Completed, Transport
from clustercheck.model import Scope
from clustercheck.running.session import validate
from clustercheck.running.suites import load
from clustercheck.samples import gpus, sample, smi
from clustercheck.samples.fio import storage_verdict
from clustercheck.samples.nccl_loopback import loopback_verdict
from clustercheck.samples.rdma import gpudirect_verdict, rdma_write_verdict
from clustercheck.samples.recipes import (
    gpu_job,
    launch_verdict,
    loading_verdict,
    predictor_verdict,
    recipes_verdict,
    stages_verdict,
    step_verdict,
)
from clustercheck.samples.verdicts import (
    all_reduce_verdict,
    collectives_verdict,
    data_parallel_verdict,
    inference_verdict,
    pairs_verdict,
    peer_ports_verdict,
    run_check_verdict,
    sharding_verdict,
    stream_verdict,
    training_verdict,
)
from clustercheck.spec import ClusterSpec, NodeSpec

SCHEMA = Draft202012Validator(json.loads((ROOT / "docs" / "result.schema.json").read_text(encoding="utf-8")))


# Cells of the coverage by what they are of; a node is a subject of some checks of the group, too.
SELECTED = load("quick").selected()
OF_EVERY_NODE = [check for check in SELECTED if check.scope is Scope.GROUP and check.subjects is every_node]
PER_NODE = sum(check.scope is Scope.HOST for check in SELECTED) + len(OF_EVERY_NODE)
PER_GPU = sum(check.scope in (Scope.GPU, Scope.LINK) for check in SELECTED)
COUNTERS = ["infiniband", "nvlink_errors", "pcie_replays"]  # are read again after the jobs
CELLS = 3 * (8 * PER_GPU + PER_NODE) + 1


class Says:
    """A transport whose nodes say one thing."""

    def __init__(self, said: str, stderr: str = "") -> None:
        self._completed = Completed(0, said, stderr)

    def run(self, node: str, argv: Sequence[str], *, stdin: str = "", timeout_s: float) -> Completed:
        return self._completed


class FakeTransport:
    """Answers the probe from records; a callable record may raise or hang."""

    def __init__(self, records: Mapping[str, Any]) -> None:
        self.records = records

    def run(self, node: str, argv: Sequence[str], *, stdin: str = "", timeout_s: float) -> Completed:
        assert argv[:3] == ["python3", "-I", "-"]
        asked = json.loads(argv[3])
        assert asked.get("parts") in (["dcgm"], COUNTERS) or asked["gpu_arguments"] == ["--gpus", "all"]
        assert "nvidia-smi" in stdin
        record = self.records[node]
        if callable(record):
            record = record()
        now = time.time()
        record = {**record, "clock_began": now, "clock_ended": now} if isinstance(record, dict) else record
        return Completed(0, f"Welcome to {node}\n{json.dumps(record)}\n", "")


# Jobs of the suite `seeds`, whose ranks are GPUs.
ON_GPUS = {
    "recipes.py": recipes_verdict,
    "data_loading.py": loading_verdict,
    "sharding_stages.py": stages_verdict,
    "step_trace.py": step_verdict,
    "paddle_inference.py": predictor_verdict,
}


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
        self.connections: list[JobSpec] = []  # what comes before every other job

    def _gbps(self, *nodes: str) -> float:
        mine = [gbps for who, gbps in self.slow.items() if who <= set(nodes)]
        return min(mine, default=2.0)

    def run(self, spec: JobSpec, *, on_event: Callable[[Mapping[str, Any]], None]) -> JobOutcome:
        connections = self.connections if spec.program == "peer_ports.py" else self.jobs
        (self.alone if spec.alone else connections).append(spec)
        on_event({"type": "job_placed"})
        if spec.alone:
            return self._of_gpus(spec)
        if spec.program in ON_GPUS:
            name = spec.program.removesuffix(".py")
            made = gpu_job(name, spec.nodes, ON_GPUS[spec.program])
            for rank in made.ranks:
                self.change(spec, rank.node, cast("dict[str, Any]", rank.verdict))
            return made
        count = len(spec.nodes)
        verdicts = []
        for rank, node in enumerate(spec.nodes):
            if spec.program == "all_reduce.py":
                pairs = [(a, b) for a in spec.nodes for b in spec.nodes if a < b]
                gbps = min((self._gbps(a, b) for a, b in pairs), default=2.0)
                verdict = all_reduce_verdict(rank, count, spec.arguments["sizes_bytes"], gbps)
            elif spec.program == "collectives.py":
                verdict = collectives_verdict(rank, count, spec.arguments["sizes_bytes"])
            elif spec.program == "peer_ports.py":
                verdict = peer_ports_verdict(rank, count)
            elif spec.program == "run_check.py":
                verdict = run_check_verdict(rank, count)
            elif spec.program == "sharding.py":
                verdict = sharding_verdict(rank, count)
            elif spec.program == "paddle_launch.py":
                verdict = launch_verdict(rank, count)
            elif spec.program == "rdma_write.py":
                verdict = dict(rdma_write_verdict(rank, spec.nodes))
            elif spec.program == "gpudirect_write.py":
                verdict = dict(gpudirect_verdict(rank, spec.nodes))
            elif spec.program == "storage_io.py":
                verdict = dict(storage_verdict(rank, spec.nodes))
            elif spec.program == "cpu_stream.py":
                verdict = dict(stream_verdict(rank, count))
            elif spec.program == "nccl_loopback.py":
                verdict = dict(loopback_verdict(rank, spec.nodes))
            elif spec.program == "pairs.py":
                verdict = pairs_verdict(rank, count, spec.arguments["rounds"])
                for point in verdict["trials"]:
                    point["busbw_gbps"] = self._gbps(*(spec.nodes[rank] for rank in point["ranks"]))
            elif spec.program.startswith("training"):
                verdict = training_verdict(rank, count)
            elif spec.program == "inference.py":
                verdict = inference_verdict(rank, count)
            else:
                verdict = data_parallel_verdict(rank, count)
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
        for seat in range(gpus.GPUS * len(spec.nodes)):
            node, gpu = spec.nodes[seat // gpus.GPUS], seat % gpus.GPUS
            verdict = {
                **gpus.described(seat, gpu, f"0000:{smi.BUSES[gpu]}:00.0"),
                **gpus.programs(jobs, seat, [f"0000:{bus}:00.0" for bus in smi.BUSES]),
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
    transport: Transport | None = None,
    **more: Any,
) -> dict[str, Any]:
    found = found or records()
    document = validate(
        spec or sample.spec(len(found)),
        transport=transport or FakeTransport(found),
        launcher=launcher or FakeLauncher(),
        run_id="test",
        **more,
    )
    assert document.exit_code == {"pass": 0, "fail": 1, "incomplete": 3}[document.verdict]
    made = json.loads(json.dumps(document.as_json(), allow_nan=False))
    different = {(r["check"], r["verdict"]): r for r in made["results"]}
    SCHEMA.validate({**made, "results": list(different.values())})
    coverage = made["coverage"]
    assert coverage["expected"] == sum(coverage[word] for word in coverage if word != "expected")
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


def lost_gpu(gpu: int) -> dict[str, Any]:
    from clustercheck.checks.support import seeding

    evidence = seeding.lose_gpu("gpu02", gpu, from_bus=True)(sample.healthy())
    record = copy.deepcopy(dict(evidence.nodes["gpu02"].raw))
    for part in ("nvlink", "nvlink_errors", "container_gpus", "container_gpus_as_user"):
        lines = record[part]["stdout"].split("GPU ")
        record[part]["stdout"] = "GPU ".join(line for n, line in enumerate(lines) if n != gpu + 1)
    return record
