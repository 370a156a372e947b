"""Latency of OCR-sized inference: is each GPU as quick as its equals, and are the answers the same?"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from clustercheck.checks.base import Check, Finding, SeededFault, every_node, failed
from clustercheck.checks.support import seeding, seeding_figures
from clustercheck.checks.support.gpu_times import among_gpus, model_of
from clustercheck.checks.support.job import commonest, ended_badly, outcome_of, ranks_of
from clustercheck.evidence.cluster import Evidence
from clustercheck.evidence.gpu_jobs import is_positive
from clustercheck.expect.effects import effect
from clustercheck.launch.model import RankOutcome, RankState
from clustercheck.model import Direction, Figure, Scope, Section, Subject, Verdict
from clustercheck.parse.plain_text import shortened
from clustercheck.parse.reading import CannotReadError, is_number

JOB = "inference"
# Of an answer's mean and deviation, among ranks: other kernels round otherwise. Five units of BF16, 2^-8.
ALIKE = 5 * 2**-8
TIMES = ("p50_s", "p99_s")
ANSWERS = ("output_mean", "output_std")
# What every suite has the job run; a rank reports neither another model nor fewer.
MODELS = ("ocr_det", "ocr_rec")
MORE = ("requests", "max_s")
KNOWN = ("model", "shape", *MORE, *TIMES, *ANSWERS, "difference")
DIMENSIONS = 4

Case = Mapping[str, Any]


def cases_of(rank: RankOutcome) -> dict[str, Case]:
    """What a rank was asked, by model: each of MODELS once, and of it what is known.

    Raises CannotReadError where it is nothing, or malformed.
    """
    cases = (rank.verdict or {}).get("cases")
    if not isinstance(cases, list) or not cases:
        raise CannotReadError(f"rank {rank.rank} was asked nothing")
    if len(cases) > len(MODELS):
        raise CannotReadError(f"rank {rank.rank} reports more than the {len(MODELS)} models of the job")
    for case in cases:
        whole = (
            isinstance(case, Mapping)
            and case.get("model") in MODELS
            and all(is_positive(case.get(key)) for key in TIMES)
            and all(key in case and (case[key] is None or is_number(case[key])) for key in ANSWERS)
            and all(is_number(case[key]) for key in MORE if key in case)
            and _is_shape(case.get("shape"))
        )
        if not whole:
            raise CannotReadError(f"rank {rank.rank} did not report all requested values")
    found: dict[str, Case] = {
        case["model"]: {key: case[key] for key in KNOWN if key in case} for case in cases
    }
    if missing := [model for model in MODELS if model not in found]:
        raise CannotReadError(f"rank {rank.rank} did not report {', '.join(missing)}")
    return found


def _is_shape(shape: Any) -> bool:
    """That of an image: no longer list is kept."""
    return shape is None or (
        isinstance(shape, list) and len(shape) <= DIMENSIONS and all(map(is_number, shape))
    )


def judge(evidence: Evidence, subject: Subject, job: str = JOB) -> Finding:
    """The node's slowest rank against all equals, and every answer against most ranks' answers."""
    if (finding := ended_badly(evidence, job, subject, least=1)) is not None:
        return finding
    outcome = outcome_of(evidence, job)
    mine = ranks_of(outcome, str(subject.node))
    figures: list[Figure] = []
    for model in cases_of(mine[0]):
        for rank in mine:
            if because := _wrong_answer(evidence, rank, model, job):
                return failed(f"{_place(rank)}: {because}", "wrong", "what the other ranks answer")
        figures += [_figure(evidence, mine, model, key, job) for key in TIMES]
    cases = [{"rank": rank.rank, **case} for rank in mine for case in cases_of(rank).values()]
    return Finding(Verdict.PASS, figures=tuple(figures), evidence={"cases": cases})


def _case(rank: RankOutcome, model: str) -> Case:
    return cases_of(rank)[model]


def _place(rank: RankOutcome) -> str:
    return f"rank {rank.rank}" if rank.gpu is None else f"GPU {rank.gpu}"


def _wrong_answer(evidence: Evidence, rank: RankOutcome, model: str, job: str) -> str:
    for key in ANSWERS:
        own = _case(rank, model)[key]
        if own is None:
            return f"the output of {model} is not a number"
        middle = evidence.once(partial(_middle, model=model, key=key, job=job), (job, model, key))
        if not abs(own - middle) <= ALIKE * max(abs(middle), 1e-6):
            what = key.removeprefix("output_")
            return f"{model} answers with a {what} of {own:.4g}, most ranks with {middle:.4g}"
    return ""


def _middle(evidence: Evidence, model: str, key: str, job: str) -> float:
    """Of what the ranks say that can be read, where one of them says a number: the middle of the nodes' own,
    since how many ranks it has, a node says itself."""
    said_of = []
    for ranks in outcome_of(evidence, job).by_node.values():
        here = []
        for rank in ranks:
            with suppress(CannotReadError):
                here.append(_case(rank, model)[key])
        if numbers := [value for value in here if value is not None]:
            said_of.append(statistics.median(numbers))
    return float(statistics.median(said_of))


def _backend(evidence: Evidence, mine: tuple[RankOutcome, ...], job: str) -> str:
    """How most nodes say that they communicate, each with one vote. Raises CannotReadError where this node
    says another thing, or where nobody can say which is right.
    """
    backends = evidence.once(partial(_backends, job=job), (job, "backend"))
    own = _backends_of(mine)
    if own != backends or len(own) != 1:
        said, others = ", ".join(sorted(own)), ", ".join(sorted(backends))
        raise CannotReadError(f"the ranks differ in their backend: {said} here, {others} on most nodes")
    return next(iter(own))


def _backends(evidence: Evidence, job: str) -> set[str]:
    votes: Counter[str] = Counter()
    for ranks in outcome_of(evidence, job).by_node.values():
        votes.update(_backends_of(ranks))
    return commonest(votes)


def _backends_of(ranks: tuple[RankOutcome, ...]) -> set[str]:
    """What most of a node's ranks say."""
    return commonest(Counter(shortened(str((rank.verdict or {}).get("backend", "")), 40) for rank in ranks))


