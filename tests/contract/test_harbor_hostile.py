"""A Harbor whose answers are not as its API describes them: one error that names the call, soon."""

from __future__ import annotations

import base64
import itertools
import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.harbor_play import PASSWORD, applied, everything, rotated, site_of
from tests.support.hostile_server import Hostile, endless, hostile, whole

from clusterctl.errors import ClusterctlError
from clusterctl.registry.harbor import answers, client, kept, reconcile
from clusterctl.registry.harbor.client import BrokenAnswer, Refused, TooMuch
from clusterctl.registry.harbor.declared import DeclaredHarbor
from clusterctl.registry.oci import deadline
from clusterlab.simulated.harbor.api.asked import Answer, Asked
from clusterlab.simulated.harbor.api.server import StandIn

# How often each answer is replaced, at random with this seed.
MUTANTS = 40


def mutated(body: Any, draw: random.Random) -> Any:
    """A document with one value somewhere in it replaced, or one key lost."""
    others = (None, [], {}, [1], {"a": 1}, "", "\x1b[31m", -1, 2**70, 1.5, True, "x" * 100_000, "not a date")
    places: list[tuple[Any, Any]] = []

    def walk(value: Any) -> None:
        pairs = (
            value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        )
        for key, inner in pairs:
            places.append((value, key))
            walk(inner)

    copy = json.loads(json.dumps(body))
    walk(copy)
    if not places or draw.random() < 0.1:
        return draw.choice(others)
    holder, key = draw.choice(places)
    if draw.random() < 0.3:
        del holder[key]
    else:
        holder[key] = draw.choice(others)
    return copy


def test_mutated_answers_end_in_an_error_that_names_the_call(
    harbor: StandIn, upstream: str, tmp_path: Path, twisted: Callable[..., None]
) -> None:
    raw = everything(upstream)
    applied(harbor.url, tmp_path, raw)
    draw, broken = random.Random(7), 0  # noqa: S311 - no secret
    calls = len(asked_of(harbor, tmp_path, raw))
    for number in range(MUTANTS):
        at, seen = number % calls, itertools.count()

        def twist(asked: Asked, given: Answer, at: int = at, seen: Iterator[int] = seen) -> Answer:
            if asked.method != "GET" or next(seen) != at:
                return given
            return Answer(given.status, mutated(given.body, draw), given.headers)

        twisted(twist)
        try:
            plan_of(harbor, tmp_path, raw)
        except ClusterctlError as error:
            cause = error.__cause__
            assert isinstance(cause, Refused)
            assert (error.code, cause.what in error.what) == ("registry.api-refused", True)
            assert error.what.isprintable()
            broken += isinstance(cause, BrokenAnswer)
    # Some do no harm: they lie in fields that nobody reads.
    assert broken > MUTANTS / 10


def plan_of(harbor: StandIn, directory: Path, raw: dict[str, Any]) -> reconcile.ReconcilePlan:
    with site_of(harbor.url, directory, prune=True) as site:
        try:
            reconcile.configure(site)
        except Refused as refused:
            raise reconcile.failed(site, refused) from refused
        return reconcile.plan(site, DeclaredHarbor.model_validate(raw))


def asked_of(harbor: StandIn, directory: Path, raw: dict[str, Any]) -> range:
    before = harbor.calls["GET"]
    plan_of(harbor, directory, raw)
    return range(harbor.calls["GET"] - before)


@pytest.mark.parametrize(
    "body",
    ["[" * 10_000, '{"id":' * 10_000, "[1]", "[null]", '[{"id": "7"}]', '[{"id": -7}]', "{}", "7",
     '[{"project_id": true, "name": "x"}]', '[{"project_id": 7}]', f"[{'{},' * 100_000}{{}}]", "\ud800"],
)  # fmt: skip
def test_a_list_that_is_none_is_said_with_its_call(
    harbor: StandIn, tmp_path: Path, twisted: Callable[..., None], body: str
) -> None:
    raw = body.encode(errors="surrogatepass").decode("latin-1")
    twisted(lambda asked, given: Answer(200, raw, given.headers) if "/projects" in asked.target else given)
    with site_of(harbor.url, tmp_path) as site, pytest.raises(BrokenAnswer) as refused:
        site.client.every("projects", "/projects", answers.ProjectAnswer, key="project_id")
    assert refused.value.what == "projects"
    failed = reconcile.failed(site, refused.value)
    assert (failed.code, failed.exit_code) == ("registry.api-refused", 1)
    assert "projects" in failed.what


