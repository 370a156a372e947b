"""Why a GPU rightly shows no NVLink."""

from __future__ import annotations

from dataclasses import replace

import pytest

from clustercheck.checks.support import seeding
from clustercheck.checks.support.gpu import explain_no_nvlink
from clustercheck.samples import sample


@pytest.mark.parametrize(
    ("gpus", "printed", "explained"), [(1, "\n", True), (1, "GPU 0: ...", False), (8, "\n", False)]
)
def test_only_a_driver_that_says_nothing_of_a_single_gpu_is_excused(
    gpus: int, printed: str, explained: bool
) -> None:
    def change(raw: seeding.Raw) -> None:
        raw["nvlink"].update(rc=0, stdout=printed)

    evidence = seeding.edit("gpu01", change)(sample.healthy(1))
    nodes = tuple(replace(node, gpu_count=gpus) for node in evidence.spec.nodes)
    evidence = replace(evidence, spec=replace(evidence.spec, nodes=nodes))
    gpu = evidence.nodes["gpu01"].smi().gpus[0]
    assert bool(explain_no_nvlink(evidence, gpu, "gpu01", "nvlink")) is explained
