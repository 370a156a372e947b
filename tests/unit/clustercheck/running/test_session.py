"""A whole validation: what is run and counted, and the document that comes out."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from tests.support.tree import ROOT
from tests.support.validation_in_memory import (
    CELLS,
    PER_GPU,
    PER_NODE,
    SCHEMA,
    FakeLauncher,
    lost_gpu,
    records,
    run,
    verdicts,
)

from clustercheck.checks.support import seeding
from clustercheck.errors import ExplainedError
from clustercheck.evidence.cluster import Evidence
from clustercheck.evidence.node import NodeEvidence
from clustercheck.launch.model import JobOutcome, JobSpec
from clustercheck.launch.transport import NodeUnreachableError
from clustercheck.samples import sample, smi
from clustercheck.spec import NodeSettings, NodeSpec


def test_what_a_plain_system_brings_is_a_warning_and_a_failure_where_the_site_is_strict() -> None:
    def plain(raw: dict[str, Any]) -> dict[str, Any]:
        raw = {**raw, "memory_errors": [], "cpu": {**raw["cpu"], "governors": {"schedutil": 64}}}
        devices = [{**device, "iommu": "DMA-FQ"} for device in raw["pcie"]["devices"]]
        return {**raw, "pcie": {**raw["pcie"], "command_line": "ro quiet", "devices": devices}}

    found = {name: plain(raw) for name, raw in records().items()}
    document = run(found)
    assert (document["verdict"], document["coverage"]["warning"], document["culprits"]) == ("pass", 9, [])
    warned = [r for r in document["results"] if r["verdict"] == "warning"]
    assert {r["check"] for r in warned} == {"cpu-governor", "iommu", "memory-errors"}
    assert all(r["because"] and r["remedy"] for r in warned)
    spec = sample.spec(3)
    strict = replace(spec.settings_of("gpu02"), strict=True)
    nodes = tuple(replace(n, settings=strict) if n.name == "gpu02" else n for n in spec.nodes)
    document = run(found, spec=replace(spec, nodes=nodes))
    assert (document["verdict"], document["coverage"]["fail"]) == ("fail", 3)
    assert {culprit["node"] for culprit in document["culprits"]} == {"gpu02"}


def test_a_healthy_cluster_passes_without_culprits() -> None:
    events: list[Mapping[str, Any]] = []
    document = run(on_event=events.append)
    assert document["verdict"] == "pass", [r for r in document["results"] if r["verdict"] != "pass"]
    assert document["culprits"] == []
    assert document["simulated"] is False
    coverage = document["coverage"]
    # 3 nodes x (8 GPUs x 9 checks + 6 of the host + 2 of its ranks), and the group's bandwidth; no pairs.
    # The ranks met over gloo: there is no NCCL whose transports could be judged.
    assert coverage == {
        "expected": CELLS,
        "pass": CELLS - 3,
        "fail": 0,
        "warning": 0,
        "not_run": 0,
        "excluded": 3,
    }
    kinds = [event["type"] for event in events]
    assert kinds[0] == "suite" and kinds[-1] == "verdict" and kinds.count("probe") == 3 and "job" in kinds
    assert document["environment"]["nodes"]["gpu01"]["driver"] == smi.DRIVER
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


def test_an_unknown_suite_or_profile_is_refused_before_any_node_is_touched() -> None:
    with pytest.raises(ExplainedError) as error:
        run(suite="qick")
    assert error.value.code == "validate.unknown-suite" and "quick" in error.value.hint
    spec = sample.spec()
    wrong = replace(spec, nodes=(NodeSpec("gpu01", "192.0.2.1", profile="a100"),))
    with pytest.raises(ExplainedError) as error:
        run({"gpu01": "never asked"}, spec=wrong)
    assert error.value.code == "profile.unknown" and "hgx-a100-80gb" in error.value.hint


def test_selected_checks_run_what_they_need_and_the_document_names_them() -> None:
    events: list[Mapping[str, Any]] = []
    document = run(checks=["gpu-e*", "xid"], on_event=events.append)
    assert document["environment"]["only_checks"] == ["gpu-ecc", "xid"]
    assert document["environment"]["notes"][0] == "only these checks were asked for: gpu-ecc, xid"
    assert {each["check"] for each in document["results"]} == {"node-reachable", "gpu-ecc", "xid"}
    assert not [event for event in events if event["type"] == "job"]
    assert document["verdict"] == "pass"


def test_a_check_alone_has_its_job_and_what_leads_to_the_search() -> None:
    events: list[Mapping[str, Any]] = []
    document = run(checks=["pair-bandwidth"], on_event=events.append)
    assert [event["job"] for event in events if event["type"] == "job"] == ["all_reduce"]
    judged = {each["check"] for each in document["results"] if each["verdict"] == "pass"}
    assert judged == {"node-reachable", "all-reduce-bandwidth"}


def test_a_check_of_no_suite_or_of_another_is_refused() -> None:
    with pytest.raises(ExplainedError) as error:
        run(checks=["gpu-ecc", "gpu-burn"])
    assert error.value.code == "validate.unknown-check" and "'gpu-burn'" in error.value.what
    assert "standard, full" in error.value.hint
    with pytest.raises(ExplainedError) as error:
        run(checks=["ecc"])
    assert "It is in" not in error.value.hint


def test_a_group_of_small_gpus_is_asked_for_no_message_that_does_not_fit() -> None:
    def on_gpu(spec: JobSpec, node: str, verdict: dict[str, Any]) -> None:
        verdict["backend"] = "nccl"

    def small() -> dict[str, Any]:
        record = sample.probe_record(1)
        record["nvidia_smi"]["stdout"] = record["nvidia_smi"]["stdout"].replace("81920 MiB", "16160 MiB")
        return record

    for nodes, largest in ((["gpu01", "gpu02"], 1 << 30), (["gpu01"], 4 << 30)):  # one node's word is none
        launcher = FakeLauncher(change=on_gpu)
        run({**records(), **dict.fromkeys(nodes, small)}, launcher, suite="standard")
        assert max(launcher.jobs[1].arguments["sizes_bytes"]) == largest


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
    assert max(launcher.jobs[1].arguments["sizes_bytes"]) == 4 << 30
    assert [job.program for job in launcher.jobs] == [
        "all_reduce.py",
        "all_reduce.py",
        "collectives.py",
        "collectives.py",
        "rdma_write.py",
        "run_check.py",
        "data_parallel.py",
        "sharding.py",
        "training_paddle.py",
        "training_paddle.py",
        "inference.py",
    ]
    assert [job.ranks_per_node for job in launcher.jobs[8:]] == [None, 1, None]


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
        nodes=tuple(NodeSpec(name, "192.0.2.1", 1, smi.MODEL, sample.PROFILE) for name in names),
    )
    record = sample.probe_record(1)
    record["nvidia_smi"]["stdout"] = smi.smi_xml(1, gpus=1)
    record["nvlink"]["stdout"] = smi.nvlink_text(1, gpus=1)
    record["topology"]["stdout"] = smi.topology_text(gpus=1)
    for part in ("container_gpus", "container_gpus_as_user"):
        record[part]["stdout"] = record[part]["stdout"].splitlines()[0]
    record["pci"] = [d for d in record["pci"] if d["class"] != "0x030200" or "07:00" in d["address"]]
    found = {
        name: {
            **record,
            "host": {**record["host"], "boot_id": name},
            **{
                part: {
                    **record[part],
                    "stdout": record[part]["stdout"].replace("GPU-00000001", f"GPU-{n:08x}"),
                }
                for part in ("nvidia_smi", "container_gpus", "container_gpus_as_user")
            },
        }
        for n, name in enumerate(names)
    }
    document = run(found, spec=spec)
    assert document["coverage"]["expected"] == 300 * (PER_GPU + PER_NODE) + 1
    failed = {r["because"] for r in document["results"] if r["verdict"] == "fail"}
    assert failed == set()
    assert document["verdict"] == "incomplete"


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


def test_only_a_profile_gives_the_expected_number_of_gpus() -> None:
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
    assert "the expected number of GPUs is not declared" in {
        r["because"] for r in document["results"] if r["verdict"] == "not_run"
    }
    assert unknown["subject"]["gpu"] is None


def test_nodes_may_be_asked_for_different_drivers_and_images() -> None:
    spec = sample.spec()
    hub = sample.IMAGE.replace("registry01", "hub")
    own = NodeSettings("580.105.08", "580", hub, ("--gpus", "all"))
    canary = replace(spec, nodes=(*spec.nodes[:2], replace(spec.nodes[2], settings=own)))
    newer = json.loads(json.dumps(sample.probe_record(3)).replace(smi.DRIVER, "580.105.08"))
    newer["registry"]["host"] = "hub"
    launcher = FakeLauncher()
    document = run({**records(), "gpu03": newer}, launcher, spec=canary)
    assert verdicts(document, "driver-version") == dict.fromkeys(records(), "pass")
    assert document["verdict"] == "pass"
    assert launcher.jobs[0].container_on("gpu01") == (sample.IMAGE, ("--gpus", "all"))
    assert launcher.jobs[0].container_on("gpu03") == (hub, ("--gpus", "all"))

    other = replace(own, image=sample.IMAGE.replace("0" * 64, "1" * 64))
    mixed = replace(spec, nodes=(*spec.nodes[:2], replace(spec.nodes[2], settings=other)))
    document = run({**records(), "gpu03": newer}, spec=mixed)
    assert verdicts(document, "all-reduce") == dict.fromkeys(records(), "not_run")
    assert any("different training images" in r["because"] for r in document["results"])


def test_the_documented_example_is_what_comes_out() -> None:
    text = (ROOT / "docs" / "result.md").read_text(encoding="utf-8")
    example = json.loads(text.partition("```json\n")[2].partition("```")[0])
    document = run({**records(), "gpu02": lost_gpu(3)})
    document["results"] = [r for r in document["results"] if r["verdict"] == "fail"]
    coverage = example["coverage"]
    assert coverage.keys() == document["coverage"].keys()  # its numbers are those of the day it was written
    assert coverage["expected"] == sum(coverage.values()) - coverage["expected"]
    assert example == {key: document[key] for key in example} | {"coverage": coverage}
    assert all(f"`{name}`" in text for name in SCHEMA.schema["properties"])


def test_jobs_know_how_many_gpus_a_node_should_have_and_into_what_they_can_be_split() -> None:
    found = records()
    evidence = seeding.smi("gpu02", 2, "mig_mode/current_mig", "Enabled")(sample.healthy())
    found["gpu02"] = {**found["gpu02"], "nvidia_smi": evidence.nodes["gpu02"].raw["nvidia_smi"]}
    launcher = FakeLauncher()
    run(found, launcher)
    assert launcher.jobs
    assert {str(spec.gpu_limits) for spec in launcher.jobs} == {str({"gpu01": 8, "gpu02": 56, "gpu03": 8})}


def test_every_job_and_the_document_have_the_environment_of_each_node() -> None:
    spec = sample.spec(3)
    given = replace(spec.settings_of("gpu02"), environment={"NCCL_IB_TC": "106"})
    nodes = tuple(replace(n, settings=given) if n.name == "gpu02" else n for n in spec.nodes)
    launcher = FakeLauncher()
    document = run(
        records(), launcher, replace(spec, nodes=nodes, environment={"NCCL_IB_TC": "1"}), suite="full"
    )
    jobs = [*launcher.jobs, *launcher.alone, *launcher.connections]
    programs = {job.program for job in jobs}
    assert launcher.alone and {"all_reduce.py", "rdma_write.py", "peer_ports.py"} <= programs
    expected = {"gpu01": {"NCCL_IB_TC": "1"}, "gpu02": {"NCCL_IB_TC": "106"}, "gpu03": {"NCCL_IB_TC": "1"}}
    for job in jobs:
        assert job.site_environment == {node: expected[node] for node in job.nodes}, job.program
    named = next(job for job in jobs if job.program == "rdma_write.py")
    assert named.arguments["variables"] == ["NCCL_IB_TC"]
    found = document["environment"]["nodes"]
    assert {node: found[node]["job_environment"] for node in found} == expected
