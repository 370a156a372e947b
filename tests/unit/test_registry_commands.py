"""`clusterctl registry` as an operator uses it, against a stand-in Harbor on loopback."""

from __future__ import annotations

import json
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from click.testing import CliRunner, Result

from clusterctl.cluster import settings
from clusterctl.cluster.directory import ClusterDirectory
from clusterctl.cluster.inventory import forget_cached
from clusterctl.cluster.settings.options import Option, catalogue
from clusterctl.commands.registry import reached
from clusterctl.errors import ClusterctlError
from clusterctl.main import cli
from clusterctl.registry.harbor.client import CONNECTIONS
from clusterctl.registry.harbor.declared import Declared
from clusterctl.registry.harbor.fields import size_words
from clusterlab.simulated.harbor.api.faults import Fault
from clusterlab.simulated.harbor.api.server import StandIn, serving

HOSTS = """\
gpu_nodes:
  hosts:
    gpu01:
      ansible_host: 192.0.2.1
registry:
  hosts:
    registry01:
      ansible_host: 127.0.0.1
"""
# Of Harbor's own two and a half minutes; a busy machine takes its time, too.
WITHIN_S = 100.0
DECLARED: dict[str, Any] = {
    "registry_projects": [
        {"name": "gpu", "public": True, "quota": "500G", "immutable_tags": [{"tags": "v*"}]}
    ],
    "registry_robots": [
        {"name": "pull", "days": 30, "permissions": [{"namespace": "gpu", "access": ["repository:pull"]}]}
    ],
    "registry_schedules": {"gc": {"cron": "0 0 3 * * 0"}},
}


@pytest.fixture
def harbor(tmp_path: Path) -> Iterator[StandIn]:
    with serving(tmp_path / "harbor.sqlite") as server:
        yield server


@pytest.fixture
def site(tmp_path: Path, harbor: StandIn) -> Path:
    root = tmp_path / "site"
    (root / "group_vars").mkdir(parents=True)
    (root / "hosts.yml").write_text(HOSTS)
    password = root / ".clusterctl" / "secrets" / "harbor-admin.password"
    password.parent.mkdir(parents=True, mode=0o700)
    password.write_text("Harbor12345\n")
    password.chmod(0o600)
    declare(root, {**DECLARED, "registry_api_url": harbor.url})
    return root


def declare(root: Path, values: dict[str, Any]) -> None:
    (root / "group_vars" / "registry.yml").write_text(yaml.safe_dump(values))
    forget_cached()


def call(site: Path, *arguments: str) -> Result:
    return CliRunner().invoke(cli, ["-C", str(site), "registry", *arguments], standalone_mode=False)


def records(result: Result) -> list[dict[str, Any]]:
    assert result.exception is None, result.exception
    return [json.loads(line) for line in result.stdout.splitlines()]


def refusal(result: Result) -> ClusterctlError:
    assert isinstance(result.exception, ClusterctlError), result.exception
    return result.exception