@pytest.mark.parametrize("number", ["NaN", "-Infinity", "1e999"])
@pytest.mark.parametrize(
    "place",
    [("immutabletagrules", "weight"), ("robots", "description"), ("preheat/instances", "setup_timestamp")],
)
def test_a_number_that_could_not_be_returned_to_harbor_is_no_answer(
    number: str, place: tuple[str, str], harbor: StandIn, tmp_path: Path, twisted: Callable[..., None]
) -> None:
    path, field = place
    raw = everything(harbor.url)
    applied(harbor.url, tmp_path, raw)

    def twist(asked: Asked, given: Answer) -> Answer:
        if asked.method != "GET" or path not in asked.target or not given.body:
            return given
        changed = [{**one, field: "here", "disabled": True, "enabled": False} for one in given.body]
        return Answer(given.status, json.dumps(changed).replace('"here"', number), given.headers)

    twisted(twist)
    if path == "immutabletagrules":  # of one project, which is said alone
        found = applied(harbor.url, tmp_path, raw).plan
        assert any("a number in it is not finite" in one.why for one in found.remarks if one.blocks)
        return
    for command in (applied, rotated):
        with pytest.raises(ClusterctlError, match="a number in it is not finite") as refused:
            command(harbor.url, tmp_path, raw)
        assert refused.value.code == "registry.api-refused"


@pytest.mark.parametrize("total", ["ten", "-1", "1e9", "9" * 5000, ""])
def test_a_count_that_is_none_is_said(
    harbor: StandIn, tmp_path: Path, twisted: Callable[..., None], total: str
) -> None:
    twisted(lambda _, given: Answer(given.status, given.body, {**given.headers, "X-Total-Count": total}))
    with site_of(harbor.url, tmp_path) as site, pytest.raises(BrokenAnswer, match="how many there are"):
        site.client.every("projects", "/projects", answers.ProjectAnswer, key="project_id")


def calls(server: Hostile) -> list[str]:
    """What was asked of it after the try to log in."""
    return [one for one in server.asked if " /api/" in one]


def test_a_list_without_end_is_left_after_so_many_pages(tmp_path: Path) -> None:
    numbers = itertools.count(1)

    def answer(_: str) -> Iterator[bytes]:
        page = [{"id": next(numbers)} for _ in range(100)]
        return whole(json.dumps(page).encode(), "X-Total-Count: 999999999")

    with hostile(answer) as server, site_of(f"http://{server.host}", tmp_path) as site:
        with pytest.raises(BrokenAnswer, match="has no end: 20000 were read"):
            site.client.every("robots", "/robots", answers.HarborObject)
        assert len(calls(server)) == client.MAX_PAGES


def test_a_list_of_values_that_nobody_reads_is_left_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept, "KEPT_VALUES", 3000)
    numbers = itertools.count(1)

    def answer(_: str) -> Iterator[bytes]:
        page = [{"id": next(numbers), "unread": [{}] * 500}]
        return whole(json.dumps(page).encode(), "X-Total-Count: 999999999")

    with hostile(answer) as server, site_of(f"http://{server.host}", tmp_path) as site:
        with pytest.raises(BrokenAnswer, match="3000 values in all"):
            site.client.every("robots", "/robots", answers.HarborObject)
        assert len(calls(server)) == 3


