"""What a validation is compared with: which run, what of it, and what it says of the rest."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.support.judged import incomplete, passing, with_variables
from tests.support.validation_in_memory import FakeLauncher, run

from clustercheck.checks.all import BY_ID
from clustercheck.checks.base import evaluate
from clustercheck.checks.support import seeding, seeding_gpus
from clustercheck.errors import ExplainedError
from clustercheck.evidence.cluster import Evidence
from clustercheck.evidence.comparison import replaced, unfit
from clustercheck.expect import baseline
from clustercheck.expect.baseline import Baseline, BaselineFigure, BaselineGpu
from clustercheck.model import Figure, Subject, Verdict
from clustercheck.result.environment import describe
from clustercheck.running.suites import load
from clustercheck.samples import sample, smi
from clusterctl.cluster.directory import ClusterDirectory
from clusterctl.report import baselines, files
from clusterctl.runs.store import RunStore

FIGURE = {
    "metric": "link_rate", "measured": 25.0, "unit": "GB/s", "better": "higher", "efficiency": None,
    "method": BY_ID["nvlink"].method, "conditions": {}, "verdict": "pass", "parts": [],
}  # fmt: skip
GPUS = [
    {"model": smi.MODEL, "serial": f"{n}", "address": f"0000:{bus}:00.0"} for n, bus in enumerate(smi.BUSES)
]


def document(verdict: str = "pass", **figure: Any) -> dict[str, Any]:
    result = {
        "check": "nvlink",
        "subject": {"node": "gpu01", "gpu": 0, "peer": None},
        "verdict": "pass",
        "figures": [{**FIGURE, **figure}],
    }
    return {
        "schema": "clusterctl/result/1", "run": "r1", "finished": "2026-11-20T10:00:00Z", "cluster": "c",
        "suite": "quick", "verdict": verdict, "simulated": False, "results": [result],
        "environment": {"nodes": {"gpu01": {"driver": "570.1", "gpus": GPUS}}},
    }  # fmt: skip


def compared(then: Baseline, evidence: Evidence | None = None) -> Evidence:
    evidence = evidence or sample.healthy()
    return replace(evidence, baseline=then, replaced=replaced(evidence, then))


def parts(evidence: Evidence, subject: Subject = Subject("gpu01", 0)) -> dict[str, Verdict]:  # noqa: B008
    result = next(r for r in evaluate(BY_ID["nvlink"], evidence) if r.subject == subject)
    return {part.part.value: part.verdict for part in result.figures[0].parts}


def serial(gpu: int) -> str:
    return sample.healthy().nodes["gpu01"].smi().gpus[gpu].serial


def same_gpus(then: Baseline) -> Baseline:
    gpus = {f"0000:{bus}:00.0": BaselineGpu(smi.MODEL, serial(n)) for n, bus in enumerate(smi.BUSES)}
    return replace(then, nodes={"gpu01": replace(then.nodes["gpu01"], gpus=gpus)})


def test_a_figure_is_compared_with_the_same_one_of_then() -> None:
    then = same_gpus(baseline.from_result(document(measured=30.0), where="here"))
    assert parts(compared(then))["baseline"] is Verdict.FAIL
    assert "baseline" not in parts(compared(then), Subject("gpu01", 1))
    slightly = same_gpus(baseline.from_result(document(measured=26.0), where="here"))
    assert parts(compared(slightly))["baseline"] is Verdict.PASS
    section = describe(compared(then))["baseline"]
    assert section["run"] == "r1" and section["not_compared"] == []
    assert section["differs"] == [f"driver 570.1 -> {smi.DRIVER}: gpu01"]


@pytest.mark.parametrize(
    "other", [{"method": "by eye"}, {"unit": "Gb/s"}, {"conditions": {"ranks": 2}}, {"metric": "rate"}]
)
def test_what_was_measured_in_another_way_is_not_compared(other: dict[str, Any]) -> None:
    then = same_gpus(baseline.from_result(document(**{"measured": 30.0, **other}), where="here"))
    assert "baseline" not in parts(compared(then))


def test_a_node_that_says_too_much_is_compared_with_nothing_and_others_are() -> None:
    made = document(measured=30.0)
    made["environment"]["nodes"]["gpu02"] = {"driver": "570.1", "gpus": [*GPUS[:7], {"model": smi.MODEL}]}
    then = baseline.from_result(made, where="here")
    assert len(then.nodes["gpu02"].gpus) == 7
    assert parts(compared(same_gpus(then)))["baseline"] is Verdict.FAIL


def test_a_swapped_gpu_is_compared_with_nothing_and_that_is_said() -> None:
    then = baseline.from_result(document(measured=30.0), where="here")  # other serial numbers
    evidence = compared(then)
    assert "baseline" not in parts(evidence)
    section = describe(evidence)["baseline"]
    assert f"serial 0 -> {serial(0)}" in section["not_compared"][0]
    silent = compared(then, seeding.smi("gpu01", 0, "serial", "N/A")(sample.healthy()))
    assert parts(silent)["baseline"] is Verdict.FAIL
    gpus = {f"0000:{bus}:00.0": BaselineGpu("NVIDIA H100", "") for bus in smi.BUSES}
    other = replace(then, nodes={"gpu01": replace(then.nodes["gpu01"], gpus=gpus)})
    assert "baseline" not in parts(compared(other))
    assert "of another model" in " ".join(compared(other).replaced.values())


def test_a_model_that_an_older_driver_names_without_the_vendor_is_the_same() -> None:
    """As drivers of the branches 440 to 460 do."""
    then = same_gpus(baseline.from_result(document(measured=30.0), where="here"))
    gpus = {
        at: replace(gpu, model=gpu.model.removeprefix("NVIDIA "))
        for at, gpu in then.nodes["gpu01"].gpus.items()
    }
    assert {gpu.model for gpu in gpus.values()} == {"A100-SXM4-80GB"}
    older = replace(then, nodes={"gpu01": replace(then.nodes["gpu01"], gpus=gpus)})
    assert compared(older).replaced == {} and parts(compared(older))["baseline"] is Verdict.FAIL


@pytest.mark.parametrize(("model", "same"), [("A100-SXM4-80GB", True), ("NVIDIA A100-SXM4-40GB", False)])
def test_figures_of_a_gpu_are_compared_with_those_of_its_model(model: str, *, same: bool) -> None:
    figure = Figure(
        "gemm_bf16", 200.0, "TFLOPS", "warm", conditions={"gpu": "NVIDIA A100-SXM4-80GB", "size": 8192}
    )
    then = BaselineFigure(250.0, "TFLOPS", "warm", {"gpu": model, "size": 8192})
    subject = Subject("gpu01", 0)
    kept = Baseline("r1", "2026-11-01T00:00:00Z", False, {("gpu-gemm", subject, "gemm_bf16"): then})
    assert (kept.before("gpu-gemm", subject, figure) is not None) is same


def test_launches_of_few_gpus_are_judged_by_a_baseline_that_has_them_and_by_no_other() -> None:
    few = seeding_gpus.Seeds("gpu_launch").only_gpus("gpu01", 3)(sample.healthy())
    check, gpu = BY_ID["gpu-launch-latency"], Subject("gpu01", 0)

    def verdict(evidence: Evidence) -> Verdict:
        return next(r.verdict for r in evaluate(check, evidence) if r.subject == gpu)

    assert verdict(few) is Verdict.EXCLUDED
    others = baseline.from_result(document(), where="here")  # it has links, and no launches
    assert verdict(replace(few, baseline=others)) is Verdict.EXCLUDED
    for factor, expected in ((1.0, Verdict.PASS), (0.3, Verdict.FAIL)):
        known = seeding.with_baseline(check.id, check.judge, gpu, factor)(few)
        assert verdict(known) is expected


def test_simulated_hardware_is_compared_with_its_like_alone() -> None:
    then = baseline.from_result(document(), where="here")
    real, lab = sample.healthy(), simulated("gpu01", "gpu02", "gpu03")
    assert unfit(real, then) == "" == unfit(lab, replace(then, simulated=True))
    assert "simulated" in unfit(lab, then)
    assert "simulated" in unfit(real, replace(then, simulated=True))


def simulated(*nodes: str) -> Evidence:
    """The healthy sample where these say that their GPUs are simulated."""

    def say_so(raw: seeding.Raw) -> None:
        printed = raw["nvidia_smi"]["stdout"]
        text = printed.replace("</timestamp>", "</timestamp><simulated>yes</simulated>", 1)
        assert text != printed
        raw["nvidia_smi"]["stdout"] = text

    return seeding.chain(*(seeding.edit(node, say_so) for node in nodes))(sample.healthy())


@pytest.mark.parametrize("lied_then", [False, True])
def test_a_node_that_says_it_is_simulated_leaves_the_others_compared(*, lied_then: bool) -> None:
    """Now, or in the run that is the baseline."""
    nodes = {
        name: {"driver": "570.1", "gpus": [], "simulated": lied_then and name == "gpu02"}
        for name in ("gpu01", "gpu02", "gpu03")
    }
    recorded = {**document(measured=30.0), "simulated": lied_then, "environment": {"nodes": nodes}}
    then = baseline.from_result(recorded, where="here")
    lying = sample.healthy() if lied_then else simulated("gpu02")
    assert unfit(lying, then) == "" and set(replaced(lying, then)) == {("gpu02", None)}
    assert parts(compared(then, lying))["baseline"] is Verdict.FAIL
    kept = parts(compared(then, lying)), parts(compared(then, sample.healthy()))
    assert kept[0] == kept[1]


def test_a_baseline_that_says_of_no_node_whether_it_was_simulated_is_compared_as_before() -> None:
    then = same_gpus(baseline.from_result({**document(), "simulated": True}, where="here"))
    assert then.nodes["gpu01"].simulated is None
    assert replaced(simulated("gpu03"), then) == {} == replaced(simulated("gpu01"), then)
    assert set(replaced(simulated("gpu01"), replace(then, simulated=False))) == {("gpu01", None)}


@pytest.mark.parametrize("verdict", ["fail", "incomplete"])
def test_what_did_not_pass_is_no_baseline(verdict: str) -> None:
    with pytest.raises(ExplainedError) as error:
        baseline.from_result(document(verdict), where="here")
    assert error.value.code == "baseline.unfit" and verdict in error.value.what


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"schema": "clusterctl/baseline/1"}', '{"schema": "clusterctl/result/1"}', "[" * 9000,
     json.dumps({**baseline.record_of(document()), "figures": [{"check": 1}]}),
     json.dumps({**baseline.record_of(document()), "figures": 7}),
     json.dumps(baseline.record_of(document(measured=float("nan")))),
     json.dumps(baseline.record_of(document(measured=25.0))).replace('"measured": 25.0', '"measured": true'),
     json.dumps(baseline.record_of(document(measured="fast")))],
)  # fmt: skip
def test_what_is_no_baseline_is_refused_with_a_sentence(text: str) -> None:
    with pytest.raises(ExplainedError) as error:
        baseline.parse(text, where="there")
    assert error.value.code == "baseline.unreadable" and error.value.where == "there"


def test_it_is_the_same_out_of_its_own_file_and_out_of_a_result() -> None:
    record = json.dumps(baseline.record_of(document()))
    assert baseline.parse(record, where="a") == baseline.parse(json.dumps(document()), where="b")


@pytest.fixture
def site(tmp_path: Path) -> ClusterDirectory:
    (tmp_path / "hosts.yml").write_text("all: {}\n")
    return ClusterDirectory(tmp_path)


def kept(site: ClusterDirectory, made: dict[str, Any], *arguments: str) -> str:
    store = RunStore(site)
    run = store.create("validate", list(arguments))
    run.path(files.RESULT).write_text(json.dumps({**made, "run": run.id}))
    store.finish(run, 0, {"verdict": made["verdict"]})
    return run.id


def chosen(
    site: ClusterDirectory, named: str | None, suite: str = "quick", nodes: Sequence[str] = ("gpu01",)
) -> Baseline | None:
    return baselines.chosen(site, named, load(suite), nodes, lambda limit: limit.split(","))


def of_nodes(*names: str, suite: str = "quick") -> dict[str, Any]:
    """A run of these nodes that passed."""
    made = document()
    nodes = dict.fromkeys(names, made["environment"]["nodes"]["gpu01"])
    return {**made, "suite": suite, "environment": {"nodes": nodes}}


def test_without_a_saved_one_the_last_run_counts_that_has_most_of_these_nodes_and_checks(
    site: ClusterDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    def used(suite: str, *nodes: str) -> str | None:
        found = chosen(site, None, suite, nodes)
        return found.run if found else None

    every = ("gpu01", "gpu02", "gpu03")
    standard, quick = kept(site, of_nodes(*every, suite="standard")), kept(site, of_nodes(*every))
    one = kept(site, of_nodes("gpu01"))
    kept(site, of_nodes(*every, suite="of another version"))
    assert used("quick", *every) == quick
    assert used("standard", *every) == used("full", *every) == standard
    assert used("quick", "gpu01") == one
    assert used("standard", "gpu01") == standard
    assert used("quick", "gpu01", "gpu02") == quick
    assert used("quick", *every, "gpu04") == quick  # nobody measured the new one yet
    assert used("quick", "gpu04") is None
    assert (found := chosen(site, one, "full", every)) is not None and found.run == one
    monkeypatch.setattr(baselines, "MOST_LOOKED_AT", 2)  # of many, not all are read
    assert used("quick", *every) == one


def test_any_number_of_runs_of_smaller_suites_fewer_nodes_or_single_checks_hides_no_whole_one(
    site: ClusterDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    def used(*nodes: str) -> str | None:
        found = chosen(site, None, "standard", nodes)
        return found.run if found else None

    every = ("gpu01", "gpu02", "gpu03")
    whole = kept(site, of_nodes(*every, suite="standard"), "--suite", "standard")
    only = of_nodes(*every, suite="standard")
    only["environment"]["only_checks"] = ["nvlink"]
    kept(site, only, "--suite", "standard", "--checks", "nvlink")
    limit = ("--suite", "standard", "--limit", "gpu01,gpu02")
    two = kept(site, of_nodes("gpu01", "gpu02", suite="standard"), *limit)
    kept(site, of_nodes(*every), "--suite", "quick")
    monkeypatch.setattr(baselines, "MOST_LOOKED_AT", 1)
    assert used(*every) == used("gpu03") == whole
    assert used("gpu01", "gpu02") == used("gpu01") == two  # the newer of two that have all


def test_named_then_saved_then_the_last_good_run(
    site: ClusterDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    assert chosen(site, None) is None
    first = kept(site, document())
    kept(site, document("fail"))
    kept(site, {**document(), "results": []})
    some = document()
    some["environment"]["only_checks"] = ["gpu-gemm"]
    kept(site, some)
    broken = kept(site, document())
    (site.runs / broken / files.RESULT).write_text("{")
    assert (found := chosen(site, None)) is not None and found.run == first
    assert f"run {broken} passed, but is not used as the baseline: " in capsys.readouterr().err
    second = kept(site, document())
    assert (found := chosen(site, None)) is not None and found.run == second
    assert (found := chosen(site, first)) is not None and found.run == first
    path = baselines.save(site, replace(passing(), run="saved"))
    kept(site, document())
    assert (found := chosen(site, None)) is not None and found.run == "saved"
    assert (found := chosen(site, str(path))) is not None and found.run == "saved"
    assert chosen(site, "none") is None
    for wrong, code in (("2031", "runs.unknown"), (broken, "report.changed")):
        with pytest.raises(ExplainedError) as error:
            chosen(site, wrong)
        assert error.value.code == code
    with pytest.raises(ExplainedError):
        baselines.save(site, incomplete())


def test_a_saved_baseline_that_cannot_be_looked_for_is_not_passed_over(site: ClusterDirectory) -> None:
    site.state.symlink_to(site.state.name)
    with pytest.raises(ExplainedError) as caught:
        chosen(site, None)
    assert (caught.value.code, caught.value.where) == ("baseline.unreadable", str(site.baseline_file))


def test_what_got_slower_than_the_baseline_fails_though_it_is_above_the_floor() -> None:
    good = run()
    then = baseline.from_result(good, where="test")
    of_gpus = {"gpu-gemm", "gpu-memory-bandwidth", "gpu-launch-latency", "gpu-transfer"}
    assert {check for check, _, _ in then.figures} == {
        "nvlink",
        "pcie-replays",
        "all-reduce-bandwidth",
        *of_gpus,
    }
    assert run(baseline=then)["verdict"] == "pass"
    slower = dict.fromkeys((frozenset({"gpu01"}), frozenset({"gpu02"}), frozenset({"gpu03"})), 1.2)
    launcher = FakeLauncher(slow=slower)
    assert run(launcher=FakeLauncher(slow=slower))["verdict"] == "pass"
    document = run(launcher=launcher, baseline=then)
    (failed,) = [r for r in document["results"] if r["verdict"] == "fail"]
    assert (
        failed["check"] == "all-reduce-bandwidth" and "40 % below the 2 GB/s of run test" in failed["because"]
    )
    assert failed["expected"] == 1.3 and failed["margin"] < 0
    parts = {part["part"]: part["verdict"] for part in failed["figures"][0]["parts"]}
    assert parts == {"ceiling": "pass", "floor": "pass", "baseline": "fail"}
    assert "pairs.py" in [job.program for job in launcher.jobs]  # it continues to find out who
    assert document["environment"]["baseline"]["run"] == "test"
    nodes = {name: replace(node, simulated=True) for name, node in then.nodes.items()}
    other = run(baseline=replace(then, simulated=True, nodes=nodes))
    assert other["verdict"] == "pass" and other["environment"]["baseline"] is None
    assert "compared with no baseline" in other["environment"]["notes"][0]


def test_a_variable_of_the_jobs_that_has_changed_is_named_with_its_nodes() -> None:
    every = {"NCCL_IB_TC": "106", "NCCL_IB_HCA": "=mlx5_0"}
    then = with_variables(sample.healthy(), gpu01=every, gpu02=every, gpu03=every)
    kept = document()
    kept["environment"]["nodes"] = describe(then)["nodes"]
    saved = json.loads(json.dumps(baseline.record_of(kept)))
    before = baseline.from_record(saved, where="here")
    now = with_variables(
        sample.healthy(),
        gpu01={"NCCL_IB_TC": "105", "NCCL_ALGO": "RING", "NCCL_IB_HCA": "=mlx5_0"},
        gpu02={"NCCL_IB_TC": "105", "NCCL_ALGO": "RING"},
        gpu03={"NCCL_IB_TC": "105", "NCCL_IB_HCA": "=mlx5_0"},
    )
    assert describe(compared(before, now))["baseline"]["differs"] == [
        "NCCL_ALGO not set -> RING: gpu01, gpu02",
        "NCCL_IB_TC 106 -> 105",
        "NCCL_IB_HCA =mlx5_0 -> not set: gpu02",
    ]
    assert describe(compared(before, then))["baseline"]["differs"] == []


def test_a_baseline_from_before_variables_were_recorded_is_compared_in_the_rest() -> None:
    then = baseline.from_result(document(), where="here")
    now = with_variables(sample.healthy(), gpu01={"NCCL_IB_TC": "105"})
    section = describe(compared(then, now))["baseline"]
    assert section["differs"] == [f"driver 570.1 -> {smi.DRIVER}: gpu01"]