def secrets(site: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((site / ".clusterctl/secrets/registry-robots.json").read_text())
    return found["robots"]


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


@pytest.mark.parametrize(
    ("declared", "said"),
    [("1536M", "1536M"), ("2T", "2T"), (1, "1"), ("1024K", "1M"), ("unlimited", "unlimited")],
)
def test_a_quota_is_said_as_one_writes_it(declared: str, said: str) -> None:
    raw = {"registry_projects": [{"name": "a", "quota": declared}]}
    assert size_words(Declared.model_validate(raw).registry_projects[0].quota) == said


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


def logs_in(harbor: StandIn, robot: dict[str, Any]) -> int:
    url = f"{harbor.url}/api/v2.0/users/current/permissions"
    return httpx.get(url, auth=(robot["user"], robot["secret"])).status_code


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


def test_a_wrong_password_is_said_with_harbors_words_and_no_secret(site: Path) -> None:
    (site / ".clusterctl/secrets/harbor-admin.password").write_text("not-it\n")
    error = refusal(call(site, "plan"))
    assert (error.code, error.exit_code) == ("registry.api-denied", 2)
    assert error.what == "Harbor refuses admin (configuration): unauthorized (HTTP 401)"
    assert "not-it" not in error.what + error.hint


@pytest.mark.parametrize(("mode", "text"), [(0o644, "Harbor12345\n"), (0o600, ""), (None, "")])
def test_a_password_file_that_cannot_serve_is_refused(site: Path, mode: int | None, text: str) -> None:
    path = site / ".clusterctl/secrets/harbor-admin.password"
    path.unlink()
    if mode is not None:
        path.write_text(text)
        path.chmod(mode)
    error = refusal(call(site, "plan"))
    assert (error.code, error.where) == ("registry.secret-file", str(path))


def test_the_embedded_registry_has_nothing_to_declare(site: Path) -> None:
    declare(site, DECLARED)
    assert refusal(call(site, "plan")).code == "registry.no-harbor"


@pytest.mark.parametrize(
    ("setting", "value", "said"),
    [
        ("registry_projects", [{"name": "a", "proxy_of": "up"}], "project a is a proxy of up"),
        ("registry_projects", [{"name": "a"}, {"name": "a"}], "registry_projects has a twice"),
        ("registry_projects", [{"name": "a", "quota": "0"}], "registry_projects[a].quota: write unlimited"),
        (
            "registry_projects",
            [{"name": "a", "retention": [{"keep": "always", "count": 3}]}],
            "always has none",
        ),
        ("registry_schedules", {"gc": {"cron": "0 3 * * 0"}}, "registry_schedules.gc.cron: write six fields"),
        ("registry_replications", [{"name": "r"}], "write either source or destination"),
        ("registry_robots", [{"name": "r", "permissions": []}], "registry_robots[r].permissions"),
        (
            "registry_preheat",
            {
                "instances": [
                    {"name": n, "vendor": "kraken", "endpoint": f"http://{n}", "default": True} for n in "ab"
                ]
            },
            "one instance may be the default, and these are: a, b",
        ),
    ],
)
def test_what_contradicts_itself_is_refused_by_name(
    site: Path, harbor: StandIn, setting: str, value: Any, said: str
) -> None:
    declare(site, {setting: value, "registry_api_url": harbor.url})
    error = refusal(call(site, "plan"))
    assert error.code == "registry.declared"
    assert said in error.what
    assert not harbor.calls


@pytest.mark.parametrize(
    ("url", "is_refused"),
    [
        ("http://harbor.example", True),
        ("http://192.0.2.7:8080", True),
        ("http://localhost.example", True),
        ("http://127.0.0.1.example", True),
        ("http://127.0.0.1@harbor.example", True),
        ("harbor.example", True),
        ("https://harbor.example", False),
        ("http://localhost:1", False),
        ("http://[::1]:1", False),
        ("http://[::1]", False),
        ("http://127.3.2.1:1", False),
    ],
)
def test_no_password_goes_out_in_clear(site: Path, url: str, is_refused: bool) -> None:
    declare(site, {**DECLARED, "registry_api_url": url})
    if is_refused:
        assert refusal(call(site, "plan")).code == "registry.api-in-clear"
    else:
        assert reached.settings(site).access.url == url


def test_the_settings_know_every_field_of_what_can_be_declared() -> None:
    """The settings' own schema gives lines, the models give sense; they must know the same fields."""
    schema = Declared.model_json_schema()
    known = catalogue()
    for name, part in schema["properties"].items():
        assert fields(part, schema) == names(known[name].options), name


def test_the_example_of_the_page_is_valid(repository: Path, site: Path, harbor: StandIn) -> None:
    page = (repository / "docs/harbor.md").read_text(encoding="utf-8")
    example = yaml.safe_load(page.split("```yaml\n")[1].split("```")[0])
    assert set(example) == set(Declared.model_fields)
    declare(site, {**example, "registry_api_url": harbor.url})
    assert settings.check(ClusterDirectory(site)) == []
    secret = site / ".clusterctl/secrets/docker-hub.password"
    secret.write_text("x\n")
    secret.chmod(0o600)
    assert call(site, "plan").stdout.endswith("12 objects: 12 to create\n")


def fields(part: dict[str, Any], schema: dict[str, Any]) -> Any:
    """The fields of a model as nested mappings, from its JSON schema."""
    if "$ref" in part:
        part = schema["$defs"][part["$ref"].rpartition("/")[2]]
    for inner in (part.get("items"), *part.get("anyOf", ())):
        if inner and ("$ref" in inner or "items" in inner) and inner.get("type") != "null":
            return fields(inner, schema)
    return {name: fields(inner, schema) for name, inner in part.get("properties", {}).items()}


def names(options: Any) -> Any:
    """The same of the settings."""
    return {
        name: names(inner.options if isinstance(inner, Option) else {}) for name, inner in options.items()
    }