@pytest.mark.parametrize("path", ["immutabletagrules", "/retentions/"])
def test_what_a_plan_keeps_is_bounded_together(
    path: str, harbor: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, twisted: Callable[..., None]
) -> None:
    raw = {
        "registry_projects": [
            {"name": f"p{n}", "immutable_tags": [{"tags": "v*"}], "retention": [{"keep": "always"}]}
            for n in range(5)
        ]
    }
    applied(harbor.url, tmp_path, raw)
    plan_of(harbor, tmp_path, raw)

    def twist(asked: Asked, given: Answer) -> Answer:
        if asked.method != "GET" or path not in asked.target:
            return given
        objects = given.body if isinstance(given.body, list) else [given.body]
        large = [{**one, "unread": [{}] * 500} for one in objects]
        return Answer(given.status, large if objects is given.body else large[0], given.headers)

    twisted(twist)
    monkeypatch.setattr(kept, "KEPT_VALUES", 4000)
    monkeypatch.setattr(kept, "SHARES", 1)
    found = plan_of(harbor, tmp_path, raw)
    assert found.exit_code == 1
    unread = [one.why for one in found.remarks if "cannot be read, and nothing in it" in one.why]
    assert 0 < len(unread) < 5
    assert any("4000 values" in why for why in unread)
    with site_of(harbor.url, tmp_path) as site:
        # Lists that are not kept are bounded each.
        for _ in range(5):
            assert site.client.every("rules", "/projects/p1/immutabletagrules", answers.ImmutableRuleAnswer)


def test_what_is_too_much_for_its_share_takes_nothing_from_the_others() -> None:
    whole_plan = kept.Kept()
    large = b"x" * (kept.KEPT_BYTES // kept.SHARES)
    for _ in range(50):
        share = kept.Kept(whole_plan)
        assert (share.add(large), "more than" in share.add(large)) == ("", True)
        share.give_back()
    assert [kept.Kept(whole_plan).add(large) for _ in range(kept.SHARES)] == [""] * kept.SHARES
    share = kept.Kept(whole_plan)
    assert share.add(large).endswith(" in all")
    share.give_back()
    assert kept.Kept(whole_plan).add(large).endswith(" in all")


def endless_list(of: str) -> Callable[[Asked, Answer], Answer]:
    """A list that has another hundred each time."""
    numbers = itertools.count(10**6)

    def twist(asked: Asked, given: Answer) -> Answer:
        if asked.method != "GET" or of not in asked.target or "page=" not in asked.target:
            return given
        shape = (
            {"project_id": 0, "creation_time": "2026-01-01T00:00:00Z"}
            if "Project" not in of
            else {"level": "project", "creation_time": "2026-01-01T00:00:00Z"}
        )
        page = [
            {**shape, "id": n, "project_id": n, "name": f"robot$eve+{n}"}
            for n in itertools.islice(numbers, 100)
        ]
        return Answer(given.status, page, {**given.headers, "X-Total-Count": "999999999"})

    return twist


def two_projects(**of_second: Any) -> dict[str, Any]:
    return {
        "registry_projects": [{"name": "eves"}, {"name": "honest", **of_second}],
        "registry_robots": [
            {"name": name, "project": of, "permissions": [{"namespace": of, "access": ["repository:pull"]}]}
            for name, of in (("a", "eves"), ("b", "honest"))
        ],
    }


def test_what_one_project_has_too_much_of_is_said_of_it_alone(
    harbor: StandIn, tmp_path: Path, twisted: Callable[..., None]
) -> None:
    applied(harbor.url, tmp_path, two_projects())
    with site_of(harbor.url, tmp_path) as site:
        number = next(
            p["project_id"]
            for p in site.client.every("p", "/projects", answers.ProjectAnswer, "name")
            if p["name"] == "eves"
        )
    twisted(endless_list(f"ProjectID%3D{number}&"))
    found = plan_of(harbor, tmp_path, two_projects(public=True))
    assert [(c.kind, c.name) for c in found.changes] == [("project", "honest")]
    told = {(one.kind, one.name): one.why for one in found.remarks if one.blocks}
    assert set(told) == {("project", "eves"), ("robot", "eves+a")}
    assert "the list has no end: 20000 were read" in told["project", "eves"]


def test_nothing_is_deleted_in_a_project_that_cannot_be_read(
    harbor: StandIn, tmp_path: Path, twisted: Callable[..., None]
) -> None:
    raw = two_projects()
    raw["registry_projects"][0]["immutable_tags"] = [{"tags": "v*"}]
    applied(harbor.url, tmp_path, raw)
    twisted(endless_list("Level%3Dproject"))
    found = plan_of(harbor, tmp_path, two_projects())
    assert found.changes == []
    assert {(one.kind, one.name) for one in found.remarks if one.blocks} >= {("project", "eves")}


def test_where_there_are_too_many_projects_the_declared_ones_are_looked_at(
    harbor: StandIn, tmp_path: Path, twisted: Callable[..., None]
) -> None:
    applied(harbor.url, tmp_path, two_projects())
    twisted(endless_list("/projects?"))
    found = plan_of(harbor, tmp_path, two_projects(public=True))
    assert [(c.kind, c.name) for c in found.changes] == [("project", "honest")]
    (told,) = [one for one in found.remarks if one.kind == "projects"]
    assert "cannot be listed, and nothing is said of them: the list has no end" in told.why


def test_empty_pages_are_not_asked_for_until_the_count_is_reached(tmp_path: Path) -> None:
    with (
        hostile(lambda _: whole(b"[]", "X-Total-Count: 999999999")) as server,
        site_of(f"http://{server.host}", tmp_path) as site,
    ):
        with pytest.raises(TooMuch, match="changed while it was read"):
            site.client.every("robots", "/robots", answers.RobotAnswer)
        assert len(calls(server)) == client.READS_OF_A_LIST


def test_an_answer_without_end_is_read_to_its_bound(tmp_path: Path) -> None:
    for status, most in (("200 OK", client.ANSWER_BYTES), ("500 Broken", 0)):
        with (
            hostile(lambda _, status=status: endless(b"<" * 65536, status=status)) as server,
            site_of(f"http://{server.host}", tmp_path) as site,
        ):
            with pytest.raises(Refused) as refused:
                site.client.get("health", "/health")
            assert len(refused.value.message) <= 300
            assert server.sent < most + (16 << 20)


def test_an_answer_that_trickles_ends_at_the_deadline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deadline, "ANSWER_S", 0.1)
    with (
        hostile(lambda _: endless(b" "), pause_s=0.02) as server,
        site_of(f"http://{server.host}", tmp_path) as site,
    ):
        with pytest.raises(ClusterctlError) as refused:
            site.client.get("health", "/health")
        assert refused.value.code == "registry.api-unreachable"
        assert len(server.asked) == client.TRIES


