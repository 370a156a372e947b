"""Stacks of 1,000 nodes of six kinds against those of six nodes: kinds are resolved, not nodes.

One of the kinds is in conflict: its proof is the longest search.

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
# The time of a node of each kind is that of the search, and 1,000 nodes add the reading of their settings.
MAX_RATIO = 5.0
CONFLICT = "open-modules-gpu"
PROPRIETARY = {"nvidia_driver_flavor": "proprietary"}
KINDS: tuple[dict[str, str], ...] = (
    {"hardware_profile": "hgx-a100-80gb"},
    {"hardware_profile": "h100-sxm5-80gb"},
    {"hardware_profile": "l40s-48gb"},
    {"hardware_profile": "b200-sxm6-180gb"},
    {"hardware_profile": "v100-sxm2-32gb", **PROPRIETARY},
    {"hardware_profile": "v100-sxm2-32gb"},
)
SEEN = NodeFacts(
    os="debian 12", kernel="6.1.0-18-amd64", driver="580.95.05", toolkit="1.18.1", docker="20.10.24",
    seen_by="validation x",
)  # fmt: skip


def site(tmp_path: Path, nodes: int) -> Inventory:
    variables = {
        f"gpu{number:04d}": {
            "ansible_host": f"192.0.2.{number % 250}",
            **KINDS[number % len(KINDS)],
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


def test_a_thousand_nodes_of_six_kinds_take_little_more_than_six_nodes(tmp_path: Path) -> None:
    few, _ = timed(site(tmp_path, len(KINDS)))
    many, report = timed(site(tmp_path, NODES))
    sizes = [len(range(first, NODES, len(KINDS))) for first in range(len(KINDS))]
    assert [len(one.kind.hosts) for one in report.resolutions] == sizes
    # By what the nodes have installed it is no other conflict, and told once.
    assert [len(one.hosts) for one in report.conflicts] == [sizes[-1]]
    assert CONFLICT in {row.id for row in report.conflicts[0].rows}
    assert many / few < MAX_RATIO, f"{few:.3f} s for {len(KINDS)} nodes, {many:.3f} s for {NODES}"
