"""Copies between the GPUs of a node that run at the same time: both ways of each pair, and all GPUs together.

GB/s (1e9 bytes per second): of both ways together as NVIDIA's CUDA samples (p2pBandwidthLatencyTest) count
them, and one way of each GPU while all of them copy, each to the GPU that is 1, 2, ... places on, so that
every pair is met. What is measured of all GPUs, the first of them measures.
"""

from __future__ import annotations

import importlib
import statistics
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from clustercheck.jobs import bench as benches
    from clustercheck.jobs import device as devices
else:  # on a node they are single files, not a package
    benches = importlib.import_module(f"{__package__}.bench" if __package__ else "bench")

ALONE = True
WHOLE_NODE = True  # while one GPU copies, the node's others do what it asks of them alone
EXCHANGE_BYTES = 256 << 20
SENT_BYTES = 4 << 20  # compared byte by byte on the host
BOTH_WAYS, ALL_AT_ONCE = "peer_both_ways", "peer_all_at_once"


def _median_times_s(
    bench: benches.Bench, samples: int, measure: Callable[[int], Sequence[float]]
) -> list[float]:
    """Seconds of one copy, of each that ``measure`` times, by so many copies in a row as fill a sample."""
    once = max(bench.check_time(each, 1) for each in measure(1))
    repeat = benches.count_repeats(benches.SAMPLE_S, once)
    found = [[bench.check_time(each, repeat) for each in measure(repeat)] for _ in range(max(1, samples))]
    return [statistics.median(times) for times in zip(*found)]


def measure_pair(
    bench: benches.Bench, peers: devices.Peers, other: str, count: int, samples: int
) -> dict[str, Any]:
    """Both ways with one other GPU: GB/s together, and whether the copies are direct."""
    bench.set_phase(f"copying to and from {other}")
    with peers.both_ways(other, count) as link:
        (time_s,) = _median_times_s(bench, samples, lambda repeat: [link.elapsed_s(count, repeat)])
        return {"gbps": 2 * count / time_s / 1e9, "direct": link.direct}


def _times_s(rotation: devices.PeerRotation, shift: int, count: int, repeat: int) -> Sequence[float]:
    return rotation.elapsed_s(shift, count, repeat)


def measure_all(
    bench: benches.Bench, peers: devices.Peers, count: int, samples: int, seed: int
) -> dict[str, Any]:
    """By GPU: GB/s one way to each other, and how many bytes arrived corrupted where any did."""
    found: dict[str, Any] = {}
    with peers.together(count) as rotation:
        places = rotation.addresses
        for shift in range(1, len(places)):
            bench.set_phase(f"all GPUs copying to the GPU {shift} places on")
            times = _median_times_s(bench, samples, partial(_times_s, rotation, shift, count))
            wrong = rotation.wrong_bytes(shift, min(count, SENT_BYTES), seed + shift)
            for number, (place, time_s) in enumerate(zip(places, times)):
                target = places[(number + shift) % len(places)]
                mine = found.setdefault(place, {"gbps": {}, "wrong": {}})
                mine["gbps"][target] = count / time_s / 1e9
                if wrong[number]:
                    mine["wrong"][target] = wrong[number]
    return found


def run(bench: benches.Bench, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments: exchange_bytes, samples, seed, floors {metric: GB/s}. Figures are of the worst."""
    peers = bench.device.peers()
    others = peers.others() if peers else []
    if peers is None or not others:
        return {"ok": True, "because": "", "figures": [], "both_ways": {}, "together": {}}
    count, samples = int(arguments.get("exchange_bytes", EXCHANGE_BYTES)), int(arguments.get("samples", 3))
    pairs = {other: measure_pair(bench, peers, other, count, samples) for other in others}
    leads = peers.own() < min(others)
    together = measure_all(bench, peers, count, samples, int(arguments.get("seed", 1))) if leads else {}
    route = "direct" if all(each["direct"] for each in pairs.values()) else "through the host's memory"
    method = f"{peers.method}, {route}, median"
    figures = [
        benches.make_figure(
            BOTH_WAYS,
            [min(each["gbps"] for each in pairs.values())],
            "GB/s",
            f"{method}, both ways together, one pair at a time",
        )
    ]
    if together:
        slowest = min(gbps for each in together.values() for gbps in each["gbps"].values())
        figures.append(
            benches.make_figure(
                ALL_AT_ONCE, [slowest], "GB/s", f"{method}, one way, all GPUs at the same time"
            )
        )
    problems = [
        f"{n} of {min(count, SENT_BYTES)} bytes from {source} arrived corrupted at {target}"
        for source, each in together.items()
        for target, n in each["wrong"].items()
    ]
    return bench.conclude(figures, problems, arguments, both_ways=pairs, together=together)
