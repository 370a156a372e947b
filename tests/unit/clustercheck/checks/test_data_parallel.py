"""The losses of a rank, and the votes of nodes: what is no loss is not read, and a pair is a majority."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.malformed import require_not_run

from clustercheck.checks.base import evaluate
from clustercheck.checks.data_parallel import CHECK, JOB
from clustercheck.checks.support import seeding
from clustercheck.launch.model import RankOutcome
from clustercheck.model import Verdict
from clustercheck.samples import sample


@pytest.mark.parametrize("losses", [None, 5, 0.5, True, "12", {}, {"1": 2}, [], [None], ["1"], [[]]])
def test_losses_that_are_none_are_not_run(losses: Any) -> None:
    require_not_run(CHECK, lambda verdict: verdict.update(losses=losses))


def test_of_four_nodes_two_that_agree_are_not_made_wrong_by_two_that_differ() -> None:
    hashes = dict(zip(("gpu01", "gpu02", "gpu03", "gpu04"), "aabc", strict=True))

    def change(rank: RankOutcome, verdict: seeding.Raw) -> None:
        verdict["parameters_sha256"] = hashes[rank.node] * 64

    results = evaluate(CHECK, seeding.verdicts(JOB, change)(sample.healthy(4)))
    assert [one.verdict for one in results] == [Verdict.PASS, Verdict.PASS, Verdict.FAIL, Verdict.FAIL]


def test_a_number_that_no_float_holds_is_its_own_nodes() -> None:
    def huge(rank: RankOutcome, verdict: seeding.Raw) -> None:
        if rank.node == "gpu03":
            verdict["max_loss_difference"] = 10**400

    found = {
        one.subject.node: one.verdict
        for one in evaluate(CHECK, seeding.verdicts(JOB, huge)(sample.healthy()))
    }
    assert found == {"gpu01": Verdict.PASS, "gpu02": Verdict.PASS, "gpu03": Verdict.FAIL}