def _figure(evidence: Evidence, mine: tuple[RankOutcome, ...], model: str, key: str, job: str) -> Figure:
    def read_s(rank: RankOutcome) -> float:
        return float(_case(rank, model)[key])

    slowest = max(mine, key=read_s)
    nccl = _backend(evidence, mine, job) == "nccl"
    percentile = key.removesuffix("_s")
    # The tail is the host's, whose jitter nobody is blamed for; a CPU is shared with others altogether.
    counts = nccl and key == "p50_s"
    return Figure(
        metric=f"{model}_{percentile}",
        measured=read_s(slowest) * 1000,
        unit="ms",
        method=f"one request after another, host clock until the device is done, {percentile} of the slowest",
        label=f"for {model} on {_place(slowest)}",
        better=Direction.LOWER,
        among=among_gpus(evidence, job, slowest, read_s, (model, key)) if counts else None,
        effect=effect("gpu") if counts else None,
        conditions={
            "shape": _case(slowest, model).get("shape"),
            "nccl": nccl,
            **(model_of(evidence, slowest) if counts else {}),
        },
    )


def _on(node: str, how: Callable[[seeding.Raw], None]) -> seeding.Inject:
    def change(rank: RankOutcome, verdict: seeding.Raw) -> None:
        if rank.node == node:
            how(verdict["cases"][0])

    return seeding.verdicts(JOB, change)


def scale_times(verdict: seeding.Raw, metric: str, factor: float) -> None:
    """The time of the metric's model and percentile, in place."""
    for case in verdict["cases"]:
        for key in TIMES:
            if metric == f"{case['model']}_{key.removesuffix('_s')}":
                case[key] *= factor


def _slower_before(evidence: Evidence) -> Evidence:
    quick = seeding.with_baseline("inference-latency", judge, Subject("gpu01"), 0.5)
    return seeding.chain(seeding.on_gpus(JOB, missing_on=""), quick)(evidence)


_ON_GPUS = seeding.on_gpus(JOB, missing_on="")
CHECK = Check(
    id="inference-latency",
    title="Inference, latency",
    section=Section.TRAINING,
    scope=Scope.GROUP,
    measures="time of a request (p50, p99) to text detection and recognition, and whether all ranks "
    "answer alike",
    method=(
        "seeded convolutional models of OCR's shapes in Paddle, one request after another, on all GPUs "
        "in parallel"
    ),
    requires="the training image on every node",
    expectation=(
        "equal answers on all ranks except for rounding; over NCCL, a median as low as on the other GPUs "
        "and in the baseline; p99 is shown"
    ),
    remedy="Check this GPU's clocks, power and PCIe link, and the load on the host's CPUs.",
    subjects=every_node,
    judge=judge,
    job=JOB,
    scale=seeding_figures.in_verdicts(JOB, scale_times),
    prepare=_ON_GPUS,
    faults=(
        SeededFault("answers-differ", _on("gpu02", lambda c: c.update(output_mean=0.9)), Subject("gpu02")),
        SeededFault("answer-no-number", _on("gpu02", lambda c: c.update(output_std=None)), Subject("gpu02")),
        SeededFault(
            "answer-no-number-beside-no-time",
            seeding.chain(
                _on("gpu01", lambda c: c.update(p50_s=0)), _on("gpu02", lambda c: c.update(output_std=None))
            ),
            Subject("gpu02"),
        ),
        SeededFault(
            "slow-gpus",
            seeding.chain(_ON_GPUS, _on("gpu02", lambda c: c.update(p50_s=c["p50_s"] * 1.5))),
            Subject("gpu02"),
        ),
        SeededFault("slower-than-before", _slower_before, Subject("gpu01")),
        SeededFault(
            "rank-hangs", seeding.rank(JOB, "gpu03", RankState.HUNG, "behind its peers"), Subject("gpu03")
        ),
        SeededFault("gpu-left-out", seeding.on_gpus(JOB, missing_on="gpu02"), Subject("gpu02")),
        SeededFault("no-time", _on("gpu01", lambda c: c.update(p50_s=0)), Subject("gpu01"), Verdict.NOT_RUN),
    ),
)
