"""Each limit of a figure has a seed on either side, and a check that is wrong there does not pass by it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import cache

import pytest

from clustercheck.checks.all import BY_ID, CHECKS
from clustercheck.checks.base import Check, Finding, evaluate
from clustercheck.checks.support.seeding import with_job
from clustercheck.checks.support.seeding_limits import limit_seeds
from clustercheck.evidence.cluster import Evidence
from clustercheck.model import Part, Result, Subject, Verdict
from clustercheck.samples.sample import healthy
from clustercheck.selftest import Proof, prove

SAMPLE = cache(healthy)
MEMORY = BY_ID["gpu-memory-bandwidth"]


def parts_of(results: Iterable[Result]) -> set[tuple[str, Part]]:
    return {(one.figure.metric, part.part) for each in results for one in each.figures for part in one.parts}


def proofs_of(check: Check) -> dict[str, Proof]:
    """Without the subjects in their names."""
    return {one.fault.split(",")[0]: one for one in prove([check]) if one.fault.startswith("5 % ")}


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.id)
def test_every_limit_that_the_self_test_judges_has_a_seed_beyond_and_one_within(check: Check) -> None:
    seeds = list(limit_seeds(check, SAMPLE))
    cases = [fault.inject(SAMPLE(3)) for fault in check.faults]
    judged = parts_of(result for case in (SAMPLE(3), *cases) for result in evaluate(check, case))
    for beyond in (True, False):
        limits = [limit for seed in seeds if seed.beyond is beyond for limit in seed.limits]
        assert judged - {(limit.figure.metric, limit.part) for limit in limits} == set()


def test_what_has_an_effect_is_compared_with_its_baseline_and_its_equals() -> None:
    """Where the smallest sample has too few equals, in a larger one. What is of named nodes has none."""
    for check in CHECKS:
        parts = {(one.place, one.part): one for seed in limit_seeds(check, SAMPLE) for one in seed.limits}
        for (place, part), limit in parts.items():
            assert limit.figure.effect is None or (place, Part.BASELINE) in parts, (check.id, place)
            if part is Part.BASELINE and "nodes" not in limit.figure.conditions:
                assert (place, Part.PEERS) in parts, (check.id, place)


def test_each_seed_has_a_name_of_its_own() -> None:
    names = [proof.fault for proof in prove([BY_ID["nccl-tests-all-reduce"]])]
    assert len(set(names)) == len(names)
    of_floor = [name for name in names if name.startswith("5 % within the floor of busbw_4294967296, ")]
    assert [name.partition(", ")[2][:4] for name in sorted(of_floor)] == ["gpu0", "the "]


def test_figures_that_nothing_scales_are_no_proof() -> None:
    proof = proofs_of(replace(MEMORY, scale=None))["5 % beyond the floor of device_copy"]
    assert not proof.good
    assert proof.because == "nothing scales the figures of gpu-memory-bandwidth: name it as its Check.scale"


def test_a_check_that_does_not_read_what_was_scaled_is_no_proof() -> None:
    def of_the_sample(_evidence: Evidence, subject: Subject) -> Finding:
        return MEMORY.judge(SAMPLE(3), subject)

    proofs = proofs_of(replace(MEMORY, judge=of_the_sample))
    scaled = [
        proof
        for name, proof in proofs.items()
        if "baseline" not in name and not name.startswith("5 % within the peers")  # where it is anyway
    ]
    assert len(scaled) == 8 and not any(proof.good for proof in scaled)
    assert all(proof.because.endswith("% within") for proof in scaled)


def by_its_neighbour(evidence: Evidence, subject: Subject) -> Finding:
    """Each GPU by the first of its node."""
    return MEMORY.judge(evidence, Subject(subject.node, 0))


def by_the_slowest(evidence: Evidence, subject: Subject) -> Finding:
    """Each GPU of a node by the slowest one."""
    others = [MEMORY.judge(evidence, Subject(subject.node, gpu)) for gpu in range(8)]
    return min(others, key=lambda finding: finding.figures[0].measured)


def passing_whatever_the_figures(evidence: Evidence, subject: Subject) -> Finding:
    finding = MEMORY.judge(evidence, subject)
    floorless = tuple(replace(each, floor=None, measured=1700.0) for each in finding.figures)
    return replace(finding, figures=floorless)


@pytest.mark.parametrize("judge", [by_its_neighbour, by_the_slowest, passing_whatever_the_figures])
def test_a_check_that_blames_another_or_nobody_is_found_out(
    judge: Callable[[Evidence, Subject], Finding],
) -> None:
    proofs = proofs_of(replace(MEMORY, judge=judge))
    beyond = [proof for name, proof in proofs.items() if "beyond the peers" in name]
    assert beyond and not all(proof.good for proof in beyond)


def test_a_scale_that_changes_another_subject_is_found_out() -> None:
    def scale(metric: str, factors: Mapping[Subject, float]) -> Callable[[Evidence], Evidence]:
        assert MEMORY.scale is not None
        return MEMORY.scale(metric, {replace(each, node="gpu02"): one for each, one in factors.items()})

    proofs = proofs_of(replace(MEMORY, scale=scale))
    assert not proofs["5 % beyond the peers of device_copy"].good


def test_what_was_not_there_before_is_an_alarm_of_others() -> None:
    """A figure that is within its limit, beside a rank that the seed takes away."""

    def scale(_metric: str, factors: Mapping[Subject, float]) -> Callable[[Evidence], Evidence]:
        def inject(evidence: Evidence) -> Evidence:
            outcome = evidence.jobs[MEMORY.job]
            left = tuple(rank for rank in outcome.ranks if rank.node != "gpu02")
            return with_job(evidence, replace(outcome, ranks=left))

        return inject

    proof = proofs_of(replace(MEMORY, scale=scale))["5 % within the floor of device_copy"]
    assert proof.got is None and proof.expected is Verdict.PASS
    assert proof.because.startswith("gpu02 GPU 0 is found not_run: ")
