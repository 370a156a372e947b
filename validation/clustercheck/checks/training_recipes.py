"""AMP, TF32, gradient accumulation and recomputation, each against float32 on the same GPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from clustercheck.checks.base import (
    CUDA_IMAGE,
    Check,
    Finding,
    SeededFault,
    every_node,
    failed,
    not_applicable,
    not_run,
)
from clustercheck.checks.support import seeding, seeding_figures
from clustercheck.checks.support.job import ended_badly, outcome_of, ranks_of
from clustercheck.evidence.cluster import GPUS_IDLE, Evidence
from clustercheck.evidence.gpu_jobs import is_positive
from clustercheck.expect import profiles
from clustercheck.expect.effects import effect
from clustercheck.expect.profiles import Profile
from clustercheck.expect.training import recipe_limit
from clustercheck.jobs.recipes import TF32_LEAST, TOLERANCE, case_problem
from clustercheck.jobs.training import TOLERANCE as LOSS_TOLERANCE
from clustercheck.launch.model import RankOutcome, RankState
from clustercheck.model import Direction, Figure, Scope, Section, Subject, Verdict
from clustercheck.parse.reading import CannotReadError, is_number

JOB = "recipes"
IDS = {
    "amp": "training-amp",
    "tf32": "training-tf32",
    "accumulation": "training-accumulation",
    "recomputation": "training-recomputation",
}
EXACT = ("accumulation", "recomputation")
NUMBERS = ("step_s", "batch", "steps")
MAYBE_NUMBERS = ("peak_memory_bytes", "gradient_difference", "loss_difference", "loss_scale")
MAX_LOSSES = 10_000
UNCOUNTED = (
    "the image's Paddle cannot restart the measurement of peak memory (paddle.device.cuda, from 3.0 on)"
)

Case = Mapping[str, Any]
Cases = Mapping[tuple[str, str], Case]


def cases_of(rank: RankOutcome) -> Cases:
    """What a rank trained, by model and recipe. Raises CannotReadError where it is none, or malformed."""
    answer = rank.verdict or {}
    cases, not_done = answer.get("cases"), answer.get("not_done")
    if not isinstance(cases, list) or not cases or not isinstance(not_done, Mapping):
        raise CannotReadError(f"rank {rank.rank} trained nothing")
    if not all(map(_is_whole, cases)):
        raise CannotReadError(f"rank {rank.rank} did not report all of its training")
    return {(case["model"], case["recipe"]): case for case in cases}


def _is_whole(case: object) -> bool:
    if not isinstance(case, Mapping):
        return False
    losses = case.get("losses")
    return (
        isinstance(case.get("model"), str)
        and case.get("recipe") in ("fp32", *IDS)
        and all(is_positive(case.get(key)) for key in NUMBERS)
        and all(key in case and (case[key] is None or is_number(case[key])) for key in MAYBE_NUMBERS)
        and isinstance(losses, list)
        and 1 < len(losses) <= MAX_LOSSES
        and all(loss is None or is_number(loss) for loss in losses)
    )


def _judge(evidence: Evidence, subject: Subject, recipe: str) -> Finding:
    if (finding := ended_badly(evidence, JOB, subject, least=1)) is not None:
        return finding
    mine = ranks_of(outcome_of(evidence, JOB), str(subject.node))
    read: list[tuple[RankOutcome, Cases]] = []
    unread = []
    for rank in mine:
        try:
            read.append((rank, cases_of(rank)))
        except CannotReadError as error:
            unread.append(error)
    for rank, cases in read:
        for (model, name), case in cases.items():
            if name == recipe and (because := _problem(case)):
                return failed(f"{_place(rank)}: {model}: {because}", "wrong", "as in float32")
    if unread:
        raise unread[0]
    # Each model of float32 in the other precisions; accumulation and recomputation are of some.
    wanted = (recipe,) if recipe in EXACT else (recipe, "fp32")
    trained = any(name == recipe for _, cases in read for _, name in cases)
    models = list(dict.fromkeys(model for _, cases in read for model, name in cases if name in wanted))
    if not trained:
        return _not_done(evidence, subject, read[0][0], recipe)
    profile = evidence.profile(str(subject.node))
    figures = [figure for model in models for figure in _figures(read, model, recipe, profile)]
    shown = [_shown(rank, cases, model, recipe) for rank, cases in read for model in models]
    counted = {figure.metric for figure in figures}
    limited = _is_on_gpus(read) and recipe_limit(recipe, "memory") is not None
    uncounted = limited and not all(f"{model}_{recipe}_memory" in counted for model in models)
    verdict, because = (Verdict.NOT_RUN, UNCOUNTED) if uncounted else (Verdict.PASS, "")
    return Finding(verdict, because, figures=tuple(figures), evidence={"cases": shown})


def _is_on_gpus(read: Sequence[tuple[RankOutcome, Cases]]) -> bool:
    return all((rank.verdict or {}).get("backend") == "nccl" for rank, _ in read)


def _problem(case: Case) -> str:
    """What is wrong with what it computed; empty if nothing is."""
    if because := case_problem(case):
        return because
    difference = case["gradient_difference"]
    if case["recipe"] == "tf32" and not (difference is not None and difference >= TF32_LEAST):
        return f"TF32 has no effect: its gradients differ from float32's by {difference} (relative)"
    return ""


def _exact(cases: Cases, model: str) -> Case:
    if (model, "fp32") not in cases:
        raise CannotReadError(f"{model} was not trained in float32")
    return cases[model, "fp32"]


def _not_done(evidence: Evidence, subject: Subject, rank: RankOutcome, recipe: str) -> Finding:
    """A CPU, or a GPU before Ampere, lacks it: no fault. GPUs that were not used are another matter."""
    reasons = [str(why) for name, why in (rank.verdict or {})["not_done"].items() if name.endswith(recipe)]
    idle = evidence.gpus_idle(JOB, subject.node)
    if any(not evidence.nodes[node].simulated for node in idle):
        return not_run(GPUS_IDLE, remedy=CUDA_IMAGE)
    if not reasons:
        raise CannotReadError(f"rank {rank.rank} did not train by {recipe} and does not say why")
    return not_applicable(reasons[0])


def _place(rank: RankOutcome) -> str:
    return f"rank {rank.rank}" if rank.gpu is None else f"GPU {rank.gpu}"


def _figures(
    read: Sequence[tuple[RankOutcome, Cases]], model: str, recipe: str, profile: Profile | None
) -> list[Figure]:
    """Of the node's worst rank. On a CPU they say nothing of GPUs: they are compared with nothing."""
    nccl = _is_on_gpus(read)
    case = _case(read[0][1], model, recipe)
    found = []
    for quantity in ("speed", "memory"):
        ratios = [(_ratio(cases, model, recipe, quantity), rank) for rank, cases in read]
        known = [(ratio, rank) for ratio, rank in ratios if ratio is not None]
        if len(known) < len(ratios):
            continue  # Paddle does not count the memory of tensors there
        faster = quantity == "speed"
        worst, rank = (min if faster else max)(known, key=lambda pair: pair[0])
        limit = recipe_limit(recipe, quantity, profile, model=model) if nccl else None
        lacking = "; on a CPU: it says nothing of GPUs" if not nccl else "; no limit has a source"
        found.append(
            Figure(
                metric=f"{model}_{recipe}_{quantity}",
                measured=worst,
                unit="x float32",
                method=f"{case['batch']} samples, {case['steps']} steps after warm-up, one rank by itself; "
                f"{'speed' if faster else 'peak memory of tensors'}{'' if limit else lacking}",
                label=f"of {model} by {recipe} on {_place(rank)}, {quantity}",
                better=Direction.HIGHER if faster else Direction.LOWER,
                floor=limit,
                effect=effect("gpu") if nccl else None,
                conditions={"batch": case["batch"], "nccl": nccl},
            )
        )
    return found


