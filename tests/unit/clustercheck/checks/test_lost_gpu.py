"""A GPU that the driver has lost fails as itself, and its neighbours are judged as usual."""

from __future__ import annotations

import pytest
from tests.support.validation_in_memory import records, run

from clustercheck import sample
from clustercheck.checks import seeding
from clustercheck.checks.all import CHECKS
from clustercheck.checks.base import evaluate
from clustercheck.model import Scope, Verdict


@pytest.mark.parametrize("said", ["GPU is lost", "GPU requires reset", "ERR!", "Unknown Error"])
@pytest.mark.parametrize("field", ["serial", "product_name", "ecc_mode/current_ecc", "uuid"])
def test_it_is_said_of_this_gpu_alone(said: str, field: str) -> None:
    evidence = seeding.smi("gpu02", 3, field, said)(sample.healthy())
    found = {
        (check.id, result.subject.node, result.subject.gpu): result
        for check in CHECKS
        if check.scope is Scope.GPU and not check.job
        for result in evaluate(check, evidence)
    }
    lost = found["gpu-present", "gpu02", 3]
    assert lost.verdict is Verdict.FAIL
    assert said in lost.because
    assert found["gpu-ecc", "gpu02", 3].verdict is Verdict.NOT_RUN
    others = {key: r.verdict for key, r in found.items() if key[1:] != ("gpu02", 3)}
    assert set(others.values()) <= {Verdict.PASS, Verdict.EXCLUDED}


def test_a_validation_blames_it() -> None:
    found = records()
    found["gpu02"] = dict(
        seeding.smi("gpu02", 3, "serial", "GPU is lost")(sample.healthy()).nodes["gpu02"].raw
    )
    culprits = run(found)["culprits"]
    assert [(c["scope"], c["node"], c["gpu"]) for c in culprits] == [("gpu", "gpu02", 3)]
