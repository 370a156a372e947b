"""What it takes to reconcile 200 projects and 500 robots: calls and seconds, the first time and the second.

`script/test --bench -- tests/bench/test_registry_reconcile.py -s` prints the table of
docs/performance.md. The stand-in Harbor is a process of its own; with 20 ms for each answer it is as slow as
one that asks a database.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.harbor_play import site_of

from clusterctl.registry.harbor import reconcile
from clusterctl.registry.harbor.client import CONNECTIONS
from clusterctl.registry.harbor.declared import DeclaredHarbor

from . import figures

pytestmark = pytest.mark.bench
PROJECTS, ROBOTS = 200, 500
HEAD = "| answer takes | | objects changed | calls | seconds | CPU here | least | seconds / least |"


def declared() -> dict[str, Any]:
    """Projects with quota, retention and an immutable rule; 300 robots of projects, 200 of the system."""
    names = [f"team-{number:03d}" for number in range(PROJECTS)]
    of_projects = [
        {"name": f"ci-{number // PROJECTS}", "project": name, "days": 90,
         "permissions": [{"namespace": name, "access": ["repository:pull", "repository:push"]}]}
        for number, name in ((n, names[n % PROJECTS]) for n in range(300))
    ]  # fmt: skip
    of_system = [
        {"name": f"nodes-{number:03d}", "permissions": [
            {"namespace": names[number], "access": ["repository:pull"]}]}
        for number in range(ROBOTS - len(of_projects))
    ]  # fmt: skip
    return {
        "registry_projects": [
            {"name": name, "quota": "100G", "scan_on_push": True,
             "retention": [{"keep": "latest_pushed", "count": 10}], "immutable_tags": [{"tags": "v*"}]}
            for name in names
        ],
        "registry_robots": [*of_projects, *of_system],
    }  # fmt: skip


@pytest.fixture
def harbor(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[str]:
    """Its address."""
    state = ["--state", str(tmp_path / "state.sqlite")]
    options = [*state, "--port", "0", "--latency-ms", str(request.param)]
    command = [sys.executable, "-m", "clusterlab.simulated.harbor.api", *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield process.stdout.readline().split()[-1]
    finally:
        process.terminate()
        process.wait()


@pytest.mark.parametrize("harbor", [0, 20], indirect=True, ids=lambda ms: f"{ms} ms")
def test_reconciling_costs_few_calls_and_runs_at_the_pace_of_the_connections(
    harbor: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    raw, answer_s = declared(), request.node.callspec.params["harbor"] / 1000
    lines, rounds = [], []
    for which in ("first", "second"):
        begun, used = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF)
        with site_of(harbor, tmp_path) as site:
            reconcile.configure(site)
            plan = reconcile.plan(site, DeclaredHarbor.model_validate(raw))
            done = reconcile.apply(site, plan, lambda _: None)
            calls = site.client.calls
        seconds = time.perf_counter() - begun
        after = resource.getrusage(resource.RUSAGE_SELF)
        cpu = after.ru_utime + after.ru_stime - used.ru_utime - used.ru_stime
        limit = calls * answer_s / CONNECTIONS
        assert done.exit_code == 0
        rounds.append((len(done.outcomes), calls, seconds))
        ratio = f"{seconds / limit:.1f}" if limit else figures.NOT_MEASURED
        told = f"{limit:.1f} s" if limit else figures.NOT_MEASURED
        cells = (f"{answer_s * 1000:.0f} ms", which, f"{len(done.outcomes)}", f"{calls}", f"{seconds:.1f}")
        lines.append(f"| {' | '.join((*cells, f'{cpu:.1f} s', told, ratio))} |")
    sys.stdout.write("\n".join(["", figures.machine(), HEAD, *lines, ""]))
    (first, second) = rounds
    assert first[0] == 2 * PROJECTS + ROBOTS
    assert second[0] == 0
    assert second[1] < first[1] / 2
    assert second[1] <= 4 * PROJECTS
