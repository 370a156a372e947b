"""Preheat networks that change names, places and policies: Harbor takes an endpoint once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.support.harbor_play import applied, ask, changes, states

from clusterctl.registry.harbor import preheat
from clusterlab.simulated.harbor.api.server import StandIn

KIND, POLICY = preheat.KIND, preheat.POLICY


def network(name: str, at: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "vendor": "dragonfly", "endpoint": f"http://{at}.lan", **more}


def heated(*wanted: dict[str, Any], by: str = "") -> dict[str, Any]:
    """With one policy, which uses the network ``by``; without it none is declared."""
    policies = [{"name": "hot", "project": "gpu", "instance": by}] if by else []
    return {
        "registry_projects": [{"name": "gpu"}],
        "registry_preheat": {"instances": list(wanted), "policies": policies},
    }


def networks(harbor: StandIn) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = ask(harbor, "GET", "/p2p/preheat/instances")
    return found


def there(harbor: StandIn) -> dict[str, tuple[str, bool]]:
    found = networks(harbor)
    return {one["name"]: (one["endpoint"].removeprefix("http://"), one["enabled"]) for one in found}


def test_a_network_of_another_name_is_renamed_and_its_policies_stay(harbor: StandIn, tmp_path: Path) -> None:
    assert applied(harbor.url, tmp_path, heated(network("dragon", "a"), by="dragon")).exit_code == 0
    raw = heated(network("dragonfly", "a"), by="dragonfly")
    done = applied(harbor.url, tmp_path, raw, prune=True)
    assert (changes(done), done.exit_code) == ([("update", KIND, "dragonfly")], 0)
    (said,) = [part.as_text() for part in done.plan.changes[0].differences]
    assert said == "name: dragon -> dragonfly"
    assert there(harbor) == {"dragonfly": ("a.lan", True)}
    again = applied(harbor.url, tmp_path, raw, prune=True)
    assert (changes(again), again.plan.remarks) == ([], [])


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ([("a", "1"), ("b", "2")], [("a", "2"), ("b", "1")]),
        ([("a", "1")], [("b", "1"), ("a", "2")]),
        ([("a", "1"), ("b", "2")], [("b", "1"), ("c", "2")]),
        ([("a", "1"), ("b", "2")], [("c", "1"), ("a", "2"), ("d", "3")]),
    ],
)
@pytest.mark.parametrize("prune", [True, False])
def test_networks_change_places(
    harbor: StandIn,
    tmp_path: Path,
    before: list[tuple[str, str]],
    after: list[tuple[str, str]],
    prune: bool,
) -> None:
    was = [network(*one) for one in before]
    wanted = heated(*(network(*one) for one in after), by=after[-1][0])
    applied(harbor.url, tmp_path, heated(*was, by="a"))
    done = applied(harbor.url, tmp_path, wanted, prune=prune)
    assert [one.why for one in done.outcomes if one.state != "done"] == []
    assert changes(applied(harbor.url, tmp_path, wanted, prune=prune)) == []
    assert {(name, f"{at}.lan") for name, at in after} <= {
        (name, at) for name, (at, _) in there(harbor).items()
    }


def test_a_network_is_disabled_after_its_policy_has_moved(harbor: StandIn, tmp_path: Path) -> None:
    applied(harbor.url, tmp_path, heated(network("a", "1"), network("b", "2"), by="a"))
    raw = heated(network("a", "3", enabled=False), network("b", "2"), by="b")
    done = applied(harbor.url, tmp_path, raw)
    assert (done.exit_code, there(harbor)["a"]) == (0, ("3.lan", False))
    assert changes(done) == [("update", KIND, "a"), ("update", POLICY, "gpu/hot"), ("update", KIND, "a")]
    assert changes(applied(harbor.url, tmp_path, raw)) == []


def test_the_place_of_another_vendors_network_is_said_to_be_taken(harbor: StandIn, tmp_path: Path) -> None:
    applied(harbor.url, tmp_path, heated(network("dragon", "a")))
    raw = heated(network("squid", "a", vendor="kraken", enabled=False))
    done = applied(harbor.url, tmp_path, raw)
    assert (changes(done), done.exit_code) == ([], 1)
    assert {one.name: one.why for one in done.plan.remarks} == {
        "squid": "is of dragonfly, is named dragon, and Harbor changes none to kraken",
        "dragon": "is not declared; it is kept (--prune deletes it)",
    }
    applied(harbor.url, tmp_path, raw, prune=True)
    assert applied(harbor.url, tmp_path, raw, prune=True).exit_code == 0
    assert there(harbor) == {"squid": ("a.lan", False)}


def test_a_network_keeps_the_time_it_was_made_at_and_so_its_password(harbor: StandIn, tmp_path: Path) -> None:
    """Harbor writes what it is not sent as nothing; by that time we tell this network from another."""
    password = tmp_path / "password"
    password.write_text("now\n")
    password.chmod(0o600)
    login = {"user": "u", "password_file": "password"}
    applied(harbor.url, tmp_path, heated(network("d", "a", **login)))
    (was,) = networks(harbor)
    raw = heated(network("d", "a", **login, insecure=True))
    assert states(applied(harbor.url, tmp_path, raw)) == {(KIND, "d"): "done"}
    assert networks(harbor)[0]["setup_timestamp"] == was["setup_timestamp"]
    assert changes(applied(harbor.url, tmp_path, raw)) == []
