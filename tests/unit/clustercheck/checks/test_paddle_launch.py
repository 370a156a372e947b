"""A user's script by Paddle's launcher: what went wrong, on which node, and what all nodes together show."""

from __future__ import annotations

from typing import Any

import pytest

from clustercheck.checks import paddle_launch as checked
from clustercheck.checks.base import evaluate
from clustercheck.checks.support import seeding
from clustercheck.evidence.cluster import Evidence
from clustercheck.launch.model import RankOutcome
from clustercheck.model import Result, Verdict
from clustercheck.samples import sample


def judged(evidence: Evidence) -> dict[str | None, Result]:
    return {one.subject.node: one for one in evaluate(checked.CHECK, evidence)}


def says(node: str, **answer: Any) -> seeding.Inject:
    def change(rank: RankOutcome, verdict: seeding.Raw) -> None:
        if rank.node == node:
            verdict["launched"].update(answer)

    return seeding.verdicts(checked.JOB, change)


def test_the_last_error_of_its_processes_is_the_reason() -> None:
    log = "workerlog.0: Traceback\nValueError: one\nRuntimeError: NCCL error 2\nLAUNCH INFO exit\n"
    result = judged(says("gpu02", exit_code=1, log=log)(sample.healthy()))["gpu02"]
    assert result.verdict is Verdict.FAIL
    assert result.because == "paddle.distributed.launch ended with 1: RuntimeError: NCCL error 2"
    silent = judged(says("gpu02", exit_code=137, log="")(sample.healthy()))["gpu02"]
    assert silent.because == "paddle.distributed.launch ended with 137: its processes named no error"


def test_one_node_that_differs_is_named_alone() -> None:
    def differs(rank: RankOutcome, verdict: seeding.Raw) -> None:
        for trainer in verdict["trainers"]:
            if rank.node == "gpu02":
                trainer["parameters_sha256"] = "f" * 64

    found = judged(seeding.verdicts(checked.JOB, differs)(sample.healthy()))
    assert {node: one.verdict for node, one in found.items()} == {
        "gpu01": Verdict.PASS,
        "gpu02": Verdict.FAIL,
        "gpu03": Verdict.PASS,
    }


def test_samples_that_no_process_had_are_counted() -> None:
    def omits(rank: RankOutcome, verdict: seeding.Raw) -> None:
        if rank.node == "gpu03":
            verdict["trainers"][0]["seen"][1] = []

    found = judged(seeding.verdicts(checked.JOB, omits)(sample.healthy()))
    assert {one.because for one in found.values()} == {"3 of 100 samples were not trained on in epoch 2"}


def test_the_loss_of_one_process_may_rise_where_that_of_all_falls() -> None:
    def rises(rank: RankOutcome, verdict: seeding.Raw) -> None:
        if rank.node == "gpu01":
            verdict["trainers"][0]["losses"] = [0.4, 0.41]

    found = judged(seeding.verdicts(checked.JOB, rises)(sample.healthy()))
    assert {one.verdict for one in found.values()} == {Verdict.PASS}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("trainers", None),
        ("trainers", [{}]),
        ("processes", 0),
        ("all_processes", "24"),
        ("samples", 10**9),
        ("epochs", 3),
    ],
)
def test_what_cannot_be_read_is_not_run_and_nobody_knows_of_the_samples(key: str, value: object) -> None:
    def change(rank: RankOutcome, verdict: seeding.Raw) -> None:
        if rank.node == "gpu02":
            verdict[key] = value

    found = judged(seeding.verdicts(checked.JOB, change)(sample.healthy()))
    assert {one.verdict for one in found.values()} == {Verdict.NOT_RUN}
