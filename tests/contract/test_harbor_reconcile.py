"""The reconciler against a stand-in Harbor that has the real one's traps."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.support.harbor_play import (
    NOTHING,
    applied,
    ask,
    changes,
    everything,
    require_scanner,
    site_of,
    states,
)

from clusterctl.errors import ClusterctlError
from clusterctl.registry.harbor import answers, reconcile
from clusterctl.registry.harbor.client import Refused
from clusterlab.simulated.harbor.api import system
from clusterlab.simulated.harbor.api.server import StandIn


def test_everything_is_made_at_once_and_then_there_is_nothing_to_do(
    harbor: StandIn, upstream: str, tmp_path: Path
) -> None:
    first = applied(harbor.url, tmp_path, everything(upstream))
    assert set(states(first).values()) == {"done"}
    assert first.exit_code == 0
    assert len(first.outcomes) == 14
    second = applied(harbor.url, tmp_path, everything(upstream))
    assert changes(second) == []
    assert second.plan.remarks == []


def test_a_second_apply_writes_nothing(harbor: StandIn, upstream: str, tmp_path: Path) -> None:
    applied(harbor.url, tmp_path, everything(upstream))
    writes = sum(harbor.calls[method] for method in ("POST", "PUT", "PATCH", "DELETE"))
    applied(harbor.url, tmp_path, everything(upstream))
    assert sum(harbor.calls[method] for method in ("POST", "PUT", "PATCH", "DELETE")) == writes


def test_a_plan_changes_nothing(harbor: StandIn, upstream: str, tmp_path: Path) -> None:
    for _ in range(2):
        planned = applied(harbor.url, tmp_path, everything(upstream), check=True)
        assert len(planned.plan.changes) == 14
    assert not (tmp_path / "robots.json").exists()
    assert set(harbor.calls) == {"GET"}


CHANGED: list[tuple[str, str, int, dict[str, Any], str]] = [
    ("registry_projects", "gpu", 0, {"public": False}, "public"),
    ("registry_projects", "gpu", 0, {"quota": "1T"}, "quota"),
    ("registry_projects", "gpu", 0, {"quota": "unlimited"}, "quota"),
    ("registry_projects", "gpu", 0, {"signature": "notation"}, "signature"),
    ("registry_projects", "gpu", 0, {"refuse_vulnerable": "never"}, "refuse_vulnerable"),
    ("registry_projects", "gpu", 0, {"refuse_vulnerable": "low"}, "refuse_vulnerable"),
    ("registry_projects", "gpu", 0, {"sbom_on_push": True}, "sbom_on_push"),
    ("registry_projects", "gpu", 0, {"retention": []}, "retention"),
    ("registry_projects", "gpu", 0, {"retention_schedule": "0 0 1 * * *"}, "retention_schedule"),
    ("registry_projects", "hub", 1, {"max_upstream_connections": 8}, "max_upstream_connections"),
    ("registry_projects", "hub", 1, {"retention": [{"keep": "always"}]}, "retention"),
    ("registry_endpoints", "up", 0, {"description": "the mirror"}, "description"),
    ("registry_replications", "fetch", 0, {"deletions": False}, "deletions"),
    ("registry_replications", "fetch", 0, {"trigger": "manual", "cron": ""}, "trigger"),
    ("registry_replications", "fetch", 0, {"filters": []}, "filters"),
    ("registry_replications", "fetch", 0, {"replace_count": -1}, "replace_count"),
    ("registry_robots", "pull", 0, {"days": 90}, "days"),
    ("registry_robots", "pull", 0, {"disabled": True}, "disabled"),
    ("registry_robots", "ops", 1, {"permissions": [{"namespace": "hub", "access": ["repository:pull"]}]},
     "permissions"),
    ("registry_robots", "gpu+push", 2, {"disabled": False}, "disabled"),
]  # fmt: skip


@pytest.mark.drawn("one difference of the registry")
@pytest.mark.parametrize("case", CHANGED, ids=[f"{c[1]}-{c[4]}-{n}" for n, c in enumerate(CHANGED)])
def test_what_differs_is_said_and_changed_and_nothing_else(
    harbor: StandIn, upstream: str, tmp_path: Path, case: tuple[str, str, int, dict[str, Any], str]
) -> None:
    setting, name, place, change, field = case
    raw = everything(upstream)
    applied(harbor.url, tmp_path, raw)
    raw = copy.deepcopy(raw)
    raw[setting][place] |= change
    done = applied(harbor.url, tmp_path, raw)
    assert [(action, subject) for action, _, subject in changes(done)] == [("update", name)]
    assert field in {one.field for one in done.plan.changes[0].differences}
    assert set(states(done).values()) == {"done"}
    assert changes(applied(harbor.url, tmp_path, raw)) == []


def test_harbors_own_rule_of_seven_days_is_replaced_also_by_none(
    harbor: StandIn, upstream: str, tmp_path: Path
) -> None:
    raw = everything(upstream)
    raw["registry_projects"].append({"name": "bare", "proxy_of": "up"})
    applied(harbor.url, tmp_path, raw)
    kept = {}
    for name in ("hub", "bare"):
        number = ask(harbor, "GET", f"/projects/{name}")["metadata"]["retention_id"]
        kept[name] = [rule["params"] for rule in ask(harbor, "GET", f"/retentions/{number}")["rules"]]
    assert kept == {"hub": [{"nDaysSinceLastPull": 60}], "bare": []}


def test_a_project_whose_name_is_a_number_is_never_taken_for_one(
    harbor: StandIn, upstream: str, tmp_path: Path
) -> None:
    raw: dict[str, Any] = {"registry_projects": [{"name": "2"}, {"name": "other", "public": True}]}
    applied(harbor.url, tmp_path, raw)
    raw["registry_projects"][0]["scan_on_push"] = True
    applied(harbor.url, tmp_path, raw)
    found = {one["name"]: one["metadata"].get("auto_scan") for one in ask(harbor, "GET", "/projects")}
    assert found == {"library": None, "2": "true", "other": "false"}


def test_what_nobody_declared_is_said_and_stays_until_it_is_pruned(
    harbor: StandIn, upstream: str, tmp_path: Path
) -> None:
    applied(harbor.url, tmp_path, everything(upstream))
    less: dict[str, Any] = {
        **NOTHING,
        "registry_projects": [{**everything(upstream)["registry_projects"][0], "immutable_tags": []}],
    }
    told = applied(harbor.url, tmp_path, less)
    assert changes(told) == []
    unknown = {(one.kind, one.name) for one in told.plan.remarks}
    assert len(unknown) == 11
    assert all("not declared" in one.why for one in told.plan.remarks)
    assert told.exit_code == 0
    pruned = applied(harbor.url, tmp_path, less, prune=True)
    assert {one.change.subject for one in pruned.outcomes} == unknown
    assert set(states(pruned).values()) == {"done"}
    assert [one["name"] for one in ask(harbor, "GET", "/projects")] == ["gpu", "library"]
    assert applied(harbor.url, tmp_path, less, prune=True).plan.changes == []
    assert json.loads((tmp_path / "robots.json").read_text())["robots"] == {}


def test_what_is_not_written_is_not_pruned(harbor: StandIn, upstream: str, tmp_path: Path) -> None:
    """A kind that nobody wrote is none of ours: an empty file must not empty a Harbor."""
    applied(harbor.url, tmp_path, everything(upstream))
    for raw in ({}, {"registry_preheat": {}}, {"registry_schedules": {}}):
        assert changes(applied(harbor.url, tmp_path, raw, prune=True)) == []
    project = {"name": "gpu", "public": True}
    done = applied(harbor.url, tmp_path, {"registry_projects": [project]}, prune=True, check=True)
    deleted = {(kind, name) for action, kind, name in changes(done) if action == "delete"}
    assert deleted == {("project", "2026"), ("project", "hub")}
    assert "not even as []" in {one.kind: one.why for one in done.plan.remarks}["immutable tags"]


def test_nothing_of_a_project_that_is_not_declared_is_pruned(
    harbor: StandIn, upstream: str, tmp_path: Path
) -> None:
    raw = everything(upstream)
    of_gpu = {"name": "deploy", "project": "gpu",
              "permissions": [{"namespace": "gpu", "access": ["repository:pull"]}]}  # fmt: skip
    heat = {**raw["registry_preheat"]["policies"][0], "name": "other"}
    raw["registry_robots"].append(of_gpu)
    raw["registry_preheat"]["policies"].append(heat)
    applied(harbor.url, tmp_path, raw)
    del raw["registry_projects"], raw["registry_replications"], raw["registry_endpoints"]
    raw["registry_robots"].pop()
    raw["registry_preheat"]["policies"].pop()
    done = applied(harbor.url, tmp_path, raw, prune=True)
    assert changes(done) == []
    whys = {one.name: one.why for one in done.plan.remarks}
    assert "project gpu is not declared" in whys["gpu+deploy"]
    assert "project gpu is not declared" in whys["gpu/other"]
    needed = applied(harbor.url, tmp_path, {**raw, "registry_projects": []}, prune=True, check=True)
    assert {one for _, kind, one in changes(needed) if kind == "project"} == {"2026", "hub"}


def test_a_robot_of_a_project_that_will_never_be_is_a_problem(harbor: StandIn, tmp_path: Path) -> None:
    pull = ["repository:pull"]
    raw: dict[str, Any] = {
        "registry_robots": [
            {"name": "a", "project": "typo", "permissions": [{"namespace": "typo", "access": pull}]},
            {"name": "b", "permissions": [{"namespace": "library", "access": pull}]},
            {"name": "c", "permissions": [{"namespace": "typo", "access": pull}]},
        ],
        "registry_preheat": {
            "instances": [{"name": "d", "vendor": "dragonfly", "endpoint": "http://d"}],
            "policies": [{"name": "p", "project": "typo", "instance": "d"}],
        },
    }
    done = applied(harbor.url, tmp_path, raw)
    assert done.exit_code == 1
    why = "needs project typo, which is neither declared nor in Harbor"
    assert {one.name: one.why for one in done.plan.remarks if one.blocks} == {
        "typo+a": why,
        "c": why,
        "typo/p": why,
    }
    assert set(states(done).values()) == {"done"}


def test_nothing_is_built_on_what_cannot_be_as_declared(
    harbor: StandIn, upstream: str, tmp_path: Path
) -> None:
    end = {"name": "up", "type": "docker-registry", "url": upstream}
    applied(harbor.url, tmp_path, {"registry_endpoints": [end]})
    raw: dict[str, Any] = {
        "registry_endpoints": [{**end, "type": "github-ghcr"}],
        "registry_projects": [{"name": "hub", "proxy_of": "up", "immutable_tags": [{}]}],
        "registry_replications": [{"name": "fetch", "source": "up"}],
        "registry_robots": [
            {"name": "r", "permissions": [{"namespace": "hub", "access": ["repository:pull"]}]}
        ],
    }
    done = applied(harbor.url, tmp_path, raw)
    assert (done.outcomes, done.exit_code) == ([], 1)
    needs = {one.name: one.why for one in done.plan.remarks}
    assert needs.pop("up").startswith("is of type docker-registry")
    assert set(needs) == {"hub", "fetch", "r", "hub: ** in **"}
    assert needs["hub"] == "needs endpoint up, which cannot be as declared"
    assert [one["name"] for one in harbor.store.all("project")] == ["library"]


def test_a_project_with_images_is_not_pruned_and_harbor_says_why(harbor: StandIn, tmp_path: Path) -> None:
    applied(harbor.url, tmp_path, {"registry_projects": [{"name": "gpu"}]})
    number = ask(harbor, "GET", "/projects/gpu")["project_id"]
    harbor.store.add("repository", {"name": "gpu/paddle/base", "project_id": number})
    done = applied(harbor.url, tmp_path, NOTHING, prune=True)
    assert done.exit_code == 1
    assert done.outcomes[0].why == "the project contains repositories, can not be deleted (HTTP 412)"


def test_an_upstream_that_harbor_cannot_reach_is_deferred_with_all_that_needs_it(
    harbor: StandIn, upstream: str, tmp_path: Path
) -> None:
    raw = everything("http://127.0.0.1:9")
    done = applied(harbor.url, tmp_path, raw)
    deferred = {subject for subject, state in states(done).items() if state == "deferred"}
    assert deferred == {("endpoint", "up"), ("project", "hub"), ("replication", "fetch")}
    assert done.exit_code == 3
    whys = {one.change.name: one.why for one in done.outcomes}
    assert "unhealthy" in whys["up"]
    assert whys["hub"] == whys["fetch"] == "waits for up"
    raw = everything(upstream)
    done = applied(harbor.url, tmp_path, raw)
    assert {one.change.subject for one in done.outcomes} == deferred
    assert done.exit_code == 0
    assert changes(applied(harbor.url, tmp_path, raw)) == []


def test_robots_are_known_by_whatever_prefix_harbor_gives_them(
    harbor: StandIn, upstream: str, tmp_path: Path
) -> None:
    raw = everything(upstream)
    applied(harbor.url, tmp_path, raw)
    ask(harbor, "PUT", "/configurations", {"robot_name_prefix": "bot_"})
    renamed = applied(harbor.url, tmp_path, raw)
    assert {part.field for one in renamed.plan.changes for part in one.differences} == {"user"}
    assert changes(applied(harbor.url, tmp_path, raw)) == []
    kept = json.loads((tmp_path / "robots.json").read_text())["robots"]
    assert [kept[key]["user"] for key in ("ops", "gpu+push")] == ["bot_ops", "bot_gpu+push"]


def test_what_can_never_be_as_declared_is_said_and_is_bad(
    harbor: StandIn, upstream: str, tmp_path: Path
) -> None:
    applied(harbor.url, tmp_path, everything(upstream))
    raw = everything(upstream)
    raw["registry_endpoints"][0]["type"] = "github-ghcr"
    raw["registry_projects"][0] |= {"proxy_of": "up"}
    raw["registry_preheat"]["instances"][0]["vendor"] = "kraken"
    done = applied(harbor.url, tmp_path, raw)
    assert {(one.kind, one.name) for one in done.plan.remarks if one.blocks} == {
        ("endpoint", "up"),
        ("project", "gpu"),
        ("preheat instance", "dragon"),
    }
    assert done.exit_code == 1
    assert changes(done) == []


def test_where_quotas_are_off_that_is_said_and_the_rest_is_done(harbor: StandIn, tmp_path: Path) -> None:
    ask(harbor, "PUT", "/configurations", {"quota_per_project_enable": False})
    raw = {"registry_projects": [{"name": "gpu", "quota": "1G", "public": True}]}
    for _ in range(2):
        done = applied(harbor.url, tmp_path, raw)
        assert ["quotas are switched off" in one.why for one in done.plan.remarks] == [True]
    assert done.plan.changes == []
    assert ask(harbor, "GET", "/projects/gpu")["metadata"]["public"] == "true"


def test_without_a_scanner_its_schedule_is_said_and_the_rest_is_done(harbor: StandIn, tmp_path: Path) -> None:
    system.configure(harbor.store, scanner=False)
    raw = {"registry_schedules": {"scan_all": {"cron": "0 0 4 * * 0"}, "gc": {"cron": "0 0 3 * * 0"}}}
    done = applied(harbor.url, tmp_path, raw)
    assert [one.why for one in done.plan.remarks] == ["no scanner is configured, it's not possible to scan"]
    assert states(done) == {("schedule", "gc"): "done"}


def test_an_empty_cron_switches_a_schedule_off(harbor: StandIn, tmp_path: Path) -> None:
    require_scanner()
    for cron, action in (("0 0 3 * * 0", "create"), ("0 0 5 * * 0", "update"), ("", "update")):
        raw = {"registry_schedules": {"gc": {"cron": cron}, "scan_all": {"cron": cron}}}
        assert [one[0] for one in changes(applied(harbor.url, tmp_path, raw))] == [action] * 2
        assert changes(applied(harbor.url, tmp_path, raw)) == []
    assert ask(harbor, "GET", "/system/gc/schedule") is None


def test_a_rule_that_someone_disabled_is_enabled_again(harbor: StandIn, tmp_path: Path) -> None:
    raw = {"registry_projects": [{"name": "gpu", "immutable_tags": [{"tags": "v*"}]}]}
    applied(harbor.url, tmp_path, raw)
    path = "/projects/gpu/immutabletagrules"
    (rule,) = ask(harbor, "GET", path)
    ask(harbor, "PUT", f"{path}/{rule['id']}", {**rule, "disabled": True})
    assert changes(applied(harbor.url, tmp_path, raw)) == [("update", "immutable tags", "gpu: v* in **")]
    assert changes(applied(harbor.url, tmp_path, raw)) == []


def test_someone_who_is_faster_is_read_again_and_corrected(
    harbor: StandIn, upstream: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the look and the change another has made the same objects, otherwise than declared."""
    raw = everything(upstream)
    other = copy.deepcopy(raw)
    other["registry_projects"][0] |= {"public": False, "quota": "1G", "retention": []}
    other["registry_robots"][0]["days"] = 5
    other["registry_replications"][0]["override"] = False
    (tmp_path / "other").mkdir()
    usual = reconcile.apply

    def late(site: Any, plan: Any, tell: Any) -> Any:
        monkeypatch.setattr(reconcile, "apply", usual)
        applied(harbor.url, tmp_path / "other", other)
        return usual(site, plan, tell)

    monkeypatch.setattr(reconcile, "apply", late)
    done = applied(harbor.url, tmp_path, raw)
    assert {
        subject: o.why for o in done.outcomes if (subject := o.change.subject) and o.state != "done"
    } == {}
    assert changes(applied(harbor.url, tmp_path, raw)) == []


