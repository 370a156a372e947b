"""Ways to train against float32: which GPU, what a CPU proves, what an older GPU lacks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.support.malformed import require_not_run

from clustercheck.checks import training_recipes as checked
from clustercheck.checks.all import BY_ID
from clustercheck.checks.base import evaluate
from clustercheck.checks.support import seeding
from clustercheck.evidence.cluster import GPUS_IDLE, Evidence
from clustercheck.expect import profiles
from clustercheck.expect.training import recipe_limit
from clustercheck.launch.model import RankOutcome
from clustercheck.model import Direction, Part, Result, Subject, Verdict
from clustercheck.samples import sample
from clustercheck.samples.verdicts import described


def judged(check: str, evidence: Evidence, node: str = "gpu02") -> Result:
    return next(one for one in evaluate(BY_ID[check], evidence) if one.subject == Subject(node))


def on_cpu(rank: RankOutcome, verdict: seeding.Raw) -> None:
    verdict.update(described(rank.rank, 3), not_done={"bert_base amp": "paddle 3.3.1 on cpu has no AMP"})
    verdict["cases"] = [case for case in verdict["cases"] if case["recipe"] not in ("amp", "tf32")]


def cpu_evidence() -> Evidence:
    whole = sample.healthy()
    outcome = whole.jobs[checked.JOB]
    ranks = tuple(replace(rank, gpu=None) for rank in outcome.ranks if rank.gpu == 0)
    one_each = seeding.with_job(whole, replace(outcome, ranks=ranks, facts={"backend": "gloo"}))
    return seeding.verdicts(checked.JOB, on_cpu)(one_each)


def simulated(evidence: Evidence) -> Evidence:
    mark = "<nvidia_smi_log>\n<simulated>yes</simulated>"
    marks = (seeding.stdout(node, "nvidia_smi", "<nvidia_smi_log>", mark) for node in evidence.nodes)
    return seeding.chain(*marks)(evidence)


def test_the_slowest_gpu_of_a_node_is_named_with_its_model() -> None:
    def slow(rank: RankOutcome, verdict: seeding.Raw) -> None:
        for case in verdict["cases"]:
            if (rank.node, rank.gpu, case["model"], case["recipe"]) == ("gpu02", 5, "resnet50", "amp"):
                case["step_s"] *= 4

    evidence = seeding.verdicts(checked.JOB, slow)(sample.healthy())
    result = judged("training-amp", evidence)
    assert result.verdict is Verdict.FAIL
    assert "GPU 5" in result.because
    assert judged("training-amp", evidence, "gpu01").verdict is Verdict.PASS


def test_figures_of_a_cpu_are_shown_and_compared_with_nothing() -> None:
    bare = cpu_evidence()
    bare = replace(
        bare,
        spec=replace(
            bare.spec, nodes=tuple(replace(node, gpu_count=0, profile="") for node in bare.spec.nodes)
        ),
    )
    result = judged("training-recomputation", bare)
    assert result.verdict is Verdict.PASS
    assert [one.figure.metric for one in result.figures] == [
        "bert_base_recomputation_speed",
        "bert_base_recomputation_memory",
    ]
    assert all(one.parts == () and "says nothing of GPUs" in one.figure.method for one in result.figures)
    amp = judged("training-amp", bare)
    assert (amp.verdict, amp.because) == (Verdict.EXCLUDED, "paddle 3.3.1 on cpu has no AMP")


def test_real_gpus_that_were_not_used_are_not_excused() -> None:
    for check in checked.IDS.values():
        result = judged(check, cpu_evidence())
        assert (result.verdict, result.because) == (Verdict.NOT_RUN, GPUS_IDLE)


def test_a_wrong_gradient_is_found_beside_a_rank_that_cannot_be_read() -> None:
    def change(rank: RankOutcome, verdict: seeding.Raw) -> None:
        if rank.node == "gpu02" and rank.gpu == 0:
            verdict["cases"] = None
        if rank.node == "gpu02" and rank.gpu == 1:
            for case in verdict["cases"]:
                case["gradient_difference"] = 0.3

    result = judged("training-accumulation", seeding.verdicts(checked.JOB, change)(sample.healthy()))
    assert result.verdict is Verdict.FAIL
    assert "GPU 1" in result.because and "gradients differ" in result.because


@pytest.mark.parametrize("recipe", checked.IDS)
def test_what_has_no_source_has_no_limit_and_says_so(recipe: str) -> None:
    for one in judged(checked.IDS[recipe], sample.healthy()).figures:
        model, _, quantity = one.figure.metric.partition(f"_{recipe}_")
        has_limit = Part.FLOOR in [part.part for part in one.parts]
        limit = recipe_limit(recipe, quantity, profiles.load(sample.PROFILE), model=model)
        assert has_limit is (limit is not None)
        assert has_limit is not ("no limit has a source" in one.figure.method)
        assert one.figure.better is (Direction.HIGHER if quantity == "speed" else Direction.LOWER)


def test_a_bert_has_no_floor_of_amps_speed_and_says_so() -> None:
    """What an H200 gained over TF32 was 1.06: the source of 1.5 is of ResNet-50."""

    def slow(_rank: RankOutcome, verdict: seeding.Raw) -> None:
        exact = {case["model"]: case for case in verdict["cases"] if case["recipe"] == "fp32"}
        for case in verdict["cases"]:
            if (case["model"], case["recipe"]) == ("bert_base", "amp"):
                case["step_s"] = exact["bert_base"]["step_s"] / 1.06

    result = judged("training-amp", seeding.verdicts(checked.JOB, slow)(sample.healthy()))
    assert result.verdict is Verdict.PASS
    figures = {one.figure.metric: one for one in result.figures}
    bert, resnet = figures["bert_base_amp_speed"], figures["resnet50_amp_speed"]
    assert bert.figure.floor is None and bert.figure.method.endswith("speed; no limit has a source")
    assert resnet.figure.floor is not None


def test_speed_is_that_of_samples_and_not_of_steps() -> None:
    exact = {"step_s": 1.0, "batch": 8, "peak_memory_bytes": 100}
    half = {"step_s": 0.5, "batch": 4, "peak_memory_bytes": None}
    cases = {("m", "fp32"): exact, ("m", "amp"): half}
    assert checked._ratio(cases, "m", "amp", "speed") == 1.0
    assert checked._ratio(cases, "m", "amp", "memory") is None


@pytest.mark.parametrize(
    "answer",
    [
        {"cases": None}, {"cases": {}}, {"cases": []}, {"cases": [None]}, {"not_done": []},
    ],
    ids=str,
)  # fmt: skip
def test_an_answer_of_another_form_is_not_run(answer: dict[str, Any]) -> None:
    require_not_run(BY_ID["training-amp"], lambda verdict: verdict.update(answer))


@pytest.mark.parametrize(
    "case",
    [
        {"model": None}, {"recipe": "magic"}, {"step_s": 0}, {"batch": None}, {"steps": "30"},
        {"peak_memory_bytes": "1"}, {"loss_difference": True}, {"loss_scale": float("nan")},
        {"losses": None}, {"losses": [2.0]}, {"losses": [2.0, "1"]}, {"losses": [2.0] * 20_000},
    ],
    ids=lambda case: str(case)[:40],
)  # fmt: skip
def test_a_case_of_another_form_is_not_run(case: dict[str, Any]) -> None:
    require_not_run(BY_ID["training-amp"], lambda verdict: verdict["cases"][0].update(case))
    require_not_run(BY_ID["training-amp"], lambda verdict: verdict["cases"][0].pop("loss_scale"))


@pytest.mark.parametrize("recipe", ["fp32", "amp"])
def test_a_model_that_one_rank_omits_is_not_run(recipe: str) -> None:
    def omit(verdict: dict[str, Any]) -> None:
        verdict["cases"] = [
            case for case in verdict["cases"] if (case["model"], case["recipe"]) != ("resnet50", recipe)
        ]

    require_not_run(BY_ID["training-amp"], omit)


def test_a_recipe_that_is_missing_without_a_reason_is_not_run() -> None:
    def omit(rank: RankOutcome, verdict: seeding.Raw) -> None:
        verdict["cases"] = [case for case in verdict["cases"] if case["recipe"] != "amp"]

    result = judged("training-amp", seeding.verdicts(checked.JOB, omit)(sample.healthy()))
    assert result.verdict is Verdict.NOT_RUN
    assert "did not train by amp and does not say why" in result.because


@pytest.mark.parametrize(
    ("name", "limited"),
    [
        ("v100-pcie-16gb", True), ("v100-sxm2-32gb", True), ("hgx-a100-40gb", True), ("h100-nvl-94gb", True),
        ("l40s-48gb", False), ("rtx-4090-24gb", False), ("h20-sxm5-96gb", False), ("a10-24gb", False),
    ],
)  # fmt: skip
def test_amps_speed_is_limited_where_tensor_cores_are_as_fast_as_its_sources(
    name: str, limited: bool
) -> None:
    profile = profiles.load(name)
    assert (recipe_limit("amp", "speed", profile, model="resnet50") is not None) is limited
    assert recipe_limit("amp", "speed", profile, model="bert_base") is None
    assert recipe_limit("amp", "speed", None, model="resnet50") is None
    assert recipe_limit("amp", "memory", profiles.load(name)) is not None


def test_what_another_recipe_computes_wrongly_is_its_own_checks() -> None:
    def wrong(rank: RankOutcome, verdict: seeding.Raw) -> None:
        for case in verdict["cases"]:
            if case["recipe"] == "accumulation":
                case["gradient_difference"] = 0.3

    evidence = seeding.verdicts(checked.JOB, wrong)(sample.healthy())
    found = {check: judged(check, evidence).verdict for check in checked.IDS.values()}
    assert found.pop("training-accumulation") is Verdict.FAIL
    assert set(found.values()) == {Verdict.PASS}


def test_simulated_gpus_lack_amp_as_the_cpu_does() -> None:
    amp = judged("training-amp", simulated(cpu_evidence()))
    assert (amp.verdict, amp.because) == (Verdict.EXCLUDED, "paddle 3.3.1 on cpu has no AMP")
    assert judged("training-recomputation", simulated(cpu_evidence())).verdict is Verdict.PASS


def test_the_reason_of_the_recipe_itself_is_given() -> None:
    def lacks(rank: RankOutcome, verdict: seeding.Raw) -> None:
        verdict["cases"] = [case for case in verdict["cases"] if case["recipe"] not in ("amp", "tf32")]
        verdict["not_done"] = {"bert_base tf32": "no TF32", "bert_base amp": "no AMP"}

    evidence = seeding.verdicts(checked.JOB, lacks)(sample.healthy())
    assert judged("training-amp", evidence).because == "no AMP"
    assert judged("training-tf32", evidence).because == "no TF32"


def test_memory_that_is_not_counted_matters_where_it_is_limited() -> None:
    def uncounted(rank: RankOutcome, verdict: seeding.Raw) -> None:
        for case in verdict["cases"]:
            case["peak_memory_bytes"] = None

    on_gpus = seeding.verdicts(checked.JOB, uncounted)(sample.healthy())
    assert judged("training-recomputation", on_gpus).verdict is Verdict.NOT_RUN
    assert judged("training-tf32", on_gpus).verdict is Verdict.PASS
    on_cpus = seeding.verdicts(checked.JOB, uncounted)(simulated(cpu_evidence()))
    assert judged("training-recomputation", on_cpus).verdict is Verdict.PASS
