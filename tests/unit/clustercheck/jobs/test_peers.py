"""Copies between GPUs: the calls of CUDA's driver, the program, and whose fault a bad link is."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.support.phases import Phases
from tests.support.played_cuda import ADDRESSES, Cuda
from tests.support.played_device import PlayedDevice

from clustercheck.checks import gpu_peer_bandwidth
from clustercheck.checks.all import BY_ID
from clustercheck.checks.base import evaluate
from clustercheck.evidence.cluster import Evidence
from clustercheck.jobs import bench as benches
from clustercheck.jobs import gpu_peers
from clustercheck.jobs.backends.peers import CudaPeers, PeerError
from clustercheck.launch.model import RankOutcome, RankState
from clustercheck.model import Result, Verdict
from clustercheck.samples import sample

SMALL = {"samples": 2, "peer_bytes": 1 << 20}
OUT_OF_MEMORY, NOT_SUPPORTED = 2, 217


def test_a_device_names_the_others_and_copies_to_each() -> None:
    cuda = Cuda()
    peers = CudaPeers(0, cuda)
    assert peers.others() == ADDRESSES[1:]
    with peers.link(ADDRESSES[2], 4096) as link:
        assert link.direct is True
        assert link.elapsed_s(4096, 8) == pytest.approx(0.002)
        assert cuda.calls.count("cuMemcpyPeerAsync") == 8
        assert link.wrong_bytes(seed=3) == 0
    assert cuda.is_tidy()


def test_bytes_that_stay_behind_are_counted() -> None:
    with CudaPeers(0, Cuda(loses=100)).link(ADDRESSES[1], 4096) as link:
        assert 95 <= link.wrong_bytes(seed=3) <= 100  # a random byte may equal the poison


def test_devices_without_access_to_each_other_copy_through_the_host_and_say_so() -> None:
    cuda = Cuda(refuses="cuCtxEnablePeerAccess", code=NOT_SUPPORTED)
    with CudaPeers(0, cuda).link(ADDRESSES[1], 64) as link:
        assert link.direct is False and link.wrong_bytes(seed=1) == 0
    with CudaPeers(0, Cuda(refuses="cuCtxEnablePeerAccess", code=704)).link(ADDRESSES[1], 64) as link:
        assert link.direct is True


@pytest.mark.parametrize(
    "name",
    ["cuDevicePrimaryCtxRetain", "cuMemAlloc_v2", "cuStreamCreate", "cuEventCreate", "cuCtxEnablePeerAccess"],
)
def test_a_driver_error_is_reported_and_resources_are_released(name: str) -> None:
    cuda = Cuda(refuses=name, code=OUT_OF_MEMORY)
    with pytest.raises(PeerError, match=f"{name}: CUDA error 2"), CudaPeers(0, cuda).link(ADDRESSES[1], 64):
        pass
    assert cuda.is_tidy()


class Joined(PlayedDevice):
    """A played device with others next to it."""

    def __init__(self, cuda: Cuda | None) -> None:
        super().__init__()
        self._links = CudaPeers(0, cuda) if cuda else None

    def peers(self) -> Any:
        return self._links


def run(device: Joined, **more: Any) -> dict[str, Any]:
    bench = benches.Bench(device, Phases(), place="gpu:0")  # type: ignore[arg-type]
    return gpu_peers.run(bench, {**SMALL, **more})


def test_the_program_tells_every_link_and_the_worst_of_them() -> None:
    said = run(Joined(Cuda(ms=20.0)))  # one copy takes 20 ms, and so fills a sample
    assert said["ok"] is True and list(said["peers"]) == ADDRESSES[1:]
    figures = {each["metric"]: each for each in said["figures"]}
    assert figures["peer_to_peer"]["value"] == pytest.approx((1 << 20) / 0.020 / 1e9)
    assert figures["peer_latency"]["value"] == pytest.approx(20.0)  # 20 ms for a thousand
    assert "direct" in figures["peer_to_peer"]["method"]


def test_corrupted_bytes_are_reported_and_a_zero_time_is_refused() -> None:
    said = run(Joined(Cuda(loses=4096)))
    assert said["ok"] is False and f"bytes arrived corrupted at {ADDRESSES[1]}" in said["because"]
    with pytest.raises(benches.MeasurementError):
        run(Joined(Cuda(ms=0.0)))


def test_a_device_without_others_measures_nothing() -> None:
    assert run(Joined(None)) == {"ok": True, "because": "", "figures": [], "peers": {}}


def judged(evidence: Evidence) -> dict[tuple[str, int], Result]:
    found = evaluate(BY_ID["gpu-p2p-bandwidth"], evidence)
    return {(str(each.subject.node), int(each.subject.gpu or 0)): each for each in found}


def failed(evidence: Evidence) -> list[tuple[str, int]]:
    return [place for place, result in judged(evidence).items() if result.verdict is Verdict.FAIL]


def test_only_the_slow_gpu_fails_and_its_peers_are_judged_by_their_other_links() -> None:
    evidence = gpu_peer_bandwidth._of_gpu("gpu02", 3, gbps=90.0)(sample.healthy())
    assert failed(evidence) == [("gpu02", 3)]
    other = judged(evidence)["gpu02", 0]
    assert other.verdict is Verdict.PASS and other.evidence["not_its_own"] == [3]


def test_one_bad_link_is_both_ends() -> None:
    evidence = gpu_peer_bandwidth._changed("gpu01", {(2, 5): {"gbps": 40.0}})(sample.healthy())
    assert failed(evidence) == [("gpu01", 2), ("gpu01", 5)]
    lost = gpu_peer_bandwidth._changed("gpu01", {(2, 5): {"wrong_bytes": 7}})(sample.healthy())
    assert failed(lost) == [("gpu01", 2), ("gpu01", 5)]
    assert "GPU 5 (7 bytes)" in judged(lost)["gpu01", 2].because


def test_only_the_gpu_that_gets_wrong_bytes_from_all_fails() -> None:
    evidence = gpu_peer_bandwidth._of_gpu("gpu03", 6, wrong_bytes=12)(sample.healthy())
    assert failed(evidence) == [("gpu03", 6)]


def test_a_gpu_with_unknown_peers_is_not_run_with_the_reason() -> None:
    sound = sample.healthy()

    def alone(rank: RankOutcome) -> RankOutcome:
        if (rank.node, rank.gpu) == ("gpu01", 0) or rank.node != "gpu01":
            return rank
        return replace(rank, state=RankState.KILLED, verdict=None)

    job = sound.jobs[gpu_peer_bandwidth.JOB]
    others_gone = replace(job, ranks=tuple(map(alone, job.ranks)))
    evidence = replace(sound, jobs={**sound.jobs, gpu_peer_bandwidth.JOB: others_gone})
    result = judged(evidence)["gpu01", 0]
    assert result.verdict is Verdict.NOT_RUN
    assert "match no GPU of this node with a known PCI address" in result.because
    assert judged(evidence)["gpu02", 0].verdict is Verdict.PASS


def test_the_node_is_taken_exclusively_after_all_others_finished(tmp_path: Path) -> None:
    order: list[str] = []
    at_work, end = threading.Event(), threading.Event()
    first, second = (benches.Bench(PlayedDevice(), Phases(), place=f"gpu:{n}") for n in (0, 1))  # type: ignore[arg-type]

    @contextmanager
    def note(name: str) -> Iterator[None]:
        order.append(f"{name} starts")
        yield
        order.append(f"{name} ends")

    def busy() -> None:
        with first.use_device(tmp_path), note("own work"):
            at_work.set()
            assert end.wait(30)

    def whole() -> None:
        with second.take_node(tmp_path), note("whole node"):
            pass

    threads = [threading.Thread(target=busy), threading.Thread(target=whole)]
    threads[0].start()
    assert at_work.wait(30)
    threads[1].start()
    threads[1].join(0.3)
    assert threads[1].is_alive() and order == ["own work starts"]
    end.set()
    for thread in threads:
        thread.join(30)
    assert order == ["own work starts", "own work ends", "whole node starts", "whole node ends"]
