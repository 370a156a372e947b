"""InfiniBand errors are judged by what they grow while a job loads the ports."""

from __future__ import annotations

from dataclasses import replace

import pytest

from clustercheck.checks.all import BY_ID
from clustercheck.checks.base import evaluate
from clustercheck.checks.support import seeding
from clustercheck.checks.support.rdma import edit_port, lose_adapter
from clustercheck.evidence.cluster import Evidence
from clustercheck.launch.model import RankState
from clustercheck.model import Result, Verdict
from clustercheck.samples import sample

PASS, FAIL, NOT_RUN = Verdict.PASS, Verdict.FAIL, Verdict.NOT_RUN


def judged(evidence: Evidence) -> list[Result]:
    return evaluate(BY_ID["infiniband-errors"], evidence)


def verdicts(evidence: Evidence) -> list[Verdict]:
    return [result.verdict for result in judged(evidence)]


_COUNTED = edit_port("gpu01", 0, counters={"symbol_error": "5000", "port_rcv_errors": "9000"})
OLD_ERRORS = seeding.chain(_COUNTED, seeding.later(_COUNTED))


def only_jobs(*jobs: str) -> seeding.Inject:
    """Of all jobs these alone ran."""
    return lambda evidence: replace(evidence, jobs={name: evidence.jobs[name] for name in jobs})


@pytest.mark.parametrize(
    ("nodes", "change", "verdict"),
    [
        (2, only_jobs("rdma_write"), PASS),
        (2, only_jobs("nccl_transport"), PASS),
        (2, only_jobs("nccl_tests"), PASS),
        (2, only_jobs("gpu_launch", "peer_ports", "gpu_peers", "all_reduce", "run_check"), NOT_RUN),
        (1, only_jobs("rdma_write", "nccl_transport", "nccl_tests"), NOT_RUN),  # none between nodes
        (
            2,
            seeding.chain(
                only_jobs("nccl_transport"), seeding.rank("nccl_transport", "gpu02", RankState.HUNG)
            ),
            NOT_RUN,
        ),
        (2, seeding.chain(only_jobs("inference"), seeding.on_gpus("inference", missing_on="")), NOT_RUN),
    ],
)
def test_older_errors_are_no_fault_of_today_only_after_a_job_that_loads_infiniband(
    nodes: int, change: seeding.Inject, verdict: Verdict
) -> None:
    result = judged(seeding.chain(OLD_ERRORS, change)(sample.healthy(nodes)))[0]
    assert result.verdict is verdict
    assert verdict is PASS or "no job of this run loaded it" in result.because


def test_what_grew_is_a_fault_whatever_loaded_it() -> None:
    grew = seeding.later(edit_port("gpu01", 0, counters={"link_downed": "40"}))
    idle = seeding.chain(only_jobs("gpu_launch"), grew)(sample.healthy(1))
    assert verdicts(idle) == [FAIL]


def stopped(counter: str, count: str) -> seeding.Inject:
    """A counter that had complete before the jobs."""
    end = edit_port("gpu01", 0, counters={counter: count})
    return seeding.chain(end, seeding.later(end))


def test_a_counter_at_its_end_hides_no_growth_and_is_missed_only_where_it_is_needed() -> None:
    evidence = sample.healthy(2)
    (result, _) = judged(stopped("port_xmit_discards", "65535")(evidence))
    assert result.verdict is PASS
    assert result.evidence["not_told"] == {"mlx5_0/1 port_xmit_discards": "it had been saturated before"}
    needed = stopped("symbol_error", "65535")(evidence)
    (result, _) = judged(needed)
    assert result.verdict is NOT_RUN and "symbol_error cannot be determined" in result.because
    others = seeding.later(edit_port("gpu01", 1, counters={"link_downed": "7", "symbol_error": "5000"}))
    (result, _) = judged(others(needed))
    assert result.verdict is FAIL and "mlx5_1/1 counted 7 link_downed" in result.because


@pytest.mark.parametrize(
    ("before", "after", "verdict"), [("500", "20", FAIL), ("500", "3", NOT_RUN), ("0", "65535", FAIL)]
)
def test_of_a_counter_that_was_cleared_what_it_counted_since_is_judged(
    before: str, after: str, verdict: Verdict
) -> None:
    first = edit_port("gpu01", 0, counters={"symbol_error": before})
    last = seeding.later(edit_port("gpu01", 0, counters={"symbol_error": after}))
    assert verdicts(seeding.chain(first, last)(sample.healthy(2)))[0] is verdict


@pytest.mark.parametrize(
    "fault",
    [
        lose_adapter("gpu01", 0),
        edit_port("gpu01", 0, state="1: DOWN", phys_state="2: Polling"),
        edit_port("gpu01", 0, state="1: DOWN", phys_state="2: Polling", counters={"link_downed": "0"}),
    ],
)
def test_a_port_that_is_gone_or_down_after_the_jobs_fails(fault: seeding.Inject) -> None:
    (result, other) = judged(seeding.later(fault)(sample.healthy(2)))
    assert result.verdict is FAIL and "mlx5_0/1 was up before the jobs" in result.because
    assert other.verdict is PASS


def test_flaps_of_the_first_day_count_where_nothing_could_be_read_again() -> None:
    flapped = edit_port("gpu01", 0, counters={"link_downed": "5"})
    found = seeding.chain(flapped, seeding.later(seeding.unreachable("gpu01")))(sample.healthy(2))
    assert verdicts(found) == [FAIL, PASS]


def test_growth_counts_where_the_node_does_not_tell_its_uptime() -> None:
    silent = seeding.edit("gpu01", lambda raw: raw.pop("host"))
    grew = seeding.later(edit_port("gpu01", 0, counters={"link_downed": "1"}))
    assert verdicts(seeding.chain(silent, grew)(sample.healthy(2))) == [FAIL, PASS]
