"""Training of real models across the group: is the loss right, and do all ranks hold the same parameters?"""

from __future__ import annotations

from collections import Counter, defaultdict
from contextlib import suppress
from functools import partial

from clustercheck.checks.base import Check, Finding, SeededFault, every_node, failed, not_applicable, passed
from clustercheck.checks.support import seeding, training
from clustercheck.checks.support.job import commonest, ended_badly, least_ranks, outcome_of, ranks_of
from clustercheck.checks.support.said_right import against_most, outvoted
from clustercheck.evidence.cluster import Evidence
from clustercheck.jobs.training import TOLERANCE, case_problem
from clustercheck.launch.model import RankState
from clustercheck.model import Scope, Section, Severity, Subject, Verdict
from clustercheck.parse.reading import CannotReadError

ALONE = ("repeat_difference", "fp32_difference")
HASHES = {
    "initial_sha256": "starts with other parameters than the other ranks, with the same seed",
    "parameters_sha256": "ends with other parameters than the other ranks",
}


def _judge(evidence: Evidence, job: str, subject: Subject) -> Finding:
    if (finding := ended_badly(evidence, job, subject, least=least_ranks(evidence))) is not None:
        return finding
    outcome = outcome_of(evidence, job)
    if because := evidence.once(lambda _: training.without(outcome), ("without", job)):
        return not_applicable(because)
    mine: list[training.Case] = []
    unread = []
    for rank in ranks_of(outcome, str(subject.node)):
        try:
            mine += training.cases_of(rank).values()
        except CannotReadError as error:
            unread.append(error)
    for case in mine:
        unlike = _unlike(evidence, job, case)
        if because := case_problem(case) or unlike:
            because, joint = f"{training.named(case)}: {because}", bool(unlike or _joint_problem(case))
            return failed(because, "wrong", "as alone and on all ranks", joint=joint)
    if subject.node in evidence.once(partial(_against_most, job=job), ("against most", job)):
        return outvoted("wrong losses", "as alone and on all ranks")
    if unread:
        raise unread[0]
    terms = evidence.once(partial(_terms_of_most, job=job), ("terms", job))
    for rank in ranks_of(outcome, str(subject.node)) if terms else ():
        training.cases_as_of_most(rank, terms)
    return passed(
        "right",
        "right",
        evidence={
            "cases": [
                {
                    "case": training.named(case),
                    "first_loss": case["losses"][0],
                    "last_loss": case["losses"][-1],
                    "fp32_difference": case["fp32_difference"],
                    "parameters_sha256": case["parameters_sha256"][:16],
                }
                for case in mine
            ]
        },
    )


def _against_most(evidence: Evidence, job: str) -> frozenset[str]:
    """The nodes that do not say that losses are wrong, where most do: gradients come from all."""
    return against_most(
        outcome_of(evidence, job), lambda rank: any(map(_joint_problem, training.cases_of(rank).values()))
    )


def _joint_problem(case: training.Case) -> str:
    """What is wrong with it, except for how a rank computes alone, before: that is its own."""
    return case_problem({**case, **dict.fromkeys(ALONE, 0.0)})


def _terms_of_most(evidence: Evidence, job: str) -> dict[training.Key, training.Case]:
    """Nothing where they differ: then the group's throughput is not judged."""
    with suppress(CannotReadError):
        return training.terms_of_most(outcome_of(evidence, job))
    return {}


def _unlike(evidence: Evidence, job: str, case: training.Case) -> str:
    everywhere = evidence.once(partial(_hashes, job=job), ("hashes", job))
    for name, because in HASHES.items():
        counted = everywhere[case["model"], case["precision"], name]
        most = max(counted.values())
        # Where none is the commonest, nobody can tell who is right: then all are wrong.
        if counted[case[name]] < most or (len(counted) > 1 and list(counted.values()).count(most) > 1):
            return because
    return ""


def _hashes(evidence: Evidence, job: str) -> dict[tuple[str, str, str], Counter[str]]:
    """How many nodes say which hash, by model, precision and kind, of those that can be read.

    A node has one vote, for what most of its ranks say: how many ranks it has, it says itself.
    """
    votes: dict[tuple[str, str, str], Counter[str]] = defaultdict(Counter)
    for ranks in outcome_of(evidence, job).by_node.values():
        here: dict[tuple[str, str, str], Counter[str]] = defaultdict(Counter)
        for rank in ranks:
            with suppress(CannotReadError):
                for (model, precision), case in training.cases_of(rank).items():
                    for name in HASHES:
                        here[model, precision, name][str(case[name])] += 1
        for key, counted in here.items():
            votes[key].update(commonest(counted))
    return votes


def _check(job: str) -> Check:
    torch = job == "training_torch"
    return Check(
        id="training-numerics-pytorch" if torch else "training-numerics",
        title=f"{training.JOBS[job]}, numerics",
        section=Section.TRAINING,
        scope=Scope.GROUP,
        severity=Severity.CRITICAL,
        measures="whether the loss of ResNet-50 and a BERT-base is finite, falls and is that of float32, and "
        "whether all ranks start and end with equal parameters",
        method=f"synthetic data, seeded, {training.WAY[job]}; float32, TF32, AMP FP16 and BF16 where the "
        "device has them; small models on a CPU",
        requires=f"a training image with {training.JOBS[job]} on every node",
        expectation=f"equal hashes on all ranks, the first loss within {TOLERANCE:.1%} of float32's (five "
        "times the rounding of BF16) and of itself when computed twice, the last loss below the first",
        remedy="Run the memory and GEMM checks on this node; wrong numbers without error point to memory or "
        "GPU faults.",
        subjects=every_node,
        judge=lambda evidence, subject: _judge(evidence, job, subject),
        job=job,
        faults=_faults(job),
    )


def _faults(job: str) -> tuple[SeededFault, ...]:
    node, hung = Subject("gpu02"), RankState.HUNG

    def on(**answer: object) -> seeding.Inject:
        return training.change(job, lambda case: case.update(answer), "gpu02")

    not_a_number = [
        training.change(job, lambda case: case.update(losses=[2.0, None]), each)
        for each in ("gpu01", "gpu03")
    ]
    return (
        SeededFault("other-parameters", on(parameters_sha256="f" * 64), node),
        SeededFault(
            "other-parameters-beside-no-cases",
            seeding.chain(
                on(parameters_sha256="f" * 64), training.change(job, lambda case: case.clear(), "gpu03")
            ),
            node,
        ),
        SeededFault("other-seed", on(initial_sha256="f" * 64), node),
        SeededFault("parameters-spread", on(parameters_spread=1e-7), node),
        SeededFault("loss-not-a-number", on(losses=[2.0, None]), node),
        SeededFault("no-number-on-most", seeding.chain(*not_a_number), node),
        SeededFault("loss-does-not-fall", on(losses=[2.0, 2.5]), node),
        SeededFault("not-float32s-loss", on(fp32_difference=0.2), node),
        SeededFault("not-twice-the-same", on(repeat_difference=0.2), node),
        SeededFault("rank-hangs", seeding.rank(job, "gpu02", hung, "behind its peers"), node),
        SeededFault("gpu-left-out", seeding.on_gpus(job, missing_on="gpu02"), node),
        SeededFault(
            "no-cases",
            seeding.verdicts(job, lambda _, answer: answer.update(cases=[])),
            node,
            Verdict.NOT_RUN,
        ),
        SeededFault("unreadable", on(losses="none"), node, Verdict.NOT_RUN),
        SeededFault("no-framework", training.lacks_framework(job), node, Verdict.EXCLUDED),
    )


CHECKS = tuple(_check(job) for job in training.JOBS)
