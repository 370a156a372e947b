"""Names of robots that Harbor makes up: they lead to no file, into no command, and end no run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.harbor_play import NOTHING, applied, ask, changes, states

from clusterctl.errors import ClusterctlError
from clusterctl.registry.harbor.vault import Vault
from clusterlab.simulated.harbor.api.asked import Answer, Asked
from clusterlab.simulated.harbor.api.server import StandIn
from clusterlab.simulated.harbor.api.system import configure

PULL = [{"namespace": "*", "access": ["repository:pull"]}]
WHOLE = [{"kind": "project", "namespace": "*", "access": [{"resource": "repository", "action": "pull"}]}]
ONE: dict[str, Any] = {"registry_robots": [{"name": "pull", "permissions": PULL}]}
EVIL = (
    "robot$../../victim", "robot$/etc/x", "robot$..", "robot$.", "../../victim", "robot$a b", "robot$$(id)",
    "robot$-rf", "robot$A", "robot$a\n", "robot$a+b+c", "pull", "robot$robot$pull", f"robot${'a' * 600}",
    "robot$\x1b[2Jx",
)  # fmt: skip

Twist = Callable[[Callable[[Asked, Answer], Answer]], None]


def named(name: str) -> Callable[[Asked, Answer], Answer]:
    """Have Harbor list one more robot, with this name."""
    robot = {"id": 4711, "name": name, "creation_time": "2026-01-01T00:00:00Z", "level": "system"}

    def twist(asked: Asked, given: Answer) -> Answer:
        if asked.method != "GET" or "/robots?" not in asked.target or "Level%3Dsystem" not in asked.target:
            return given
        total = str(len(given.body) + 1)
        return Answer(200, [*given.body, robot], {**given.headers, "X-Total-Count": total})

    return twist


def command_of(directory: Path) -> tuple[str, ...]:
    """A keeper of secrets that writes down with which arguments it ran."""
    program = directory / "keeper"
    program.write_text(f'#!/bin/sh\nprintf "%s\\n" "$*" >>"{directory}/ran"\ncat >/dev/null\n')
    program.chmod(0o700)
    return (str(program), "{name}")


@pytest.mark.parametrize("name", EVIL, ids=range(len(EVIL)))
def test_a_name_that_is_none_deletes_no_file_and_is_said(
    harbor: StandIn, tmp_path: Path, twisted: Twist, name: str
) -> None:
    cluster = tmp_path / "a/b"
    cluster.mkdir(parents=True)
    applied(harbor.url, cluster, ONE)
    files = [tmp_path / "a/victim.password", cluster / "victim.password", cluster / "robots/pull.password"]
    for file in files[:2]:
        file.write_text("of others")
    twisted(named(name))
    done = applied(harbor.url, cluster, ONE, prune=True)
    assert changes(done) == []
    assert ["cannot be read" in one.why for one in done.plan.remarks] == [True]
    assert all(one.name.isprintable() for one in done.plan.remarks)
    assert all(file.is_file() for file in files)
    assert harbor.calls["DELETE"] == 0


@pytest.mark.parametrize(
    "prefix", ["robot$../", "-", "a b", "$(id)", "`id`", "x;", "a..", "\x1b", "a" * 65, "a%2f", "a#"]
)
def test_under_a_prefix_that_a_shell_or_url_may_act_on_no_robot_is_made_or_handed_over(
    harbor: StandIn, tmp_path: Path, prefix: str
) -> None:
    configure(harbor.store, robot_name_prefix=prefix)
    for _ in range(2):
        done = applied(harbor.url, tmp_path, ONE, secret_command=command_of(tmp_path), prune=True, adopt=True)
        assert states(done) == {}
        assert [(one.name, one.blocks) for one in done.plan.remarks if one.blocks] == [("pull", True)]
        assert not (tmp_path / "ran").exists()
        assert not (tmp_path / "robots").exists()
        made = {"name": "pull", "level": "system", "duration": -1, "permissions": WHOLE}
        if not harbor.store.all("robot"):
            ask(harbor, "POST", "/robots", made)
    assert len(harbor.store.all("robot")) == 1


def test_a_new_robot_that_harbor_calls_otherwise_fails_alone(
    harbor: StandIn, tmp_path: Path, twisted: Twist
) -> None:
    def twist(asked: Asked, given: Answer) -> Answer:
        if asked.method == "POST" and asked.target.endswith("/robots") and b'"name":"pull"' in asked.raw:
            return Answer(201, {**given.body, "name": "robot$../../x; id"}, given.headers)
        return given

    twisted(twist)
    raw = {"registry_robots": [*ONE["registry_robots"], {"name": "push", "permissions": PULL}]}
    done = applied(harbor.url, tmp_path, raw, secret_command=command_of(tmp_path))
    assert states(done) == {("robot", "pull"): "failed", ("robot", "push"): "done"}
    assert (tmp_path / "ran").read_text() == "robot$push\n"
    twisted(lambda _, given: given)
    assert applied(harbor.url, tmp_path, raw, secret_command=command_of(tmp_path), adopt=True).exit_code == 0


def test_a_pruned_robot_takes_its_own_files_alone_with_it(harbor: StandIn, tmp_path: Path) -> None:
    """As of a file that somebody put beside those of ours, under a name that Harbor then uses."""
    applied(harbor.url, tmp_path, ONE)
    foreign = tmp_path / "robots/strange.password"
    foreign.write_text("of others")
    made = {"name": "strange", "level": "system", "duration": -1, "permissions": WHOLE}
    ask(harbor, "POST", "/robots", made)
    done = applied(harbor.url, tmp_path, {"registry_robots": []}, prune=True)
    assert set(states(done)) == {("robot", "pull"), ("robot", "strange")}
    assert foreign.is_file()
    assert not (tmp_path / "robots/pull.password").exists()
    assert not Vault(tmp_path / "robots.json").robot("pull")


@pytest.mark.parametrize("name", [".", ".."])
@pytest.mark.parametrize("kind", ["/projects?", "/p2p/preheat/instances?"])
def test_no_name_leads_to_another_path_of_the_api(
    harbor: StandIn, tmp_path: Path, twisted: Twist, kind: str, name: str
) -> None:
    found = {"id": 7, "project_id": 7, "name": name, "vendor": "dragonfly", "endpoint": "http://d"}
    twisted(
        lambda asked, given: (
            Answer(200, [found], {"X-Total-Count": "1"})
            if asked.method == "GET" and kind in asked.target
            else given
        )
    )
    with pytest.raises(ClusterctlError, match="not as Harbor's API describes it"):
        applied(harbor.url, tmp_path, NOTHING, prune=True)
    assert harbor.calls["DELETE"] == 0


@pytest.mark.parametrize("key", ["../x", "", "a/b", "/etc/x", "x\0"])
def test_no_file_of_a_secret_is_named_by_what_is_no_name(tmp_path: Path, key: str) -> None:
    (tmp_path / "x.password").write_text("of others")
    vault = Vault(tmp_path / "robots.json")
    with pytest.raises(ValueError, match="not the name of a robot"):
        vault.has_password_file(key)
    vault.forget(key)
    assert (tmp_path / "x.password").is_file()
