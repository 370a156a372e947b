"""An image of 1 GB from the cluster's registry to all nodes of a lab at once, against the arithmetic limit.

    script/test --bench -- tests/bench/test_pull_speed.py -s --hosts 2,4,8

A size at a time, each in a lab of its own, whose registry sends over a link that tc shapes. The least time
is that of the bytes over that link (1448 bytes of a frame of 1538), counted here and not taken from what
apply says of itself. What was measured is kept in .lab-test-figures/ and written to docs/performance.md.
"""

from __future__ import annotations

import datetime
import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.support.registries import registry

from . import contenders, fat_image, figures, pull_figures
from .labs import BenchLab, fresh_lab
from .linked_registry import payload_rate

pytestmark = pytest.mark.bench

ROUNDS = 3
LINK_MBPS = 400
SIZE, LAYERS = 1_000_000_000, 8
REPOSITORY = "bench/fat"
# About what one size takes, and each node of it: lab, first apply, and one round over the link.
SIZE_S, NODE_S = 240.0, 60.0
# Of more rounds as many as fit in here.
STAGE_S = 300.0
RECEIVED = "cat /sys/class/net/eth0/statistics/rx_bytes"
GOAL = 0.5


def test_pulls_against_the_limit_of_the_link(
    bench_hosts: int, bench_deadline: float, repository: Path, tmp_path: Path
) -> None:
    if time.monotonic() + SIZE_S + NODE_S * bench_hosts > bench_deadline:
        pytest.skip("there is no time left for this size (--minutes); what was measured before stays")
    work = repository / ".lab-test-figures"
    kept = figures.load(work / "pulls.json")
    one: dict[str, Any] = {
        "measured": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d"), "link_mbps": LINK_MBPS,
    }  # fmt: skip
    kept[str(bench_hosts)] = one
    try:
        with fresh_lab(work / f"pulls{bench_hosts}", bench_hosts) as lab:
            measure(lab, bench_hosts, one, tmp_path)
    except (RuntimeError, OSError, ValueError, KeyError) as error:
        one["problems"] = [str(error).replace("\n", " ")[:300]]
        raise
    finally:
        figures.save(work / "pulls.json", kept)
        sizes = ",".join(sorted(kept, key=int))
        command = f"script/test --bench -- tests/bench/test_pull_speed.py -s --hosts {sizes}"
        pull_figures.write(repository / "docs/performance.md", kept, command)
        sys.stderr.write(pull_figures.table({str(bench_hosts): one}) + "\n")
    taken = figures.middle(one["pull"])
    assert taken
    assert one["limit_s"] / taken > GOAL
    assert one["limit_s"] / taken < 1.05, "faster than the link allows: it was not shaped"


def measure(lab: BenchLab, size: int, one: dict[str, Any], work: Path) -> None:
    """Fill ``one`` with what each round took, in seconds, and with what moved."""
    ours = [str(Path(sys.executable).with_name("clusterctl")), "-C", str(lab.cluster)]
    nodes = [f"gpu{number:02}" for number in range(1, size + 1)]
    contenders.timed([*ours, "apply", "--yes"])
    with registry(work / "source") as source:
        digest, one["bytes"] = fat_image.put(source.host, REPOSITORY, "1", SIZE, LAYERS)
        declare(lab, [*nodes, contenders.REGISTRY], f"http://{source.host}/{REPOSITORY}", digest)
        contenders.timed([*ours, "lock"])
        contenders.timed([*ours, "images", "mirror"])
    lab.ssh(contenders.REGISTRY, "sudo tc qdisc replace dev eth0 root tbf "
                                 f"rate {LINK_MBPS}mbit burst 256kb latency 50ms")  # fmt: skip
    one["limit_s"] = round(size * one["bytes"] / payload_rate(LINK_MBPS), 3)
    begun = time.monotonic()
    for number in range(ROUNDS):
        if number and (time.monotonic() - begun) * (number + 1) / number > STAGE_S:
            return
        a_round(lab, ours, nodes, one)


def a_round(lab: BenchLab, ours: list[str], nodes: list[str], one: dict[str, Any]) -> None:
    """All nodes without an image, then an apply of images that brings it to all of them at once."""
    for node in nodes:
        lab.ssh(node, "sudo docker image prune --all --force")
    before = {node: int(lab.ssh(node, RECEIVED)) for node in nodes}
    words = ["apply", "--yes", "--json", "--only", "images", "--canary", "0"]
    taken, done = contenders.timed([*ours, *words])
    (pull,) = json.loads(done.stdout.splitlines()[-1])["pulls"]
    if sorted(node["host"] for node in pull["nodes"]) != nodes:
        raise RuntimeError(f"not all of {nodes} pulled: {pull}")
    if not 0.9 < pull["limit_s"] / one["limit_s"] < 1.1:
        raise RuntimeError(f"apply says {pull['limit_s']} s is the least, and it is {one['limit_s']} s")
    moved = sum(int(lab.ssh(node, RECEIVED)) - before[node] for node in nodes)
    for name, value in (
        ("apply", taken.wall_s),
        ("pull", pull["seconds"]),
        ("download", max(node["download_s"] for node in pull["nodes"])),
        ("moved", moved / (len(nodes) * one["bytes"])),
    ):
        one.setdefault(name, []).append(value)


def declare(lab: BenchLab, hosts: list[str], source: str, digest: str) -> None:
    """The image in place of the lab's own, and how fast the registry's link is."""
    said = {
        "training_image_source": source, "training_image_digest": digest,
        "training_image_repository": REPOSITORY, "training_image_link_mbps": 10 * LINK_MBPS,
        "training_image_registry_link_mbps": LINK_MBPS,
    }  # fmt: skip
    folder = lab.cluster / "host_vars"
    folder.mkdir(exist_ok=True)
    for host in hosts:
        (folder / f"{host}.yml").write_text(yaml.safe_dump(said), encoding="utf-8")
