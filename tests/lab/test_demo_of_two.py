"""script/demo with its two nodes: run twice; and what two nodes cannot tell."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from .conftest import Demo, demo_of, run_in

pytestmark = [pytest.mark.lab, pytest.mark.slow, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    """The demo as it is without arguments."""
    yield from demo_of(tmp_path_factory.mktemp("two"))


def test_running_it_again_is_safe_and_changes_nothing(two: Demo) -> None:
    run_in(two.clone, "script/demo")
    program = str(two.clone / ".venv/bin/clusterctl")
    listed = run_in(two.clone, program, "-C", ".lab/cluster", "runs", "list", "--json").stdout
    applied = [run for run in map(json.loads, listed.splitlines()) if run["kind"] == "apply"]
    assert [record["exit_code"] for record in applied] == [0, 0]
    assert applied[-1]["summary"]["changed"] == 0


def test_with_two_nodes_a_slow_link_cannot_be_told_and_both_are_suspected(two: Demo) -> None:
    program = str(two.clone / ".venv/bin/clusterctl")
    run_in(two.clone, program, "lab", "fault", "inject", "gpu02", "slow-link")
    try:
        done = run_in(two.clone, program, "-C", ".lab/cluster", "validate", "--json", code=1)
    finally:
        run_in(two.clone, program, "lab", "fault", "clear")
    document = json.loads(done.stdout.splitlines()[-1])
    assert {culprit["node"] for culprit in document["culprits"]} == {"gpu01", "gpu02"}
    assert all("cannot" in culprit["because"] for culprit in document["culprits"])
