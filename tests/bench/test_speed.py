"""Where time goes, as ratios within one run. Figures are printed: `script/test --bench -- -s` shows them."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from clustercheck import ledger, sample
from clustercheck.checks.all import CHECKS
from clustercheck.checks.base import evaluate
from clustercheck.evidence import Evidence
from clustercheck.model import Scope
from clusterctl.content import content_root
from clusterctl.engine.playbook import PlaybookRequest, run_playbook

pytestmark = pytest.mark.bench
ROUNDS = 5


def median_s(work: Callable[[], object], rounds: int = ROUNDS) -> float:
    """Median wall time of ``work`` in seconds."""
    taken = []
    for _ in range(rounds):
        begun = time.perf_counter()
        work()
        taken.append(time.perf_counter() - begun)
    return statistics.median(taken)


def say(figure: str) -> None:
    """For the person who measures (-s)."""
    sys.stdout.write(f"\n{figure}\n")


def judge(evidence: Evidence) -> None:
    # Pairs are run where a group is slow, in a bounded number: the sample's all-with-all is not that.
    checks = [check for check in CHECKS if check.scope is not Scope.PAIR]
    results = [result for check in checks for result in evaluate(check, evidence)]
    assert ledger.count(ledger.complete(checks, evidence, results)).failed == 0


def test_judging_costs_no_more_a_node_in_a_large_cluster_than_in_a_small_one() -> None:
    small, large = 16, 256
    unread = {nodes: [sample.healthy(nodes) for _ in range(3)] for nodes in (small, large)}
    a_node = {n: median_s(lambda n=n: judge(unread[n].pop()), rounds=3) / n for n in (small, large)}
    ratio = a_node[large] / a_node[small]
    say(f"judging a node: {a_node[small] * 1e3:.2f} ms of {small}, {a_node[large] * 1e3:.2f} ms of {large}")
    assert ratio < 3


def test_events_cost_little_beside_plain_ansible(tmp_path: Path) -> None:
    hosts = [f"gpu{number:02d}" for number in range(20)]
    inventory = tmp_path / "hosts.yml"
    lines = "".join(f"    {host}: {{}}\n" for host in hosts)
    inventory.write_text(
        f"all:\n  vars: {{ansible_connection: local, ansible_python_interpreter: {sys.executable}}}\n"
        f"  hosts:\n{lines}"
    )
    book = tmp_path / "book.yml"
    tasks = "".join(f"    - ansible.builtin.debug:\n        msg: task {number}\n" for number in range(20))
    book.write_text(f"- hosts: all\n  gather_facts: false\n  tasks:\n{tasks}")
    (tmp_path / "run").mkdir()
    request = PlaybookRequest(book, inventory, tuple(hosts), tmp_path / "run")
    plain = [sys.executable, "-m", "ansible", "playbook", "-i", str(inventory), "--forks", "64", str(book)]
    environment = {**os.environ, "ANSIBLE_CONFIG": str(content_root() / "ansible.cfg")}

    def alone() -> None:
        subprocess.run(plain, cwd=content_root(), env=environment, check=True, capture_output=True)

    events: list[object] = []

    def ours_alone() -> None:
        run_playbook(request, lambda event, _: events.append(event))

    pairs = [
        (
            median_s(lambda: run_playbook(request, lambda event, _: events.append(event)), 1),
            median_s(alone, 1),
        )
        for _ in range(ROUNDS)
    ]
    ratio = statistics.median(ours / theirs for ours, theirs in pairs)
    say(f"events: {ratio:.3f} of plain ansible-playbook, {len(events) // ROUNDS} events a run")
    assert len(events) >= ROUNDS * len(hosts) * 20
    assert ratio < 1.5