def test_a_compressed_answer_is_asked_for_by_nobody_and_not_unpacked(tmp_path: Path) -> None:
    with (
        hostile(lambda _: whole(b"\x1f\x8b" + b"x" * 100, "Content-Encoding: gzip, gzip")) as server,
        site_of(f"http://{server.host}", tmp_path) as site,
    ):
        with pytest.raises(BrokenAnswer, match="not JSON"):
            site.client.get("health", "/health")
        assert all("accept-encoding: identity" in one.lower() for one in server.asked)


@pytest.mark.parametrize("retention", ["../../users/1", "7/../8", "1" * 30, "-1"])
def test_a_number_of_a_policy_cannot_lead_to_another_path(
    harbor: StandIn, tmp_path: Path, twisted: Callable[..., None], retention: str
) -> None:
    raw = {"registry_projects": [{"name": "gpu", "retention": [{"keep": "always"}]}]}
    applied(harbor.url, tmp_path, raw)
    project = harbor.store.named("project", "gpu")[0]
    project["metadata"]["retention_id"] = retention
    harbor.store.put("project", project["project_id"], project)
    asked: list[str] = []
    twisted(lambda one, given: asked.append(one.target) or given)
    (remark,) = plan_of(harbor, tmp_path, raw).remarks
    assert (remark.blocks, "retention_id is no number" in remark.why) == (True, True)
    assert not [target for target in asked if "/retentions" in target or retention in target]