def test_a_read_only_harbor_is_refused_before_anything_is_tried(harbor: StandIn, tmp_path: Path) -> None:
    ask(harbor, "PUT", "/configurations", {"read_only": True})
    with pytest.raises(ClusterctlError) as caught:
        applied(harbor.url, tmp_path, {"registry_projects": [{"name": "gpu"}]})
    assert caught.value.code == "registry.read-only"
    assert caught.value.exit_code == 1


def test_a_list_that_shifts_while_it_is_read_is_read_again(harbor: StandIn, tmp_path: Path) -> None:
    applied(harbor.url, tmp_path, {"registry_projects": [{"name": f"p{n}"} for n in range(150)]})
    with site_of(harbor.url, tmp_path) as site:
        hooks = site.client._http.event_hooks["response"]

        def shift(_: httpx.Response) -> None:
            """Someone deletes one of the first page: the next page starts one too late."""
            hooks.clear()
            harbor.store.remove("project", 2)

        hooks.append(shift)
        site.client._http.event_hooks = {"response": hooks}
        found = site.client.every("projects", "/projects", answers.ProjectAnswer, key="project_id")
        assert [one["name"] for one in found] == sorted(one["name"] for one in harbor.store.all("project"))


def test_a_list_of_many_pages_is_read_whole_and_each_object_once(harbor: StandIn, tmp_path: Path) -> None:
    raw = {"registry_projects": [{"name": f"p{n}"} for n in range(230)]}
    applied(harbor.url, tmp_path, raw)
    with site_of(harbor.url, tmp_path) as site:
        assert len(site.client.every("projects", "/projects", answers.ProjectAnswer, key="project_id")) == 231
        with pytest.raises(Refused, match="less than or equal to 100"):
            site.client.get("projects", "/projects", page_size=101)
