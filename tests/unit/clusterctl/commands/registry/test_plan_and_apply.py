"""`clusterctl registry plan` and `apply`: what changes, what is asked and printed, and an interruption."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from clusterctl.cluster import settings
from clusterctl.cluster.directory import ClusterDirectory
from clusterctl.registry.harbor.client import CONNECTIONS
from clusterlab.simulated.harbor.api.faults import Fault
from clusterlab.simulated.harbor.api.server import StandIn

from .declared_site import DECLARED, call, declare, records

# Of Harbor's own two and a half minutes; a busy machine takes its time, too.
WITHIN_S = 100.0


def test_plan_prints_the_diff_apply_does_it_and_then_there_is_nothing_to_do(site: Path) -> None:
    assert settings.check(ClusterDirectory(site)) == []
    planned = call(site, "plan")
    assert planned.return_value == 0
    assert "+ project gpu\n    public: yes\n    quota: 500G\n" in planned.stdout
    assert planned.stdout.endswith("4 objects: 4 to create\n")
    done = call(site, "apply", "--yes")
    assert (done.return_value, done.stdout.splitlines()[-1]) == (0, "4 done")
    again = call(site, "apply", "--yes")
    assert (again.return_value, again.stdout) == (0, "nothing to do\n")


def test_that_it_waits_is_said_once(site: Path, harbor: StandIn) -> None:
    harbor.faults.add(Fault(503, times=2))
    planned = call(site, "plan")
    assert planned.return_value == 0
    assert planned.stderr.splitlines() == ["Harbor does not answer, or asks to wait; trying again"]


def test_an_interruption_ends_the_wait_for_the_next_try(site: Path, harbor: StandIn) -> None:
    """Of many at once; else it would come after the minutes that Harbor asks for."""
    projects = [{"name": f"p{number}"} for number in range(20)]
    declare(site, {"registry_projects": projects, "registry_api_url": harbor.url})
    harbor.faults.add(Fault(503, times=10**6, method="POST", retry_after="30"))
    program = str(Path(sys.executable).with_name("clusterctl"))
    ours = subprocess.Popen(
        [program, "-C", str(site), "registry", "apply", "--yes"],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    try:
        with harbor.asked:
            assert harbor.asked.wait_for(lambda: harbor.calls["POST"] > 0, 120)
        ours.send_signal(signal.SIGINT)
        _, said = ours.communicate(timeout=WITHIN_S)
    finally:
        ours.kill()
        ours.wait()
    assert (ours.returncode, said.splitlines()[-1]) == (130, "interrupted")
    assert "failed" not in said
    assert harbor.calls["POST"] <= CONNECTIONS


def test_nobody_is_asked_so_nothing_is_changed(site: Path, harbor: StandIn) -> None:
    assert call(site, "apply").return_value == 1
    assert set(harbor.calls) == {"GET"}


def test_how_many_objects_are_deleted_is_said_before_it_is_asked(
    site: Path, harbor: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    call(site, "apply", "--yes")
    declare(
        site, {**DECLARED, "registry_projects": [], "registry_robots": [], "registry_api_url": harbor.url}
    )
    asked: list[str] = []

    def agreed(question: str, *, yes: bool) -> bool:
        asked.append(question)
        return yes

    monkeypatch.setattr("clusterctl.commands.registry.apply.agreed", agreed)
    assert call(site, "apply", "--prune").return_value == 1
    assert asked == [f"Change Harbor at {harbor.url}, and delete 2 objects there?"]


def test_json_has_each_change_its_outcome_and_a_summary(site: Path) -> None:
    planned = records(call(site, "plan", "--json"))
    assert [(one["type"], one.get("kind")) for one in planned] == [
        ("change", "project"),
        ("change", "immutable tags"),
        ("change", "robot"),
        ("change", "schedule"),
        ("summary", None),
    ]
    robot = next(one for one in planned if one.get("kind") == "robot")
    assert {"field": "permissions", "before": None, "after": ["gpu repository:pull"]} in robot["differences"]
    *outcomes, summary = records(call(site, "apply", "--yes", "--json"))
    assert {one["state"] for one in outcomes} == {"done"}
    assert summary["type"] == "summary"
    assert (summary["done"], summary["failed"], summary["exit"]) == (4, 0, 0)