@pytest.mark.parametrize(
    "more", [{"max_upstream_conn": "2147483647"}, {"max_upstream_conn": "any"}, {"retention_id": "../x"}]
)
def test_who_administers_one_project_keeps_no_other_from_being_configured(
    harbor: StandIn, upstream: str, tmp_path: Path, more: dict[str, str]
) -> None:
    mine = {"name": "cache", "proxy_of": "up", "max_upstream_connections": 8}
    ends = [{"name": "up", "type": "docker-registry", "url": upstream}]
    raw = {"registry_endpoints": ends, "registry_projects": [mine, {"name": "theirs"}]}
    applied(harbor.url, tmp_path, raw)
    for name in ("cache", "theirs"):
        project = harbor.store.named("project", name)[0]
        project["metadata"] |= more if name == "theirs" or "max_upstream_conn" in more else {}
        harbor.store.put("project", project["project_id"], project)
    raw = {"registry_endpoints": ends, "registry_projects": [mine, {"name": "gpu"}]}
    done = applied(harbor.url, tmp_path, raw)
    assert (done.exit_code, {str(one.state) for one in done.outcomes}) == (0, {"done"})
    changed = {"gpu", "cache"} if "max_upstream_conn" in more else {"gpu"}
    assert {one.change.name for one in done.outcomes} == changed
    assert [one.name for one in plan_of(harbor, tmp_path, raw).changes] == ["theirs"]  # --prune


def test_a_location_without_a_number_fails_its_object_alone(
    harbor: StandIn, upstream: str, tmp_path: Path, twisted: Callable[..., None]
) -> None:
    raw: dict[str, Any] = {
        "registry_endpoints": [{"name": "up", "type": "docker-registry", "url": upstream}],
        "registry_projects": [{"name": "a"}, {"name": "b"}],
    }

    def twist(asked: Asked, given: Answer) -> Answer:
        is_broken = asked.method == "POST" and asked.target.endswith(("/registries", "/projects"))
        if is_broken and b'"b"' not in asked.raw:
            return Answer(given.status, given.body, {**given.headers, "Location": "/nowhere/seven"})
        return given

    twisted(twist)
    done = {one.change.name: str(one.state) for one in applied(harbor.url, tmp_path, raw).outcomes}
    assert done == {"up": "failed", "a": "failed", "b": "done"}


def test_names_of_harbor_reach_no_terminal_as_they_are(
    harbor: StandIn, tmp_path: Path, twisted: Callable[..., None]
) -> None:
    evil = {"project_id": 77, "name": "x\x1b]0;title\x07\u202e", "metadata": {}}
    twisted(
        lambda asked, given: (
            Answer(200, [evil], {"X-Total-Count": "1"}) if "/projects?" in asked.target else given
        )
    )
    made = plan_of(harbor, tmp_path, {"registry_projects": []})
    assert [one.name for one in (*made.remarks, *made.changes)] == ["x"]


@pytest.mark.parametrize("by_password", [False, True])
@pytest.mark.parametrize("form", ["its list of errors", "other words"])
def test_a_harbor_that_says_our_password_again_is_not_quoted(
    form: str, by_password: bool, harbor: StandIn, tmp_path: Path, twisted: Callable[..., None]
) -> None:
    seen: set[str] = set()

    def twist(asked: Asked, _: Answer) -> Answer:
        seen.update(harbor.sessions)
        if by_password:
            harbor.sessions.clear()
        sent = asked.headers.get("authorization", "")
        words = f"refused: {sent} admin:{PASSWORD} {asked.headers.get('cookie', '').rpartition('=')[2]}"
        if by_password and not sent:
            return Answer(401, words)
        return Answer(500, {"errors": [{"code": "X", "message": words}]} if form.startswith("its") else words)

    twisted(twist)
    with pytest.raises(ClusterctlError) as refused:
        plan_of(harbor, tmp_path, {})
    assert "refused: " in refused.value.what
    said = f"{refused.value.what} {refused.value.hint} {refused.value.where} {refused.value.__cause__}"
    assert PASSWORD not in said
    assert not any(session in said for session in seen)
    assert base64.b64encode(f"admin:{PASSWORD}".encode()).decode() not in said
