"""Robots of `clusterctl registry`: where their secrets are kept, how they are proved and renewed."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from clusterlab.simulated.harbor.api.server import StandIn

from .declared_site import DECLARED, call, declare, logs_in, refusal, secrets


def test_a_robot_has_the_secret_that_is_kept_in_a_file_of_its_owner(site: Path, harbor: StandIn) -> None:
    told = call(site, "apply", "--yes")
    path = site / ".clusterctl/secrets/registry-robots.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    robot = secrets(site)["pull"]
    assert robot["user"] == "robot$pull"
    password = site / ".clusterctl/secrets/robots/pull.password"
    assert (password.read_text(), stat.S_IMODE(password.stat().st_mode)) == (f"{robot['secret']}\n", 0o600)
    assert logs_in(harbor, robot) == 200
    assert robot["secret"] not in told.stdout + told.stderr


def test_rotate_makes_the_old_secret_void_and_counts_the_life_from_today(site: Path, harbor: StandIn) -> None:
    call(site, "apply", "--yes")
    old = secrets(site)["pull"]
    (found,) = harbor.store.all("robot")
    harbor.store.put(
        "robot",
        found["id"],
        {**found, "creation_time": "2026-01-01T00:00:00.000Z", "expires_at": 1769817600},
    )
    planned = call(site, "plan")
    assert (
        "robot pull has expired on 2026-01-31; renew it with: clusterctl registry rotate pull"
        in planned.stderr
    )
    done = call(site, "rotate", "--expiring", "7", "--yes")
    assert (done.return_value, done.stdout) == (0, "1 done\n")
    new = secrets(site)["pull"]
    assert new["secret"] != old["secret"]
    assert (logs_in(harbor, old), logs_in(harbor, new)) == (401, 200)
    assert call(site, "apply", "--yes").stdout == "nothing to do\n"
    assert call(site, "rotate", "--expiring", "7", "--yes").stdout == "nothing to do\n"
    assert "is not in the range" in str(call(site, "rotate", "--expiring", "3000000", "--yes").exception)


def test_a_robot_that_is_refused_is_found_by_logging_in_as_it(site: Path, harbor: StandIn) -> None:
    """As after a restore: Harbor has the secret of another day."""
    call(site, "apply", "--yes")
    (found,) = harbor.store.all("robot")
    harbor.store.put("robot", found["id"], {**found, "secret": "of another day"})
    assert call(site, "plan").stdout == "nothing to do\n"
    planned = call(site, "plan", "--prove-robots")
    assert "~ robot pull\n    secret: refused -> a new one\n" in planned.stdout
    assert call(site, "apply", "--prove-robots", "--yes").return_value == 0
    assert logs_in(harbor, secrets(site)["pull"]) == 200
    assert call(site, "plan", "--prove-robots").stdout == "nothing to do\n"


def test_who_could_not_be_proved_is_named_with_why(site: Path, harbor: StandIn) -> None:
    command = ["/bin/sh", "-c", "cat >/dev/null"]
    declare(site, {**DECLARED, "registry_api_url": harbor.url, "registry_robots_secret_command": command})
    call(site, "apply", "--yes")
    assert (
        "robot pull could not be proved: its secret is not kept here"
        in call(site, "plan", "--prove-robots").stderr
    )
    (found,) = harbor.store.all("robot")
    harbor.store.put("robot", found["id"], {**found, "expires_at": 1769817600})
    planned = call(site, "plan", "--prove-robots")
    assert "robot pull could not be proved: it has expired" in planned.stderr
    assert planned.stdout == "nothing to do\n"


def test_rotate_wants_to_know_whom_and_names_what_is_near(site: Path) -> None:
    assert "Name robots" in str(call(site, "rotate", "--yes").exception)
    assert refusal(call(site, "rotate", "pul")).hint == "Did you mean pull?"
    assert refusal(call(site, "rotate", "pull")).hint == "Make them first: clusterctl registry apply"


def test_a_command_that_keeps_secrets_gets_them_on_its_input(
    site: Path, harbor: StandIn, tmp_path: Path
) -> None:
    keeper = tmp_path / "keeper"
    keeper.write_text(f'#!/bin/sh\ncat > "{tmp_path}/kept-$1"\n')
    keeper.chmod(0o700)
    command = [str(keeper), "{name}"]
    declare(site, {**DECLARED, "registry_api_url": harbor.url, "registry_robots_secret_command": command})
    assert call(site, "apply", "--yes").return_value == 0
    assert "secret" not in secrets(site)["pull"]
    kept = (tmp_path / "kept-robot$pull").read_text().strip()
    assert logs_in(harbor, {"user": "robot$pull", "secret": kept}) == 200
    assert call(site, "apply", "--yes").stdout == "nothing to do\n"


def test_a_keeper_that_fails_fails_its_robot_and_the_next_run_mends_it(site: Path, harbor: StandIn) -> None:
    values = {**DECLARED, "registry_api_url": harbor.url}
    declare(site, {**values, "registry_robots_secret_command": ["/bin/false", "{name}"]})
    done = call(site, "apply", "--yes")
    assert done.return_value == 1
    assert "failed: robot pull: robot robot$pull: the secret command failed with status 1" in done.stderr
    declare(site, values)
    assert call(site, "apply", "--yes").stdout.endswith("1 done\n")
    assert logs_in(harbor, secrets(site)["pull"]) == 200


@pytest.mark.parametrize("command", ["{{ 5 }}", "{{ 'abc' }}", "keeper", ["keeper", 5]], ids=str)
def test_a_keeper_that_is_no_list_of_texts_is_refused(site: Path, harbor: StandIn, command: object) -> None:
    values = {**DECLARED, "registry_api_url": harbor.url, "registry_robots_secret_command": command}
    declare(site, values)
    error = refusal(call(site, "plan"))
    assert error.exit_code == 2 and "registry_robots_secret_command" in error.what
