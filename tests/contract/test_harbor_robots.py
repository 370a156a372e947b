"""Robots' secrets: whose they are, who keeps them, and what a new one may cost."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.harbor_play import REAL, applied, changes, rotated, states

from clusterctl.registry.harbor.vault import Vault
from clusterlab.simulated.harbor.api import robots
from clusterlab.simulated.harbor.api.faults import Fault
from clusterlab.simulated.harbor.api.server import StandIn

PULL = [{"namespace": "*", "access": ["repository:pull"]}]


def declared(many: int = 1, **changed: Any) -> dict[str, Any]:
    return {"registry_robots": [{"name": f"r{n}", "permissions": PULL, **changed} for n in range(many)]}


def logs_in(harbor: StandIn, name: str, secret: str) -> bool:
    if harbor.url in REAL:
        return REAL[harbor.url].knows(f"robot${name}", secret)
    return robots.who(harbor.store, f"robot${name}", secret) is not None


class Keeper:
    """A program that keeps secrets in files, and fails while there is a file ``sealed``."""

    def __init__(self, home: Path) -> None:
        self.home = home
        home.mkdir()
        program = home / "keeper"
        program.write_text(
            f'#!/bin/sh\ncd "{home}"\necho "$1" >>asked\n[ -e sealed ] && exit 3\ncat >"kept-$1"\n'
        )
        program.chmod(0o700)
        self.command = (str(program), "{name}")

    def seal(self, *, sealed: bool) -> None:
        path = self.home / "sealed"
        path.touch() if sealed else path.unlink()

    @property
    def asked(self) -> int:
        path = self.home / "asked"
        return len(path.read_text().splitlines()) if path.exists() else 0

    def kept(self, name: str) -> str:
        return (self.home / f"kept-robot${name}").read_text().strip()


@pytest.fixture
def keeper(tmp_path: Path) -> Keeper:
    return Keeper(tmp_path / "keeper")


def test_a_keeper_that_is_sealed_voids_no_secret_and_is_not_asked_for_each(
    harbor: StandIn, tmp_path: Path, keeper: Keeper
) -> None:
    raw = declared(40)
    applied(harbor.url, tmp_path, raw, secret_command=keeper.command)
    asked, patched = keeper.asked, harbor.calls["PATCH"]
    keeper.seal(sealed=True)
    done = rotated(harbor.url, tmp_path, raw, secret_command=keeper.command)
    assert harbor.calls["PATCH"] == patched
    assert all(logs_in(harbor, f"r{n}", keeper.kept(f"r{n}")) for n in range(40))
    # As many as are under way at a time, and none after the first that failed.
    assert keeper.asked - asked <= 8
    assert set(states(done).values()) == {"failed", "deferred"}
    keeper.seal(sealed=False)
    assert applied(harbor.url, tmp_path, raw, secret_command=keeper.command).exit_code == 0
    assert all(logs_in(harbor, f"r{n}", keeper.kept(f"r{n}")) for n in range(40))
    assert changes(applied(harbor.url, tmp_path, raw, secret_command=keeper.command)) == []


def test_a_keeper_that_is_sealed_gets_no_robots_made(harbor: StandIn, tmp_path: Path, keeper: Keeper) -> None:
    keeper.seal(sealed=True)
    done = applied(harbor.url, tmp_path, declared(40), secret_command=keeper.command)
    assert done.exit_code == 1
    assert len(harbor.store.all("robot")) <= 16
    keeper.seal(sealed=False)
    assert applied(harbor.url, tmp_path, declared(40), secret_command=keeper.command).exit_code == 0
    assert all(logs_in(harbor, f"r{n}", keeper.kept(f"r{n}")) for n in range(40))


def test_harbor_that_dies_after_the_keeper_has_it_is_mended_by_the_next_run(
    harbor: StandIn, tmp_path: Path, keeper: Keeper
) -> None:
    raw = declared(3)
    applied(harbor.url, tmp_path, raw, secret_command=keeper.command)
    harbor.faults.add(Fault(500, method="PATCH", times=99))
    rotated(harbor.url, tmp_path, raw, secret_command=keeper.command)
    harbor.faults.waiting.clear()
    assert applied(harbor.url, tmp_path, raw, secret_command=keeper.command).exit_code == 0
    assert all(logs_in(harbor, f"r{n}", keeper.kept(f"r{n}")) for n in range(3))


def test_secrets_that_are_kept_go_to_the_keeper_once_there_is_one(
    harbor: StandIn, tmp_path: Path, keeper: Keeper
) -> None:
    raw = declared()
    applied(harbor.url, tmp_path, raw)
    secret = Vault(tmp_path / "robots.json").robot("r0")["secret"].get_secret_value()
    keeper.seal(sealed=True)
    assert applied(harbor.url, tmp_path, raw, secret_command=keeper.command).exit_code == 1
    assert (tmp_path / "robots/r0.password").read_text() == f"{secret}\n"
    keeper.seal(sealed=False)
    done = applied(harbor.url, tmp_path, raw, secret_command=keeper.command)
    assert [part.field for part in done.plan.changes[0].differences] == ["kept"]
    assert keeper.kept("r0") == secret
    assert logs_in(harbor, "r0", secret)
    assert secret not in (tmp_path / "robots.json").read_text()
    assert not (tmp_path / "robots/r0.password").exists()
    assert changes(applied(harbor.url, tmp_path, raw, secret_command=keeper.command)) == []


@pytest.mark.parametrize("spoiled", ["gone", "another", "read by others"])
def test_a_file_of_a_secret_is_written_again(harbor: StandIn, tmp_path: Path, spoiled: str) -> None:
    raw = declared()
    applied(harbor.url, tmp_path, raw)
    path = tmp_path / "robots/r0.password"
    good = path.read_text()
    if spoiled == "gone":
        path.unlink()
    elif spoiled == "another":
        path.write_text("another\n")
    else:
        path.chmod(0o644)
    puts = harbor.calls["PUT"] + harbor.calls["PATCH"]
    done = applied(harbor.url, tmp_path, raw)
    assert [part.field for part in done.plan.changes[0].differences] == ["password file"]
    assert (path.read_text(), path.stat().st_mode & 0o777) == (good, 0o600)
    assert harbor.calls["PUT"] + harbor.calls["PATCH"] == puts
    assert changes(applied(harbor.url, tmp_path, raw)) == []


def test_files_from_before_a_vault_password_are_encrypted_once(
    harbor: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw, files = declared(), (tmp_path / "robots.json", tmp_path / "robots/r0.password")
    applied(harbor.url, tmp_path, raw)
    secret = files[1].read_text().strip()
    (tmp_path / "word").write_text("golden\n")
    (tmp_path / "word").chmod(0o600)
    monkeypatch.setenv("ANSIBLE_VAULT_PASSWORD_FILE", str(tmp_path / "word"))
    puts = harbor.calls["PUT"] + harbor.calls["PATCH"]
    done = applied(harbor.url, tmp_path, raw)
    assert [part.before for part in done.plan.changes[0].differences] == ["plain"]
    assert [file.read_text().startswith("$ANSIBLE_VAULT;") for file in files] == [True, True]
    assert harbor.calls["PUT"] + harbor.calls["PATCH"] == puts
    assert changes(applied(harbor.url, tmp_path, raw)) == []
    assert logs_in(harbor, "r0", secret)


def test_a_secret_whose_file_cannot_be_written_is_still_to_be_set(harbor: StandIn, tmp_path: Path) -> None:
    raw = declared()
    (tmp_path / "robots").write_text("in the way")
    assert applied(harbor.url, tmp_path, raw).exit_code == 1
    assert json.loads((tmp_path / "robots.json").read_text())["robots"]["r0"]["set"] is False
    (tmp_path / "robots").unlink()
    assert applied(harbor.url, tmp_path, raw).exit_code == 0
    assert (tmp_path / "robots/r0.password").is_file()
    assert changes(applied(harbor.url, tmp_path, raw)) == []


def test_rotation_changes_the_secret_and_the_days_alone(harbor: StandIn, tmp_path: Path) -> None:
    applied(harbor.url, tmp_path, declared(days=30, description="before"))
    other = declared(days=30, description="after", disabled=True)
    other["registry_robots"][0]["permissions"] = [{"namespace": "*", "access": ["repository:push"]}]
    (was,) = harbor.store.all("robot")
    harbor.store.put("robot", was["id"], {**was, "creation_time": "2026-01-01T00:00:00.000Z"})
    assert set(states(rotated(harbor.url, tmp_path, other)).values()) == {"done"}
    (found,) = harbor.store.all("robot")
    same = ("description", "disable", "scopes", "level", "name")
    assert {name: found[name] for name in same} == {name: was[name] for name in same}
    assert found["duration"] > 30
    assert found["secret"] != was["secret"]
    fields = {part.field for part in applied(harbor.url, tmp_path, other).plan.changes[0].differences}
    assert fields == {"description", "disabled", "permissions"}


def test_a_robot_of_the_first_kind_is_left_out_before_anything_is_begun(
    harbor: StandIn, tmp_path: Path
) -> None:
    raw = declared(2)
    applied(harbor.url, tmp_path, raw)
    (first,) = harbor.store.named("robot", "r0")
    harbor.store.put("robot", first["id"], {**first, "editable": False})
    kept = dict(Vault(tmp_path / "robots.json").robot("r0"))
    done = rotated(harbor.url, tmp_path, raw, named=True)
    assert states(done) == {("robot", "r1"): "done"}
    assert [(one.name, one.blocks) for one in done.plan.remarks] == [("r0", True)]
    assert Vault(tmp_path / "robots.json").robot("r0") == kept


def test_a_robot_of_others_keeps_its_secret_until_someone_says_so(harbor: StandIn, tmp_path: Path) -> None:
    (tmp_path / "others").mkdir()
    raw = declared()
    applied(harbor.url, tmp_path / "others", raw)
    secret = Vault(tmp_path / "others/robots.json").robot("r0")["secret"].get_secret_value()
    done = applied(harbor.url, tmp_path, declared(description="ours"))
    assert (done.outcomes, done.exit_code) == ([], 1)
    assert "registry rotate r0, or apply --adopt" in done.plan.remarks[0].why
    assert rotated(harbor.url, tmp_path, raw).outcomes == []
    assert logs_in(harbor, "r0", secret)
    assert states(applied(harbor.url, tmp_path, raw, adopt=True)) == {("robot", "r0"): "done"}
    assert not logs_in(harbor, "r0", secret)
    assert changes(applied(harbor.url, tmp_path, raw)) == []


def test_a_robot_of_others_that_is_named_is_rotated(harbor: StandIn, tmp_path: Path) -> None:
    (tmp_path / "others").mkdir()
    raw = declared()
    applied(harbor.url, tmp_path / "others", raw)
    assert set(states(rotated(harbor.url, tmp_path, raw, named=True)).values()) == {"done"}
    assert logs_in(harbor, "r0", Vault(tmp_path / "robots.json").robot("r0")["secret"].get_secret_value())
    assert changes(applied(harbor.url, tmp_path, raw)) == []


def test_a_begun_day_is_a_whole_one(harbor: StandIn, tmp_path: Path) -> None:
    """A secret lives at least as long as is declared, whatever the hour at which its robot was made."""
    raw = declared(days=30)
    applied(harbor.url, tmp_path, raw)
    assert harbor.store.all("robot")[0]["duration"] == 30
    (was,) = harbor.store.all("robot")
    harbor.store.put("robot", was["id"], {**was, "creation_time": "2026-01-01T23:59:00.000Z"})
    rotated(harbor.url, tmp_path, raw)
    (found,) = harbor.store.all("robot")
    made = Vault(tmp_path / "robots.json").made("r0")
    assert made is not None
    assert 30 * 86400 <= found["expires_at"] - made.timestamp() < 31 * 86400
    assert changes(applied(harbor.url, tmp_path, raw)) == []


def test_what_robots_may_is_written_in_one_order(harbor: StandIn, tmp_path: Path) -> None:
    """Harbor's database locks it row by row: in two orders, two robots may wait for each other."""
    may = ["repository:push", "artifact:read", "repository:pull"]
    robots_ = [
        {"name": name, "permissions": [{"namespace": one, "access": access} for one in places]}
        for name, places, access in (("a", ["library", "*"], may), ("b", ["*", "library"], may[::-1]))
    ]
    applied(harbor.url, tmp_path, {"registry_robots": robots_})
    orders = [json.dumps(one["scopes"]) for one in harbor.store.all("robot")]
    assert len(orders) == 2
    assert orders[0] == orders[1]
