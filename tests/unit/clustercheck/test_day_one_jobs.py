"""Healthy systems of other kinds than the sample pass the jobs of every suite, and their faults are found.

Each job's check passes, or is "n/a" with a reason. Figures just beside the limits of their profiles turn the
verdict there as in the sample, which is of one kind of hardware.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache, partial

import pytest
from tests.support.day_one import SYSTEMS
from tests.support.day_one_jobs import with_jobs

from clustercheck.checks.all import BY_ID
from clustercheck.checks.base import GROUP, Check, evaluate
from clustercheck.checks.support import seeding
from clustercheck.checks.support.seeding_limits import LimitSeed, limit_seeds
from clustercheck.evidence.cluster import Evidence
from clustercheck.model import Part, Result, Verdict
from clustercheck.running.suites import load

SUITES = ("standard", "full", "seeds")
NO_MOUNTS = {"storage-io"}  # none is declared to be measured
NO_ADAPTER = {"rdma-loopback", "rdma-write", "gpudirect-write", "nccl-loopback"}
NCCL_TESTS = {
    "nccl-tests-all-reduce", "nccl-tests-all-gather", "nccl-tests-reduce-scatter", "nccl-tests-all-to-all",
    "nccl-tests-broadcast",
}  # fmt: skip
BANDWIDTHS = {
    "all-reduce-bandwidth", "all-gather-bandwidth", "reduce-scatter-bandwidth", "all-to-all-bandwidth",
    "broadcast-bandwidth",
}  # fmt: skip
ONE_RANK = {
    "all-reduce", "all-gather", "reduce-scatter", "all-to-all", "broadcast", "data-parallel", "sharding",
    "sharding-stages", "nccl-transport", "peer-ports", "gpu-p2p-bandwidth", "gpu-p2p-exchange",
    "gpu-launch-latency",
}  # fmt: skip
# Checks of jobs that do not apply, or have no floor with a source, in any suite.
NOT_APPLICABLE = {
    "HGX A100": NO_MOUNTS,
    "DGX H100": NO_MOUNTS,
    "HGX B200": NO_MOUNTS | NCCL_TESTS,
    "L40S server": NO_MOUNTS | NO_ADAPTER | NCCL_TESTS,
    "single-GPU workstation": NO_MOUNTS | NO_ADAPTER | NCCL_TESTS | BANDWIDTHS | ONE_RANK,
    "GB200 tray": NO_MOUNTS | NCCL_TESTS | BANDWIDTHS,
    "virtual machine": NO_MOUNTS | {"gpudirect-write"},
    "GPU in a guest": NO_MOUNTS | NO_ADAPTER | NCCL_TESTS | BANDWIDTHS | ONE_RANK,
}
# The same of one node by itself.
ALONE = {
    "DGX H100": NO_MOUNTS | {"peer-ports", "rdma-write"},
    "L40S server": NO_MOUNTS | NO_ADAPTER | NCCL_TESTS | BANDWIDTHS | {"peer-ports"},
    "GB200 tray": NO_MOUNTS | NCCL_TESTS | BANDWIDTHS | {"peer-ports", "rdma-write"},
}


@cache
def evidence_of(name: str, suite: str, nodes: int | None = None) -> Evidence:
    return with_jobs(name, suite, nodes)


@cache
def judged(name: str, suite: str, nodes: int | None = None) -> list[Result]:
    evidence = evidence_of(name, suite, nodes)
    return [result for check in load(suite).selected() if check.job for result in evaluate(check, evidence)]


def told(results: list[Result]) -> list[str]:
    wrong = (Verdict.FAIL, Verdict.WARNING, Verdict.NOT_RUN)
    return sorted({f"{one.check}: {one.verdict}: {one.because}" for one in results if one.verdict in wrong})


@pytest.mark.parametrize("suite", SUITES)
@pytest.mark.parametrize("name", SYSTEMS)
def test_a_healthy_system_passes_every_job_that_fits_it(name: str, suite: str) -> None:
    results = judged(name, suite)
    assert told(results) == []
    assert all(one.because for one in results if one.verdict is Verdict.EXCLUDED)
    assert {one.check for one in results if one.verdict is Verdict.PASS} >= {"gpu-gemm"}


@pytest.mark.parametrize("name", SYSTEMS)
def test_what_does_not_fit_the_system_or_has_no_floor_is_not_applicable(name: str) -> None:
    results = [one for suite in SUITES for one in judged(name, suite)]
    assert {one.check for one in results if one.verdict is Verdict.EXCLUDED} == NOT_APPLICABLE[name]


@pytest.mark.parametrize("name", ALONE)
def test_one_node_of_the_system_raises_no_alarm_either(name: str) -> None:
    results = [one for suite in SUITES for one in judged(name, suite, 1)]
    assert told(results) == []
    assert {one.check for one in results if one.verdict is Verdict.EXCLUDED} == ALONE[name]


@pytest.mark.parametrize("name", ["L40S server", "single-GPU workstation", "GB200 tray"])
def test_a_gpu_whose_profile_has_no_floors_or_that_has_none_is_bound_by_physics_alone(name: str) -> None:
    figures = [
        (one.check, figure)
        for one in judged(name, "full")
        for figure in one.figures
        if one.subject.gpu is not None and one.check != "gpudirect-write"
    ]
    assert {part.part for _, figure in figures for part in figure.parts} <= {Part.CEILING, Part.PEERS}
    assert {check for check, figure in figures if figure.parts} >= {"gpu-gemm", "gpu-memory-bandwidth"}


def test_trays_that_nvlink_joins_are_compared_with_what_they_did_before() -> None:
    whole = evidence_of("GB200 tray", "standard")
    for check in (BY_ID[name] for name in sorted(BANDWIDTHS)):
        faster = seeding.with_baseline(check.id, check.judge, GROUP, 1.25)(whole)
        (result,) = evaluate(check, faster)
        assert result.verdict is Verdict.FAIL, check.id


def test_trays_that_a_network_joins_are_held_against_it() -> None:
    """Where NCCL's log shows no NVLink between them, 835 GB/s are more than four adapters carry."""
    whole = evidence_of("GB200 tray", "standard")
    over_network = seeding.without_job(whole, "nccl_transport")
    (result,) = evaluate(BY_ID["all-reduce-bandwidth"], over_network)
    assert (result.verdict, "physics" in result.because) == (Verdict.NOT_RUN, True)