def _case(cases: Cases, model: str, recipe: str) -> Case:
    if (model, recipe) not in cases:
        raise CannotReadError(f"not every rank trained {model} by {recipe}")
    return cases[model, recipe]


def _ratio(cases: Cases, model: str, recipe: str, quantity: str) -> float | None:
    exact, case = _exact(cases, model), _case(cases, model, recipe)
    if quantity == "speed":
        return float(exact["step_s"] / case["step_s"] * case["batch"] / exact["batch"])
    ours, theirs = case["peak_memory_bytes"], exact["peak_memory_bytes"]
    return ours / theirs if ours and theirs and ours > 0 and theirs > 0 else None


def _shown(rank: RankOutcome, cases: Cases, model: str, recipe: str) -> dict[str, Any]:
    case, exact = cases[model, recipe], cases[model, "fp32"]
    return {
        "rank": rank.rank,
        "model": model,
        "samples_per_s": round(case["batch"] / case["step_s"], 3),
        "samples_per_s_fp32": round(exact["batch"] / exact["step_s"], 3),
        "peak_memory_bytes": case["peak_memory_bytes"],
        "peak_memory_bytes_fp32": exact["peak_memory_bytes"],
        "gradient_difference": case["gradient_difference"],
        "loss_difference": case["loss_difference"],
        "loss_scale": case["loss_scale"],
    }


