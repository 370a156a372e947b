"""Copies at the same time: CUDA's calls, the program, and which GPU a slow pair or a lost byte belongs to."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from tests.support.phases import Phases
from tests.support.played_cuda import ADDRESSES, Cuda
from tests.support.played_device import PlayedDevice

from clustercheck.checks import gpu_exchange as checked
from clustercheck.checks.base import evaluate
from clustercheck.checks.support import seeding
from clustercheck.checks.support.seeding_gpus import no_profile
from clustercheck.evidence.cluster import Evidence
from clustercheck.jobs import bench as benches
from clustercheck.jobs import gpu_exchange
from clustercheck.jobs.backends.peers import CudaPeers, PeerError
from clustercheck.model import Result, Verdict
from clustercheck.samples import sample

SMALL = {"samples": 2, "exchange_bytes": 1 << 16}


def test_two_devices_copy_to_each_other_each_on_its_own_stream() -> None:
    cuda = Cuda(ms=2.0)
    with CudaPeers(1, cuda).both_ways(ADDRESSES[0], 4096) as link:
        assert link.direct is True
        assert link.elapsed_s(4096, 8) == pytest.approx(0.002)
    assert cuda.calls.count("cuMemcpyPeerAsync") == 16
    assert cuda.is_tidy()


def test_all_devices_copy_at_once_each_to_the_one_so_many_places_on() -> None:
    cuda = Cuda()
    with CudaPeers(1, cuda).together(4096) as rotation:
        assert rotation.addresses == ADDRESSES
        assert rotation.elapsed_s(2, 4096, 5) == pytest.approx([0.002] * 3)
        assert cuda.calls.count("cuMemcpyPeerAsync") == 15
        assert [rotation.wrong_bytes(shift, 4096, seed=3) for shift in (1, 2)] == [[0, 0, 0]] * 2
    assert cuda.is_tidy()


def test_bytes_that_stay_behind_under_load_are_counted_by_sender() -> None:
    with CudaPeers(0, Cuda(loses=100)).together(4096) as rotation:
        assert all(95 <= wrong <= 100 for wrong in rotation.wrong_bytes(1, 4096, seed=3))


@pytest.mark.parametrize("name", ["cuMemAlloc_v2", "cuStreamCreate", "cuEventCreate", "cuMemcpyPeerAsync"])
def test_a_driver_error_releases_what_was_taken(name: str) -> None:
    cuda = Cuda(refuses=name, code=2)
    with pytest.raises(PeerError, match=name), CudaPeers(0, cuda).together(64) as rotation:
        rotation.elapsed_s(1, 64, 1)
    assert cuda.is_tidy()


class Exchanging(PlayedDevice):
    """A played device of this number with others next to it."""

    def __init__(self, cuda: Cuda | None, number: int = 0) -> None:
        super().__init__()
        self._links = CudaPeers(number, cuda) if cuda else None

    def peers(self) -> Any:
        return self._links


def run(device: Exchanging) -> dict[str, Any]:
    bench = benches.Bench(device, Phases(), place="gpu:0")  # type: ignore[arg-type]
    return gpu_exchange.run(bench, SMALL)


def test_the_program_tells_every_pair_both_ways_and_the_first_gpu_all_of_them_at_once() -> None:
    first, second = (run(Exchanging(Cuda(ms=20.0), number)) for number in (0, 1))
    both = 2 * (1 << 16) / 0.020 / 1e9
    assert [pair["gbps"] for pair in second["both_ways"].values()] == pytest.approx([both] * 2)
    assert (list(first["together"]), second["together"]) == (ADDRESSES, {})
    figures = {each["metric"]: each["value"] for each in first["figures"]}
    assert figures == {
        "peer_both_ways": pytest.approx(both), "peer_all_at_once": pytest.approx(both / 2),
    }  # fmt: skip
    assert run(Exchanging(None))["both_ways"] == {}


def test_corrupted_bytes_are_told_by_both_ends() -> None:
    said = run(Exchanging(Cuda(loses=4096)))
    assert said["ok"] is False
    assert f"bytes from {ADDRESSES[0]} arrived corrupted at {ADDRESSES[1]}" in said["because"]


def judged(evidence: Evidence) -> dict[tuple[str, int], Result]:
    found = evaluate(checked.CHECK, evidence)
    return {(str(each.subject.node), int(each.subject.gpu or 0)): each for each in found}


def failed(*injects: seeding.Inject) -> list[tuple[str, int]]:
    evidence = seeding.chain(*injects)(sample.healthy())
    return [place for place, result in judged(evidence).items() if result.verdict is Verdict.FAIL]


def test_only_the_gpu_fails_whose_pairs_are_all_slow() -> None:
    assert failed(checked._pairs_of("gpu02", 3, 250.0)) == [("gpu02", 3)]
    evidence = checked._pairs_of("gpu02", 3, 250.0)(sample.healthy())
    assert judged(evidence)["gpu02", 0].evidence["not_its_own"] == [3]


def test_only_the_gpu_fails_that_is_slow_while_all_copy() -> None:
    """Each of the others is slow to it alone."""
    assert failed(checked._while_all_copy("gpu02", 5, 131.0)) == [("gpu02", 5)]


def test_a_gpu_a_little_slower_than_its_equals_is_none_that_fails() -> None:
    assert failed(checked._while_all_copy("gpu02", 5, 0.97 * 262.5)) == []
    assert failed(checked._while_all_copy("gpu02", 5, gbps=0.85 * 262.5)) == [("gpu02", 5)]
    assert failed(checked._pairs_of("gpu02", 5, 0.97 * 510.0)) == []
    assert failed(checked._pairs_of("gpu02", 5, 0.85 * 510.0)) != []


@pytest.mark.parametrize(
    ("inject", "limit"),
    [
        (partial(checked._pairs_of, "gpu01", 0), 1.02 * 600.0),
        (lambda gbps: checked._while_all_copy("gpu01", 0, gbps=gbps), 1.02 * 300.0),
    ],
)
def test_what_the_links_cannot_carry_is_no_measurement(inject: Any, limit: float) -> None:
    results = [judged(inject(limit * factor)(sample.healthy()))["gpu01", 0] for factor in (0.95, 1.05)]
    assert [result.verdict for result in results] == [Verdict.PASS, Verdict.NOT_RUN]


def test_bytes_lost_under_load_fail_where_they_arrive() -> None:
    assert failed(checked._corrupted("gpu03", 6, 1)) == [("gpu03", 1)]


def test_without_nvswitch_gpus_are_compared_with_the_same_place_alone() -> None:
    """Where GPUs share switches unequally, one of a node may be slower than its neighbours by design."""
    slow = [checked._while_all_copy(node, 5, gbps=100.0) for node in ("gpu01", "gpu02", "gpu03")]
    assert failed(*slow) != []
    assert failed(no_profile(), *slow) == []


def test_the_others_are_not_judged_by_load_where_the_first_did_not_say() -> None:
    evidence = checked._SEED.says("gpu02", 0, together={})(sample.healthy())
    result = judged(evidence)["gpu02", 4]
    assert result.verdict is Verdict.NOT_RUN and "no GPU measured it" in result.because
