"""Copies from one GPU to each other GPU of its node: bandwidth, latency, and correctness of every byte.

GB/s (1e9 bytes per second) = size / time, one way, one pair at a time, as NVIDIA's CUDA samples
(p2pBandwidthLatencyTest) and nvbandwidth count it. The latency is that of one of many small copies in a row.
"""

from __future__ import annotations

import importlib
import statistics
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from clustercheck.jobs import bench as benches
    from clustercheck.jobs import device as devices
else:  # on a node they are single files, not a package
    benches = importlib.import_module(f"{__package__}.bench" if __package__ else "bench")

ALONE = True
WHOLE_NODE = True  # while one GPU copies, the node's others are idle
PEER_BYTES = 256 << 20
SENT_BYTES = 16 << 20  # compared byte by byte on the host
SMALL_BYTES, SMALL_COPIES = 16, 1000
WORST = {"peer_to_peer": ("GB/s", min), "peer_latency": ("us", max)}


def measure_link(
    bench: benches.Bench, peers: devices.Peers, other: str, arguments: Mapping[str, Any]
) -> dict[str, Any]:
    """One link: GB/s, microseconds, whether the copies are direct, and how many bytes were corrupted."""
    count, samples = int(arguments.get("peer_bytes", PEER_BYTES)), int(arguments.get("samples", 5))
    bench.set_phase(f"copying to {other}")
    with peers.link(other, max(count, SENT_BYTES)) as link:

        def time_s(size: int, repeat: int) -> float:
            times = [
                bench.check_time(link.elapsed_s(size, repeat), repeat) for _ in range(max(1, samples) + 1)
            ]
            return statistics.median(times[1:])  # the first one warms up

        repeat = benches.count_repeats(benches.SAMPLE_S, bench.check_time(link.elapsed_s(count, 1), 1))
        return {
            "gbps": count / time_s(count, repeat) / 1e9,
            "latency_us": 1e6 * time_s(SMALL_BYTES, SMALL_COPIES),
            "direct": link.direct,
            "wrong_bytes": link.wrong_bytes(int(arguments.get("seed", 1))),
        }


def run(bench: benches.Bench, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments: peer_bytes, samples, seed, floors {metric: GB/s}. Figures are of the worst link."""
    peers = bench.device.peers()
    others = peers.others() if peers else []
    if peers is None or not others:
        return {"ok": True, "because": "", "figures": [], "peers": {}}
    found = {other: measure_link(bench, peers, other, arguments) for other in others}
    problems = [
        f"{each['wrong_bytes']} of {SENT_BYTES} bytes arrived corrupted at {other}"
        for other, each in found.items()
        if each["wrong_bytes"]
    ]
    route = "direct" if all(each["direct"] for each in found.values()) else "through the host's memory"
    method = f"{peers.method}, {route}, one way, one pair at a time, median"
    values = {
        "peer_to_peer": [each["gbps"] for each in found.values()],
        "peer_latency": [each["latency_us"] for each in found.values()],
    }
    figures = [
        benches.make_figure(metric, [worst(values[metric])], unit, method)
        for metric, (unit, worst) in WORST.items()
    ]
    return bench.conclude(figures, problems, arguments, peers=found)