TITLES = {
    "amp": "AMP beside float32",
    "tf32": "TF32 on and off",
    "accumulation": "Gradient accumulation",
    "recomputation": "Recomputation",
}
MEASURES = {
    "amp": "speed and peak memory of training by AMP (FP16, GradScaler) against float32, and whether the "
    "loss is that of float32 and falls",
    "tf32": "speed of training with TF32 against without, and whether TF32 has an effect",
    "accumulation": "whether four micro-batches give the gradients of the whole batch, and the peak memory",
    "recomputation": "whether layers that are computed again give the same gradients, and the peak memory",
}
METHODS = {
    "amp": "ResNet-50 and a BERT-base on synthetic data with paddle.amp.auto_cast (O1) and GradScaler",
    "tf32": "ResNet-50 and a BERT-base on synthetic data, TF32 switched in cuBLAS and cuDNN",
    "accumulation": "a BERT-base on synthetic data in float32; the first step's gradients compared",
    "recomputation": "a BERT-base on synthetic data in float32, each layer by "
    "paddle.distributed.fleet.utils.recompute; the first step's gradients compared",
}
EXPECTATIONS = {
    "amp": f"the first loss within {LOSS_TOLERANCE:.1%} of float32's, the last loss below the first; on a "
    "GPU no more memory; on V100, A100, H100, H200 and their kin ResNet-50 at least 1.5 times as fast as "
    "float32; the BERT's factor has no source: not below the baseline",
    "tf32": f"gradients that differ from float32's by {TF32_LEAST:g} or more (relative), the first loss "
    f"within {LOSS_TOLERANCE:.1%} of it; no factor of speed has a source: not below the baseline",
    "accumulation": f"gradients within {TOLERANCE:g} of the whole batch's (rounding); on a GPU no more "
    "memory",
    "recomputation": f"gradients within {TOLERANCE:g} (rounding); on a GPU 70 % of the memory or less",
}
WRONG = (
    "Run the memory and GEMM checks on this node; wrong numbers without error point to memory or GPU faults."
)
REMEDIES = {
    "amp": "Compare gpu-gemm in FP16 with FP32: if the GPU is as fast as it should be, see whether the "
    "image's Paddle and cuDNN are built for it.",
    "tf32": "Compare gpu-gemm in TF32 with FP32: if TF32 is faster there, the image's Paddle does not switch "
    "it. For your own programs look for NVIDIA_TF32_OVERRIDE=0, which this check removes.",
    "accumulation": WRONG,
    "recomputation": f"{WRONG} If only the memory is too much, compare the image's Paddle with the "
    "baseline's.",
}


def _on(recipe: str, change: Callable[[seeding.Raw], None], node: str = "gpu02") -> seeding.Inject:
    """Change what a node's first GPU reported of a recipe."""

    def on(rank: RankOutcome, verdict: seeding.Raw) -> None:
        if rank.node == node and not rank.gpu:
            for case in verdict["cases"]:
                if case["recipe"] == recipe:
                    change(case)

    return seeding.verdicts(JOB, on)


def _against(recipe: str, quantity: str, ratio: float, model: str = "") -> seeding.Inject:
    """A recipe on one GPU at this part of float32's speed or memory, of this model or of each."""

    def on(rank: RankOutcome, verdict: seeding.Raw) -> None:
        if rank.node != "gpu02" or rank.gpu:
            return
        exact = {case["model"]: case for case in verdict["cases"] if case["recipe"] == "fp32"}
        for case in verdict["cases"]:
            if case["recipe"] != recipe or (model and case["model"] != model):
                continue
            if quantity == "speed":
                case["step_s"] = exact[case["model"]]["step_s"] / ratio
            else:
                case["peak_memory_bytes"] = exact[case["model"]]["peak_memory_bytes"] * ratio

    return seeding.verdicts(JOB, on)


# By recipe and quantity: 5 % beyond the limit and 5 % within, written here a second time.
BESIDE_LIMITS = {
    "amp": {"speed": (1.425, 1.575), "memory": (1.05, 0.95)},
    "accumulation": {"memory": (1.05, 0.95)},
    "recomputation": {"memory": (0.735, 0.665)},
}
BESIDE_GRADIENTS = (1.05e-4, 0.95e-4)
BESIDE_LOSS = (0.0206, 0.0185)


def _limit_faults(recipe: str) -> tuple[SeededFault, ...]:
    names = {"speed": "slow", "memory": "large"}
    faults = []
    for quantity, (beyond, within) in BESIDE_LIMITS.get(recipe, {}).items():
        name = names[quantity]
        faults += [
            SeededFault(f"too-{name}", _against(recipe, quantity, beyond), Subject("gpu02")),
            SeededFault(
                f"not-too-{name}", _against(recipe, quantity, within), Subject("gpu02"), Verdict.PASS
            ),
        ]
    return tuple(faults)


