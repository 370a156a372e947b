"""From any state, any declared state is reached in one apply, and a second one changes nothing."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.examples import examples
from tests.support.harbor_play import applied, changes, everything

from clusterctl.registry.harbor.declared import DeclaredHarbor
from clusterctl.registry.harbor.vault import Vault
from clusterlab.simulated.harbor.api import robots
from clusterlab.simulated.harbor.api.server import StandIn, serving

from .harbor_meddling import MEDDLING
from .harbor_states import anything, at, write_secrets

ordinary = examples(20)
# script/test --campaign
many = settings(ordinary, max_examples=500)

from_any_to_any = given(
    before=anything(), after=anything(), meddling=st.lists(st.sampled_from(MEDDLING), max_size=3)
)
from_one_to_another = from_any_to_any


@pytest.mark.drawn("what others did to the registry")
@pytest.mark.parametrize("meddle", MEDDLING, ids=lambda one: one.__name__)
def test_what_others_did_to_everything_is_set_right(upstream: str, meddle: Callable[[StandIn], None]) -> None:
    raw = everything(upstream)
    policy = {**raw["registry_preheat"]["policies"][0], "labels": []}
    raw["registry_preheat"]["policies"] = [{**policy, "name": f"p{n}"} for n in range(4)]
    with tempfile.TemporaryDirectory() as name, serving(":memory:") as server:
        directory = Path(name)
        applied(server.url, directory, raw)
        was = seen(server)
        meddle(server)
        done = applied(server.url, directory, raw, adopt=True)
        assert [(one.change.subject, one.why) for one in done.outcomes if one.state != "done"] == []
        assert changes(applied(server.url, directory, raw)) == []
        assert seen(server) == was


def seen(server: StandIn) -> list[Any]:
    """What the store has, where we send it as it is declared."""
    policies = [
        (one["name"], one["filters"], one["trigger"], one["enabled"])
        for one in server.store.all("preheat policy")
    ]
    keys = [(one.get("credential") or {}).get("access_key", "") for one in server.store.all("registry")]
    owned = [
        (one["name"], one["disable"], one["description"])
        for one in server.store.all("robot")
        if one["name"] in ("pull", "ops", "gpu+push")
    ]
    return [sorted(policies), keys, sorted(owned)]


@pytest.mark.drawn("random states of the registry")
@ordinary
@from_any_to_any
def test_any_state_becomes_any_other_in_one_apply(upstream: str, **states: Any) -> None:
    become(upstream, **states)


@pytest.mark.drawn("random states of the registry")
@ordinary
@from_one_to_another
def test_with_prune_nothing_is_left_but_what_is_declared(upstream: str, **states: Any) -> None:
    prune(upstream, **states)


@pytest.mark.drawn("random states of the registry")
@ordinary
@from_one_to_another
def test_what_is_not_in_the_way_of_others_robots_is_done(upstream: str, **states: Any) -> None:
    spare(upstream, **states)


@pytest.mark.campaign
@many
@from_any_to_any
def test_in_many_states_others_robots_are_spared(upstream: str, **states: Any) -> None:
    spare(upstream, **states)


@pytest.mark.campaign
@many
@from_any_to_any
def test_many_states_become_many_others(upstream: str, **states: Any) -> None:
    become(upstream, **states)


@pytest.mark.campaign
@many
@from_one_to_another
def test_of_many_states_nothing_is_left_but_what_is_declared(upstream: str, **states: Any) -> None:
    prune(upstream, **states)


def become(
    upstream: str, before: dict[str, Any], after: dict[str, Any], meddling: list[Callable[[StandIn], None]]
) -> None:
    with tempfile.TemporaryDirectory() as name, serving(":memory:") as server:
        directory, wanted = Path(name), awake(at(after, upstream))
        begin(server, directory, at(before, upstream), meddling)
        done = applied(server.url, directory, wanted, adopt=True)
        assert [(one.change.subject, one.why) for one in done.outcomes if one.state != "done"] == []
        assert done.exit_code == 0
        assert changes(applied(server.url, directory, wanted)) == []
        keep_their_secrets(server, directory, wanted)


def prune(
    upstream: str, before: dict[str, Any], after: dict[str, Any], meddling: list[Callable[[StandIn], None]]
) -> None:
    with tempfile.TemporaryDirectory() as name, serving(":memory:") as server:
        directory, wanted = Path(name), at(after, upstream)
        begin(server, directory, at(before, upstream), meddling)
        done = applied(server.url, directory, wanted, prune=True, adopt=True)
        assert [(one.change.subject, one.why) for one in done.outcomes if one.state != "done"] == []
        left = applied(server.url, directory, wanted, prune=True, check=True)
        assert (changes(left), left.plan.remarks) == ([], [])
        declared = DeclaredHarbor.model_validate(wanted)
        assert {one["name"] for one in server.store.all("project")} == {
            "library",
            *(one.name for one in declared.registry_projects),
        }
        assert {one["name"] for one in server.store.all("robot")} == {
            one.key for one in declared.registry_robots
        }


def spare(
    upstream: str, before: dict[str, Any], after: dict[str, Any], meddling: list[Callable[[StandIn], None]]
) -> None:
    """As of itself: robots of others are said and stay as they are, and all else is as declared."""
    with tempfile.TemporaryDirectory() as name, serving(":memory:") as server:
        directory, wanted = Path(name), awake(at(after, upstream))
        begin(server, directory, at(before, upstream), meddling)
        vault = Vault(directory / "robots.json")
        keys = {one.key for one in DeclaredHarbor.model_validate(wanted).registry_robots}
        strange = {
            one["name"]: one
            for one in server.store.all("robot")
            if one["name"] in keys and not vault.robot(one["name"])
        }
        done = applied(server.url, directory, wanted)
        assert [(one.change.subject, one.why) for one in done.outcomes if one.state != "done"] == []
        assert {one.name for one in done.plan.remarks if one.blocks} == set(strange)
        assert done.exit_code == (1 if strange else 0)
        again = applied(server.url, directory, wanted)
        assert (changes(again), again.exit_code) == ([], done.exit_code)
        left = {one["name"]: one for one in server.store.all("robot")}
        assert {name: left[name] for name in strange} == strange


def begin(
    server: StandIn, directory: Path, raw: dict[str, Any], meddling: list[Callable[[StandIn], None]]
) -> None:
    write_secrets(directory)
    assert applied(server.url, directory, raw).exit_code == 0
    for meddle in meddling:
        meddle(server)


def awake(raw: dict[str, Any]) -> dict[str, Any]:
    """Harbor disables no network that a policy uses, and without --prune those of others stay."""
    preheat = raw["registry_preheat"]
    instances = [{**one, "enabled": True} for one in preheat["instances"]]
    return {**raw, "registry_preheat": {**preheat, "instances": instances}}


def keep_their_secrets(server: StandIn, directory: Path, raw: dict[str, Any]) -> None:
    """Every robot that is declared and may log in does so with the secret that is kept."""
    vault = Vault(directory / "robots.json")
    for one in DeclaredHarbor.model_validate(raw).registry_robots:
        entry = vault.robot(one.key)
        found = robots.who(server.store, entry["user"], entry["secret"].get_secret_value())
        assert (found is None) == one.disabled, one.key