def test_copies_with_the_host_are_bound_by_pcie_where_no_c2c_joins_it() -> None:
    tray = evidence_of("GB200 tray", "standard")
    without = seeding.smi("gpu01", 2, "c2c_mode", "Disabled")(tray)
    found = {one.subject.gpu: one.verdict for one in evaluate(BY_ID["gpu-transfer"], without)[:4]}
    assert found == {0: Verdict.PASS, 1: Verdict.PASS, 2: Verdict.NOT_RUN, 3: Verdict.PASS}


def seeds_of(name: str, suite: str, wanted: frozenset[Part]) -> Iterator[tuple[Check, LimitSeed]]:
    """Those of all limits of these kinds that the suite's jobs have on this system, of as many nodes as need
    be: what `validate --self-test` makes of the sample.
    """
    evidence = cache(partial(with_jobs, name, suite))
    for check in load(suite).selected():
        if check.job in evidence(2).jobs and check.scale is not None:
            for seed in limit_seeds(replace(check, prepare=None), evidence):
                if seed.limits[0].part in wanted:
                    yield check, seed


def proved_checks(
    name: str, suite: str, wanted: frozenset[Part], known: frozenset[str] = frozenset()
) -> set[str]:
    """Checks whose limits were proved; an assertion fails where one is not what it should be."""
    proved = set()
    for check, seed in seeds_of(name, suite, wanted):
        if check.id in known:
            continue
        for limit, expected, got, because in seed.verdicts():
            assert got is expected, (name, check.id, limit, because)
            proved.add(check.id)
    return proved


# nccl-tests prints two digits: 5 % of what sixteen GPUs send over 25 Gb/s are less.
TOO_COARSE = {"L40S server": frozenset({"nccl-tests-all-to-all"})}
# The seeds change the scaling by the smaller group's step, which decides whether two adapters limit it.
OF_STEP = {"HGX A100": frozenset({"training-throughput", "training-throughput-pytorch"})}


@pytest.mark.parametrize(
    ("name", "part", "checks"),
    [
        (
            "DGX H100",
            Part.FLOOR,
            {
                "gpu-gemm",
                "gpu-transfer",
                "gpu-p2p-bandwidth",
                "gpudirect-write",
                "rdma-loopback",
                "rdma-write",
            }
            | {"all-reduce-bandwidth", "nccl-tests-all-reduce", "training-throughput"},
        ),
        (
            "L40S server",
            Part.PEERS,
            {"gpu-gemm", "gpu-memory-bandwidth", "gpu-transfer", "gpu-p2p-bandwidth"},
        ),
        ("GB200 tray", Part.PEERS, {"gpu-gemm", "gpu-p2p-bandwidth", "gpu-p2p-exchange"}),
    ],
)
def test_a_figure_5_percent_beyond_a_limit_is_found_on_other_hardware(
    name: str, part: Part, checks: set[str]
) -> None:
    assert proved_checks(name, "full", frozenset({part})) >= checks


@pytest.mark.campaign
@pytest.mark.parametrize("suite", ["full", "seeds"])
@pytest.mark.parametrize("name", [name for name in SYSTEMS if len(SYSTEMS[name].buses) > 1])
def test_every_limit_is_as_sharp_on_other_hardware(name: str, suite: str) -> None:
    known = TOO_COARSE.get(name, frozenset()) | OF_STEP.get(name, frozenset())
    assert proved_checks(name, suite, frozenset(Part), known) >= {"gpu-gemm"}
