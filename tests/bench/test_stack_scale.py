"""Stacks of 1,000 nodes of five kinds against those of five nodes: kinds are resolved, not nodes.

script/test --bench -- tests/bench/test_stack_scale.py
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from clusterctl.cluster.directory import ClusterDirectory
from clusterctl.cluster.inventory import Inventory, from_listing
from clusterctl.cluster.lock import Lock
from clusterctl.stack.facts import NodeFacts
from clusterctl.stack.judge import StackReport, judge_stacks

pytestmark = pytest.mark.bench

NODES = 1000
ROUNDS = 5
# The time of 5 nodes is that of the search, and 1,000 nodes add the reading of their settings.
MAX_RATIO = 5.0
PROFILES = ("hgx-a100-80gb", "h100-sxm5-80gb", "l40s-48gb", "b200-sxm6-180gb", "v100-sxm2-32gb")
SEEN = NodeFacts("debian 12", "6.1.0-18-amd64", "580.95.05", "", "1.18.1", "20.10.24", "", "validation x")


def site(tmp_path: Path, nodes: int) -> Inventory:
    variables = {
        f"gpu{number:04d}": {
            "ansible_host": f"192.0.2.{number % 250}",
            "hardware_profile": PROFILES[number % len(PROFILES)],
            **({"nvidia_driver_flavor": "proprietary"} if number % len(PROFILES) == 4 else {}),
        }
        for number in range(nodes)
    }
    listing = {"_meta": {"hostvars": variables}, "gpu_nodes": {"hosts": list(variables)}}
    return from_listing(ClusterDirectory(tmp_path), listing)


def timed(inventory: Inventory) -> tuple[float, StackReport]:
    """The least CPU time of several rounds: what the machine does besides only adds."""
    facts = {host.name: SEEN for host in inventory.hosts}
    taken = []
    for _ in range(ROUNDS):
        begun = time.process_time()
        report = judge_stacks(inventory, Lock(), facts)
        taken.append(time.process_time() - begun)
    return min(taken), report


def test_a_thousand_nodes_of_five_kinds_take_little_more_than_five_nodes(tmp_path: Path) -> None:
    few, _ = timed(site(tmp_path, len(PROFILES)))
    many, report = timed(site(tmp_path, NODES))
    assert [len(one.kind.hosts) for one in report.resolutions] == [NODES // len(PROFILES)] * len(PROFILES)
    assert many / few < MAX_RATIO, f"{few:.3f} s for {len(PROFILES)} nodes, {many:.3f} s for {NODES}"
