"""NVLink errors are judged by what they grow during the jobs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from clustercheck.checks.all import BY_ID
from clustercheck.checks.base import evaluate
from clustercheck.checks.support import seeding
from clustercheck.checks.support.seeding_gpus import Seeds
from clustercheck.evidence.cluster import Evidence
from clustercheck.launch.model import RankState
from clustercheck.model import Result, Verdict
from clustercheck.samples import sample


def counted(replays: int) -> seeding.Inject:
    """On link 3 of the first GPU."""
    return seeding.stdout(
        "gpu01", "nvlink_errors", "Link 3: Replay Errors: 0", f"Link 3: Replay Errors: {replays}"
    )


def judged(evidence: Evidence) -> Result:
    return evaluate(BY_ID["nvlink-errors"], evidence)[0]


@pytest.mark.parametrize(
    ("before", "after", "verdict"),
    [
        (2, 2, Verdict.PASS),  # of last year
        (2, 3, Verdict.FAIL),
        (0, 1, Verdict.FAIL),
        (2, 0, Verdict.NOT_RUN),  # cleared in between
    ],
)
def test_what_grew_during_the_jobs_counts(before: int, after: int, verdict: Verdict) -> None:
    result = judged(seeding.chain(counted(before), seeding.later(counted(after)))(sample.healthy(1)))
    assert result.verdict is verdict
    if verdict is Verdict.PASS:
        assert result.evidence["before"] == {"link 3: replay errors": 2}


def test_without_a_job_older_errors_are_told_and_not_judged() -> None:
    idle = replace(sample.healthy(1), later={})
    assert judged(idle).verdict is Verdict.PASS
    result = judged(counted(2)(idle))
    assert result.verdict is Verdict.NOT_RUN and "link 3: 2 replay errors" in result.because


def only_jobs(*jobs: str) -> seeding.Inject:
    """Of all jobs these alone ran."""
    return lambda evidence: replace(evidence, jobs={name: evidence.jobs[name] for name in jobs})


def copied_through_the_host(said: dict[str, Any]) -> None:
    for link in said["peers"].values():
        link["direct"] = False


@pytest.mark.parametrize(
    ("change", "verdict"),
    [
        (only_jobs("gpu_peers"), Verdict.PASS),
        (only_jobs("nccl_transport"), Verdict.PASS),
        (only_jobs("nccl_tests"), Verdict.PASS),
        (only_jobs("gpu_launch", "gpu_gemm", "peer_ports", "rdma_write", "all_reduce"), Verdict.NOT_RUN),
        (
            seeding.chain(
                only_jobs("gpu_peers"), Seeds("gpu_peers").changed("gpu01", 0, copied_through_the_host)
            ),
            Verdict.NOT_RUN,
        ),
        (
            seeding.chain(
                only_jobs("nccl_transport"), seeding.rank("nccl_transport", "gpu01", RankState.FAILED)
            ),
            Verdict.NOT_RUN,
        ),
    ],
)
def test_older_errors_are_no_fault_of_today_only_after_a_job_that_loads_nvlink(
    change: seeding.Inject, verdict: Verdict
) -> None:
    old = seeding.chain(counted(14_200), seeding.later(counted(14_200)), change)
    result = judged(old(sample.healthy(1)))
    assert result.verdict is verdict
    assert verdict is Verdict.PASS or "no job of this run loaded it" in result.because


def test_what_grew_is_a_fault_whatever_loaded_it() -> None:
    grew = seeding.chain(only_jobs("gpu_launch"), seeding.later(counted(142)))
    assert judged(grew(sample.healthy(1))).verdict is Verdict.FAIL


@pytest.mark.parametrize("when", [seeding.chain, seeding.later])
def test_a_counter_that_is_not_told_hides_no_growth_of_another(when: Callable[..., seeding.Inject]) -> None:
    silent = when(
        seeding.stdout("gpu01", "nvlink_errors", "Link 0: Recovery Errors: 0", "Link 0: Recovery Errors: N/A")
    )
    assert judged(silent(sample.healthy(1))).verdict is Verdict.NOT_RUN
    found = seeding.chain(silent, seeding.later(counted(142)))(sample.healthy(1))
    assert judged(found).verdict is Verdict.FAIL


def test_what_grew_on_links_that_were_down_before_is_a_fault() -> None:
    def down(raw: seeding.Raw) -> None:
        before, of_first, after = raw["nvlink_errors"]["stdout"].partition("GPU 1:")
        name = before.partition("\n")[0]
        raw["nvlink_errors"]["stdout"] = f"{name}\n\t Link 0: <inactive>\n{of_first}{after}"

    began = seeding.edit("gpu01", down)(sample.healthy(1))
    assert judged(replace(began, later=began.nodes)).verdict is Verdict.EXCLUDED
    assert judged(seeding.later(counted(142))(began)).verdict is Verdict.FAIL


LINK_3 = "".join(f"\t Link 3: {name} Errors: 0\n" for name in ("Replay", "Recovery", "CRC"))


@pytest.mark.parametrize(
    ("said", "because"),
    [
        ("\t Link 3: <inactive>\n", "link 3 was up before and is not any more"),
        ("\t GPU requires reset\n", "link 0 was up before"),
    ],
)
def test_a_link_that_is_down_after_the_jobs_fails(said: str, because: str) -> None:
    down = seeding.later(seeding.stdout("gpu01", "nvlink_errors", LINK_3, said))(sample.healthy(1))
    result = judged(down)
    assert result.verdict is Verdict.FAIL and because in result.because
    others = evaluate(BY_ID["nvlink-errors"], down)[1:]
    assert {each.verdict for each in others} == {Verdict.PASS}


def test_a_gpu_that_is_lost_after_the_jobs_fails_and_its_neighbours_do_not() -> None:
    def lost(raw: seeding.Raw) -> None:
        before, _, after = raw["nvlink_errors"]["stdout"].partition("GPU 3:")
        said = "Unable to determine the device handle for GPU 0000:4E:00.0: GPU is lost.\n"
        text = before + said + "GPU 4:" + after.partition("GPU 4:")[2]
        raw["nvlink_errors"].update(rc=15, stdout=text)

    found = seeding.later(seeding.edit("gpu01", lost))(sample.healthy(1))
    verdicts = [each.verdict for each in evaluate(BY_ID["nvlink-errors"], found)]
    assert verdicts == [Verdict.FAIL if gpu == 3 else Verdict.PASS for gpu in range(8)]
