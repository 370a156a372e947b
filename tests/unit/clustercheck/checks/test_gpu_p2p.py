"""Peer access: whose refusal it is where several GPUs refuse each other."""

from __future__ import annotations

from clustercheck.checks.base import evaluate
from clustercheck.checks.gpu_p2p import CHECK
from clustercheck.checks.support import seeding
from clustercheck.model import Verdict
from clustercheck.samples import sample


def refused(*pairs: tuple[int, int]) -> seeding.Inject:
    """These pairs of gpu01's GPUs do not read each other."""

    def change(raw: seeding.Raw) -> None:
        rows = [line.split("\t") for line in raw["peer_access"]["r"]["stdout"].split("\n")]
        for one, other in pairs:
            rows[1 + one][1 + other] = rows[1 + other][1 + one] = "CNS"
        raw["peer_access"]["r"]["stdout"] = "\n".join("\t".join(cells) for cells in rows)

    return seeding.edit("gpu01", change)


def failed(*pairs: tuple[int, int]) -> set[int | None]:
    results = evaluate(CHECK, refused(*pairs)(sample.healthy(1)))
    return {one.subject.gpu for one in results if one.verdict is Verdict.FAIL}


def test_a_gpu_that_most_refuse_is_blamed_alone_and_a_pair_beside_it_as_well() -> None:
    of_one = [(7, other) for other in range(6)]
    assert failed(*of_one) == {7}
    assert failed(*of_one, (0, 1)) == {0, 1, 7}


def test_each_gpu_of_many_pairs_is_blamed() -> None:
    assert failed((0, 1), (2, 3), (4, 5), (6, 7)) == set(range(8))