def _scale(verdict: seeding.Raw, metric: str, factor: float) -> None:
    for case in verdict["cases"]:
        of_case = f"{case['model']}_{case['recipe']}"
        if metric == f"{of_case}_speed":
            case["step_s"] /= factor
        elif metric == f"{of_case}_memory":
            case["peak_memory_bytes"] *= factor


def _not_supported(recipe: str) -> seeding.Inject:
    def change(_rank: RankOutcome, verdict: seeding.Raw) -> None:
        verdict["cases"] = [case for case in verdict["cases"] if case["recipe"] != recipe]
        verdict["not_done"] = {f"bert_base {recipe}": f"this device does not support {recipe}"}

    return seeding.verdicts(JOB, change)


def _idle(evidence: Evidence, recipe: str) -> Evidence:
    return seeding.with_facts(_not_supported(recipe)(evidence), JOB, backend="gloo")


def _says_nothing(_rank: RankOutcome, verdict: seeding.Raw) -> None:
    verdict["cases"] = []


def _of_another_kind(evidence: Evidence) -> Evidence:
    return replace(evidence, profiles=dict.fromkeys(evidence.profiles, profiles.load("l40s-48gb")))


def _without_a_gpu(evidence: Evidence) -> Evidence:
    outcome = outcome_of(evidence, JOB)
    rest = tuple(rank for rank in outcome.ranks if (rank.node, rank.gpu) != ("gpu02", 7))
    return seeding.with_job(evidence, replace(outcome, ranks=rest))


def _faults(recipe: str) -> tuple[SeededFault, ...]:
    node = Subject("gpu02")
    key, (beyond, within) = (
        ("gradient_difference", BESIDE_GRADIENTS) if recipe in EXACT else ("loss_difference", BESIDE_LOSS)
    )

    def on(**answer: Any) -> seeding.Inject:
        return _on(recipe, lambda case: case.update(answer))

    faults = [
        *_limit_faults(recipe),
        SeededFault("other-numbers", on(**{key: beyond}), node),
        SeededFault("rounded-otherwise", on(**{key: within}), node, Verdict.PASS),
        SeededFault("not-compared", on(**{key: None}), node),
        SeededFault("loss-not-a-number", on(losses=[2.3, None]), node),
        SeededFault("loss-does-not-fall", on(losses=[2.3, 2.3]), node),
        SeededFault(
            "slower-than-before",
            seeding.with_baseline(IDS[recipe], partial(_judge, recipe=recipe), node, 1.25),
            node,
        ),
        SeededFault("gpu-left-out", _without_a_gpu, node),
        SeededFault("rank-hangs", seeding.rank(JOB, "gpu02", RankState.HUNG, "behind its peers"), node),
        SeededFault("no-cases", seeding.verdicts(JOB, _says_nothing), node, Verdict.NOT_RUN),
        SeededFault("not-supported", _not_supported(recipe), node, Verdict.EXCLUDED),
        SeededFault("gpus-not-used", partial(_idle, recipe=recipe), node, Verdict.NOT_RUN),
        SeededFault("not-run", lambda e: seeding.without_job(e, JOB), node, Verdict.NOT_RUN),
    ]
    if "memory" in BESIDE_LIMITS.get(recipe, {}):
        uncounted = on(peak_memory_bytes=None)
        faults.append(SeededFault("memory-not-counted", uncounted, node, Verdict.NOT_RUN))
    if recipe == "tf32":
        faults += [
            SeededFault("no-effect", on(gradient_difference=0.95e-5), node),
            SeededFault("an-effect", on(gradient_difference=1.05e-5), node, Verdict.PASS),
            SeededFault("effect-not-known", on(gradient_difference=None), node),
        ]
    if recipe == "amp":
        slow = seeding.chain(_of_another_kind, _against(recipe, "speed", 1.425))
        faults += [
            SeededFault("slow-on-another-kind", slow, node, Verdict.PASS),
            SeededFault("bert-slow", _against(recipe, "speed", 1.06, "bert_base"), node, Verdict.PASS),
            SeededFault("resnet-slow", _against(recipe, "speed", 1.425, "resnet50"), node),
        ]
    return tuple(faults)


def _check(recipe: str) -> Check:
    return Check(
        id=IDS[recipe],
        title=TITLES[recipe],
        section=Section.TRAINING,
        scope=Scope.GROUP,
        measures=MEASURES[recipe],
        method=METHODS[recipe],
        requires="the training image on every node",
        expectation=EXPECTATIONS[recipe],
        remedy=REMEDIES[recipe],
        subjects=every_node,
        judge=partial(_judge, recipe=recipe),
        job=JOB,
        scale=seeding_figures.in_verdicts(JOB, _scale),
        faults=_faults(recipe),
    )


CHECKS = tuple(_check(recipe) for recipe in IDS)
