"""Half of the nodes slower than the other half: each slower node is a culprit, with both groups named."""

from __future__ import annotations

import pytest

from clustercheck.checks.all import BY_ID
from clustercheck.checks.base import evaluate
from clustercheck.checks.support import seeding_gpus
from clustercheck.expect import groups
from clustercheck.expect.effects import effect
from clustercheck.locate.culprits import find_culprits
from clustercheck.model import Verdict
from clustercheck.samples import sample

LEAST = effect("gpu").least


def test_the_slower_nodes_are_culprits_and_both_groups_are_named() -> None:
    evidence = seeding_gpus.half_slower("gpu_gemm", 0.8)(sample.healthy())
    results = evaluate(BY_ID["gpu-gemm"], evidence)
    failed = [result for result in results if result.verdict is Verdict.FAIL]
    assert {result.subject.node for result in failed} == {"gpu02", "gpu04", "gpu06"}
    assert len(failed) == 3 * 8
    assert all(result.remedy == groups.REMEDY for result in failed)
    culprits = find_culprits(results, None, group_is_slow=False)
    assert [(culprit.scope, culprit.node) for culprit in culprits] == [
        ("node", "gpu02"), ("node", "gpu04"), ("node", "gpu06"),
    ]  # fmt: skip
    sentence = "nodes gpu02, gpu04, gpu06 are 20 % slower than nodes gpu01, gpu03, gpu05"
    assert all(sentence in culprit.because for culprit in culprits)


@pytest.mark.parametrize(("factor", "fails"), [(1.05, True), (0.95, False)])
def test_just_beyond_the_least_effect_half_fails_and_just_within_none(factor: float, fails: bool) -> None:
    evidence = seeding_gpus.half_slower("gpu_gemm", 1 - LEAST * factor)(sample.healthy())
    found = {result.verdict for result in evaluate(BY_ID["gpu-gemm"], evidence)}
    assert (Verdict.FAIL in found) is fails


def test_the_remedy_of_another_failure_is_the_checks_own() -> None:
    evidence = BY_ID["gpu-gemm"].faults[2].inject(sample.healthy())
    failed = [r for r in evaluate(BY_ID["gpu-gemm"], evidence) if r.verdict is Verdict.FAIL]
    assert failed and all(result.remedy == BY_ID["gpu-gemm"].remedy for result in failed)
