"""Programs for one GPU in a validation: one launch, a job each, and nobody ended for another's sake."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from clustercheck.checks.all import BY_ID
from clustercheck.checks.base import evaluate
from clustercheck.checks.support import seeding, seeding_gpus
from clustercheck.errors import ExplainedError
from clustercheck.evidence.cluster import Evidence
from clustercheck.launch.first_failure import RankEvidence, judge_ranks
from clustercheck.launch.model import JobOutcome, JobSpec, RankOutcome, RankState
from clustercheck.launch.placement import NodeReport, find_nodes_without_devices, place_independent_ranks
from clustercheck.model import Part, Subject, Verdict
from clustercheck.running.single import run_single_gpu_jobs, select_job
from clustercheck.running.suites import load
from clustercheck.samples import gpus, sample, smi
from clustercheck.spec import NodeSettings

JOBS = ("gpu_gemm", "gpu_memory", "gpu_launch")


def seat(state: RankState, done: tuple[str, ...], because: str = "") -> RankOutcome:
    verdict = {**gpus.described(0, 0, None), **gpus.programs(done, 0)}
    return RankOutcome(0, "gpu01", state, because=because, gpu=0, verdict=verdict)


def parts(rank: RankOutcome) -> dict[str, RankOutcome]:
    whole = JobOutcome("gpu-programs", (rank,), 5.0)
    return {job: select_job(whole, job, JOBS).ranks[0] for job in JOBS}


def test_each_program_has_its_own_verdict() -> None:
    found = parts(seat(RankState.OK, JOBS))
    assert [rank.state for rank in found.values()] == [RankState.OK] * 3
    metrics = {figure["metric"] for figure in (found["gpu_memory"].verdict or {})["figures"]}
    assert metrics == {"device_copy", "device_triad"}
    assert (found["gpu_memory"].verdict or {})["properties"]["sm_count"] == 108


@pytest.mark.parametrize("state", [RankState.CRASHED, RankState.HUNG])
def test_a_rank_that_fails_keeps_earlier_verdicts_and_fails_its_program(
    state: RankState,
) -> None:
    found = parts(seat(state, ("gpu_gemm",), "hung while gpu_memory: timing copies"))
    assert [rank.state for rank in found.values()] == [RankState.OK, state, RankState.KILLED]
    assert "gpu_memory failed first" in found["gpu_launch"].because


class Launcher:
    def __init__(self, answer: Any) -> None:
        self.answer, self.asked = answer, list[JobSpec]()

    def run(self, spec: JobSpec, *, on_event: Any) -> JobOutcome:
        self.asked.append(spec)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer  # type: ignore[no-any-return]


def fresh() -> Evidence:
    return replace(sample.healthy(), jobs={})


def ran(evidence: Evidence, answer: Any, suite: str = "quick") -> tuple[Evidence, Launcher]:
    launcher = Launcher(answer)
    return run_single_gpu_jobs(load(suite), evidence, launcher, lambda event: None), launcher


def test_one_launch_has_every_program_of_the_suite_with_its_arguments_and_the_framework() -> None:
    evidence = fresh()
    torch = replace(evidence.spec, framework="torch")
    _, launcher = ran(replace(evidence, spec=torch), JobOutcome("gpu-programs", (), 1.0), "full")
    (spec,) = launcher.asked
    assert (spec.alone, spec.framework, spec.program) == (True, "torch", "gpu_programs.py")
    assert spec.arguments["framework"] == "torch"
    programs = {each["job"]: each["program"] for each in spec.arguments["programs"]}
    assert set(programs) == set(gpus.JOBS)
    assert programs["gpu_pattern"] == "gpu_memory"
    assert spec.timeout_s == sum(load("full").jobs[job].timeout_s for job in programs)


@pytest.mark.parametrize(
    ("answer", "because"),
    [
        (ExplainedError("gpu01: busy", code="launch.busy"), "could not be started: gpu01: busy"),
        (OSError("no thread"), "the launcher failed: OSError: no thread"),
    ],
)
def test_without_a_launch_every_gpu_is_not_run_with_the_reason(answer: Exception, because: str) -> None:
    evidence, _ = ran(fresh(), answer)
    for check in ("gpu-gemm", "gpu-transfer"):
        results = evaluate(BY_ID[check], evidence)
        assert {result.verdict for result in results} == {Verdict.NOT_RUN}
        assert all(because in result.because for result in results)


def test_without_an_image_or_a_free_node_nothing_is_launched() -> None:
    evidence = fresh()
    bare, launcher = ran(replace(evidence, spec=replace(evidence.spec, image="")), None)
    assert "no training image is declared" in bare.skipped["gpu_gemm"] and launcher.asked == []
    busy = replace(evidence, left_out={node.name: "busy" for node in evidence.spec.nodes})
    assert ran(busy, None)[0].skipped["gpu_gemm"] == "no node could take part"
    own = tuple(
        replace(node, settings=NodeSettings(image=sample.IMAGE if node.name == "gpu02" else ""))
        for node in evidence.spec.nodes
    )
    _, launcher = ran(replace(evidence, spec=replace(evidence.spec, nodes=own)), JobOutcome("x", (), 1.0))
    assert launcher.asked[0].nodes == ("gpu02",)


def test_a_gpu_is_found_by_its_pci_address_where_another_is_gone() -> None:
    evidence = sample.healthy()
    addresses = [f"0000:{bus}:00.0" for bus in smi.BUSES]
    left = [address for address in addresses if address != addresses[3]]
    whole = gpus.outcome("gpu_gemm", ["gpu01", "gpu02", "gpu03"], addresses)
    ranks = []
    for rank in whole.ranks:
        if rank.node != "gpu01":
            ranks.append(rank)
        elif (rank.gpu or 0) < 7:
            said = dict(rank.verdict or {})
            said["properties"] = {**said["properties"], "pci_address": left[rank.gpu or 0].upper()}
            ranks.append(replace(rank, verdict=said))
    evidence = seeding.chain(
        seeding.lose_gpu("gpu01", 3, from_bus=True),
        lambda known: seeding.with_job(known, replace(whole, ranks=tuple(ranks))),
        seeding_gpus.Seeds("gpu_gemm").scaled("gpu01", 6, 0.5),
    )(evidence)
    found = {result.subject: result for result in evaluate(BY_ID["gpu-gemm"], evidence)}
    assert found[Subject("gpu01", 3)].verdict is Verdict.NOT_RUN
    assert "did not see it" in found[Subject("gpu01", 3)].because
    failed = [subject for subject, result in found.items() if result.verdict is Verdict.FAIL]
    assert failed == [Subject("gpu01", 7)]


def test_a_silent_rank_is_placed_by_its_order_among_those_on_the_bus() -> None:
    evidence = seeding.chain(
        seeding_gpus.Seeds("gpu_gemm").ended("gpu01", 5, RankState.HUNG),
    )(sample.healthy())
    failed = [r.subject for r in evaluate(BY_ID["gpu-gemm"], evidence) if r.verdict is Verdict.FAIL]
    assert failed == [Subject("gpu01", 5)]


def test_with_mig_on_a_gpu_is_excluded() -> None:
    evidence = seeding.smi("gpu01", 2, "mig_mode/current_mig", "Enabled")(sample.healthy())
    results = {r.subject: r for r in evaluate(BY_ID["gpu-burn"], evidence)}
    assert results[Subject("gpu01", 2)].verdict is Verdict.EXCLUDED
    assert results[Subject("gpu01", 1)].verdict is Verdict.PASS


def test_the_clocks_of_nvidia_smi_are_the_ceiling_of_a_gpu_that_boosts_beyond_its_rate() -> None:
    fast = seeding_gpus.Seeds("gpu_gemm").scaled("gpu01", 0, 1.2, "gemm_fp32")(sample.healthy())
    assert evaluate(BY_ID["gpu-gemm"], fast)[0].verdict is Verdict.NOT_RUN

    def boosts(root: Any) -> None:
        for tag, text in (("sm_clock", "2100 MHz"), ("mem_clock", "1593 MHz")):
            clocks = root.findall("gpu")[0].find("max_clocks")
            clocks = clocks if clocks is not None else _child(root.findall("gpu")[0], "max_clocks")
            _child(clocks, tag).text = text

    assert evaluate(BY_ID["gpu-gemm"], seeding.smi_root("gpu01", boosts)(fast))[0].verdict is Verdict.PASS


def _child(parent: Any, tag: str) -> Any:
    child = parent.makeelement(tag, {})
    parent.append(child)
    return child


def test_efficiency_expectation_and_source_are_in_the_result() -> None:
    result = evaluate(BY_ID["gpu-memory-bandwidth"], sample.healthy())[0]
    assert result.efficiency == pytest.approx(1760 / 2039, abs=0.01)
    assert result.source == "the median of 24 equals"
    (copied,) = [one for one in result.figures if one.figure.metric == "device_copy"]
    limits = {part.part: part.limit for part in copied.parts}
    assert limits[Part.FLOOR] == pytest.approx(1371 * 0.95, rel=1e-3)
    assert limits[Part.CEILING] == pytest.approx(2039 * 1.02, rel=1e-3)


# --- placement and blame


def report(node: str, devices: int, *, cuda: bool = True) -> NodeReport:
    return NodeReport(node, "eth0", "192.0.2.1", "", (4000,), -1, False, cuda, devices, "3.3.1", (), devices)


def test_a_rank_a_gpu_and_a_node_without_gpus_is_refused_by_name() -> None:
    placement = place_independent_ranks([report("gpu01", 2), report("gpu02", 1)])
    assert [(place.node, place.gpu) for place in placement.ranks] == [
        ("gpu01", 0),
        ("gpu01", 1),
        ("gpu02", 0),
    ]
    environments = [place.environment for place in placement.ranks]
    assert [each["PADDLE_TRAINER_ID"] for each in environments] == ["0", "1", "2"]
    assert [each["CLUSTERCTL_GPU"] for each in environments] == ["0", "1", "0"]
    assert all(each["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID" for each in environments)
    (refused,) = find_nodes_without_devices([report("gpu01", 2), report("gpu02", 0, cuda=False)], "paddle")
    assert refused.node == "gpu02"
    assert refused.because == "a container of the image sees no GPU: its paddle 3.3.1 lacks CUDA"


def left(rank: int, **more: Any) -> RankEvidence:
    return RankEvidence(rank, "gpu01", gpu=rank, order=rank, **more)


def test_ranks_without_peers_are_judged_each_for_itself() -> None:
    killed = {"exit_code": -9, "killed": "stalled", "state": "S"}
    ranks, first = judge_ranks(
        [
            left(0, verdict={"ok": True}, end={"exit_code": 0}),
            left(1, end={"exit_code": -11}, progress={"phase": "timing fp16"}),
            left(2, end=killed, progress={"phase": "timing copies", "collective": False}),
            left(3, end=killed, progress={"phase": "waiting for its turn", "collective": True}),
            left(4, end={**killed, "state": "D"}, progress={"phase": "allocating"}),
        ]
    )
    states = [rank.state for rank in ranks]
    assert states == [RankState.OK, RankState.CRASHED, RankState.HUNG, RankState.KILLED, RankState.HUNG]
    assert ranks[2].because == "hung while timing copies"
    assert "is blocked in the kernel" in ranks[4].because
    assert first is not None and first.rank == 1


def test_what_ends_a_rank_that_waits_for_its_turn_is_no_word_on_its_gpu() -> None:
    waiting = {"phase": "gpu_transfer: waiting for its turn on NUMA node 0", "collective": True}
    ranks, first = judge_ranks(
        [
            left(0, end={"exit_code": -9}, progress=waiting),
            left(1, end={"exit_code": -9}, progress={"phase": "gpu_transfer: timing", "collective": False}),
        ]
    )
    assert [rank.state for rank in ranks] == [RankState.KILLED, RankState.CRASHED]
    assert ranks[0].because.startswith("killed by SIGKILL while gpu_transfer: waiting")
    assert first is not None and first.rank == 1
